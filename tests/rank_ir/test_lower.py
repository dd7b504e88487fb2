"""Rank programs do what the plan means: all ranks are played together, with trees of additions for values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.cases import COMBINATIONS, FORMATS, INNER, scheme_text, tiered_text
from tests.support.executor import assert_plays
from tests.support.plans import lossy, plan_of
from tests.support.player import Player, play, sum_of
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from tests.support.survival import faults_of
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.rank_ir.ir import FULL, Merge, RankProgram, made_by, used_by
from zenc.rank_ir.lower import lower, lower_all
from zenc.scheme.compression import Integers, Rounded
from zenc.scheme.model import Format

WITH_A_CUT = [name for name in SHIPPED if not plan_of_shipped(name).announces]


def faults_of_sums(plan: Plan, size: int) -> list[str]:
    """Return faults: a sum that is not the plan's, in its order, or one that is missing in the end."""
    programs = lower_all(plan, size)
    players = play(programs)
    pairs = zip(players, assert_plays(plan, expand(plan, size)), strict=True)
    return [fault for player, wanted in pairs for fault in _faults(player, players[0], wanted)]


def _faults(player: Player, first: Player, wanted: Sequence[Any]) -> list[str]:
    assert_numbers_are_used(player.what)
    complete = player.what.expand.segments
    if player.trees.keys() != set(complete):
        return ["something else is left"]
    found = [player.trees[segment] for segment in complete]
    return faults_of(
        other_parts=[player.what.segments[segment].part for segment in complete] == list(range(len(wanted))),
        ranks_that_add_otherwise=found == [first.trees[segment] for segment in first.what.expand.segments],
        other_sums=[sum_of(tree) for tree in found] == [tree for ((_, tree),) in wanted],
    )


def assert_numbers_are_used(program: RankProgram) -> None:
    """Check that each segment is made once and freed once, by a statement that uses or makes it."""
    made = [segment for statement in program.statements for segment in made_by(statement)]
    freed = [segment for statement in program.statements for segment in statement.frees]
    assert sorted(made) == sorted(freed)
    for statement in program.statements:
        assert set(statement.frees) <= {*used_by(statement), *made_by(statement)}
    sent = {segment for phase in program.phases for each in phase.exchanges for segment in used_by(each)}
    assert sent == {n for n, spec in enumerate(program.segments) if spec.sent_in is not None}


@pytest.mark.parametrize(("name", "size"), cases(range(1, 10), WITH_A_CUT))
def test_shipped_schemes(name, size):
    assert faults_of_sums(plan_of_shipped(name), size) == []


@pytest.mark.parametrize("push", FORMATS)
@pytest.mark.parametrize("pull", FORMATS)
def test_every_pair_of_formats(push, pull):
    first = (FORMATS.index(push) + FORMATS.index(pull)) % 3
    for number in range(first, len(COMBINATIONS), 3):
        assert faults_of_sums(plan_of(scheme_text(*COMBINATIONS[number], push, pull)), 3 + number % 3) == []


@pytest.mark.slow
@pytest.mark.parametrize("push", FORMATS)
@pytest.mark.parametrize("pull", FORMATS)
def test_every_pair_of_formats_with_every_combination(push, pull):
    for number, combination in enumerate(COMBINATIONS):
        assert faults_of_sums(plan_of(scheme_text(*combination, push, pull)), 3 + number % 3) == []


@pytest.mark.parametrize("number", range(len(INNER)))
def test_tiers(number):
    formats = [(FORMATS[number % 7], FORMATS[(number + 3) % 7]), (FORMATS[(number + 5) % 7], FORMATS[number % 4])]
    plan = plan_of(tiered_text([2], [INNER[number], COMBINATIONS[number]], formats), scheme="tiered")
    assert faults_of_sums(plan, 6) == []


HALF, BYTE = Rounded("bf16"), Integers(8)


@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_codes_and_selections(number):
    """Every combination has codes in the push, the pull, and both, with all pairs of formats in turn."""
    pair = FORMATS[number % 7], FORMATS[(number + number // 7) % 7]
    plan = plan_of(scheme_text(*COMBINATIONS[number], *pair))
    for codes in ((HALF, None), (None, BYTE), (HALF, BYTE)):
        assert faults_of_sums(lossy(plan, *codes), 2 + number % 4) == []


@pytest.mark.parametrize("number", range(len(INNER)))
def test_codes_of_tiers(number):
    """Encoded input of another tier is forwarded as it is, decoded, or encoded differently."""
    plan = plan_of(tiered_text([2], [INNER[number], COMBINATIONS[number]]), scheme="tiered")
    for codes in (HALF, None, BYTE, None), (None, HALF, None, BYTE), (None, None, BYTE, BYTE), (HALF, HALF, BYTE, HALF):
        assert faults_of_sums(lossy(plan, *codes), 6) == []


def merges_of(program: RankProgram) -> list[Merge]:
    return [statement for statement in program.statements if isinstance(statement, Merge)]


def test_what_is_never_used_is_not_made():
    what = lower(plan_of_shipped("dense_ring"), 4, 1)
    assert [what.segments[merge.result].part for merge in merges_of(what)] == [3, 2, 1]


WASTEFUL = """
scheme wasteful {
    communication: schedule {
        push { step { send all to 0 where rank != 0  send all to 1 where rank == 2 } }
        pull { step { send all to 1 where rank == 0  send all to 2 where rank == 0 } }
    }
    aggregation: incremental partition: centralization balance: imbalanced
}
"""


def test_a_segment_that_is_only_received_is_freed_where_it_comes():
    """Rank 1 gets a push, and then the complete sum in its place."""
    what = lower(plan_of(WASTEFUL), 3, 1)
    pushed = what.phases[0].exchanges[0]
    assert merges_of(what) == []
    assert set(made_by(pushed)) < set(pushed.frees)
    assert_numbers_are_used(what)


def test_segments_know_what_they_are_sent_in():
    what = lower(plan_of_shipped("balanced"), 4, 1)
    assert [what.segments[segment].sent_in for segment in what.own] == [Format.AUTO, None, Format.AUTO, Format.AUTO]
    assert what.segments[what.expand.segments[1]].sent_in is Format.BITMAP
    assert [spec.final for spec in what.segments].count(True) == 4


@pytest.mark.parametrize(("push", "pull", "spread"), [("dense", "coo", 1), ("dense", "block(8)", 8), ("coo", "coo", 1)])
@pytest.mark.parametrize("aggregation", ["incremental", "one_shot"])
def test_what_was_filled_up_for_a_phase_is_not_for_the_next_one(aggregation, push, pull, spread):
    """A sum that is made sparse has only what was contributed, which rooms on GPUs depend on."""
    parts = "partition: parallelism balance: imbalanced"
    what = lower(plan_of(scheme_text("ring", aggregation, parts, push, pull)), 3, 1)
    pushed, pulled = (
        {what.segments[segment].spread for each in phase.exchanges for segment in made_by(each)}
        for phase in what.phases
    )
    assert pushed == {FULL if push == "dense" else 1}
    assert pulled == {spread}


def test_origins_are_of_the_rank_that_held_a_piece_when_the_phase_began():
    """Pieces under one-shot keep their origin; merged segments have this rank's, and others their sender's."""
    what = lower(plan_of(scheme_text("ring", "one_shot", "partition: parallelism balance: imbalanced")), 4, 1)
    push, pull = what.phases
    (came,) = [message for message in push.exchanges[-1].receives]
    assert [what.segments[segment].origin for segment in came.segments] == [0, 2, 3]
    assert {what.segments[segment].origin for each in pull.exchanges for segment in made_by(each)} == {0}
    assert {what.segments[merge.result].origin for merge in merges_of(what)} == {1}


def test_the_programs_of_some_ranks_are_those_of_all():
    plan = plan_of_shipped("kylix")
    every = lower_all(plan, 8)
    assert lower_all(plan, 8, (5, 2)) == (every[5], every[2]) == (lower(plan, 8, 5), lower(plan, 8, 2))
