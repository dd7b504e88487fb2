"""Rank programs do what the plan means: all ranks are played together, with trees of additions for values."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.cases import COMBINATIONS, FORMATS, INNER, WASTEFUL, scheme_text, tiered_text
from tests.support.executor import assert_plays
from tests.support.plans import lossy, plan_of
from tests.support.player import Player, play, sum_of
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from tests.support.survival import faults_of
from zenc.api import rank_programs
from zenc.errors import ZencError
from zenc.plan.ir import Plan
from zenc.plan.requirements import allowed
from zenc.plan.unroll import expand
from zenc.rank_ir.ir import FULL, WHOLE, Agree, Carries, Merge, RankProgram, Split, made_by, used_by
from zenc.rank_ir.lower import lower, lower_all
from zenc.rank_ir.text import ShownProgram
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


COMMUNICATIONS = ("point_to_point then ring", "ring", "point_to_point", "hierarchy then point_to_point")
VARIANTS = [(each, how) for each in COMMUNICATIONS for how in ("incremental", "one_shot")]


def programs(communication: str, aggregation: str, size: int, announce: str = "ring") -> tuple[RankProgram, ...]:
    text = (
        f"scheme mine {{ communication: {communication} aggregation: {aggregation} partition: parallelism "
        f"balance: balanced by holders announce: {announce} }}"
    )
    return lower_all(plan_of(text), size)


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_both_sides_of_a_message_know_what_it_brings(communication, aggregation, size):
    on_the_way: dict[tuple[str, int, int, int], list[list[object]]] = defaultdict(list)
    for of in programs(communication, aggregation, size):
        assert_numbers_are_used(of)
        for phase in of.phases:
            for exchange in phase.exchanges:
                for outgoing, messages in ((True, exchange.sends), (False, exchange.receives)):
                    for message in messages:
                        ends = (of.rank, message.peer) if outgoing else (message.peer, of.rank)
                        brings = [(of.segments[s].part, of.segments[s].ranks) for s in message.segments]
                        on_the_way[(phase.kind, exchange.number, *ends)].append([*brings])
    assert all(len(sides) == 2 and sides[0] == sides[1] for sides in on_the_way.values())
    assert bool(on_the_way) == (size > 1)


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
def test_every_set_comes_before_ranks_agree_and_every_part_is_complete(communication, aggregation):
    for of in programs(communication, aggregation, 4):
        announce, push, pull = of.phases
        *exchanges, agree, split = announce.statements
        assert isinstance(agree, Agree) and isinstance(split, Split)
        assert [of.segments[each].ranks for each in agree.sets] == [(0,), (1,), (2,), (3,)]
        assert {each for exchange in exchanges for each in made_by(exchange)} == {*agree.sets} - {agree.sets[of.rank]}
        assert {of.segments[each].part for each in agree.sets} == {WHOLE}
        assert (split.segment, split.results) == (of.pack.results[0], of.own)
        assert [of.segments[each].part for each in of.expand.segments] == [0, 1, 2, 3]
        assert {of.segments[each].ranks for each in of.expand.segments} == {(0, 1, 2, 3)}
        assert of.expand.sets == agree.sets and set(agree.sets) <= set(of.expand.frees)
        assert [phase.kind for phase in (announce, push, pull)] == ["announce", "push", "pull"]
        assert [phase.carries for phase in of.phases] == [Carries.SETS, Carries.ROWS, Carries.ROWS]


def test_an_owner_sums_what_holders_send():
    of = lower(plan_of_shipped("holders"), 3, 1)
    assert [[of.segments[each].ranks for each in merge.segments] for merge in merges_of(of)] == [[(0,), (1,), (2,)]]
    assert [each.peers for each in of.statements if isinstance(each, Agree)] == [(0, 2)]


OWN = "scheme own { communication: ring aggregation: one_shot partition: parallelism balance: balanced by holders"


@pytest.mark.parametrize("inside", ["balanced", "dense_ring", "hierarchical_centralization"])
@pytest.mark.parametrize("announce", ["ring", "directory"])
def test_the_program_of_an_outermost_tier_is_that_of_its_group_alone(inside, announce):
    """Only the numbers of steps differ, which count over all tiers, in one order on all ranks."""
    text = f"{OWN} announce: {announce} }} scheme two {{ tier a(2): {inside} tier b: own }}"
    alone = lower_all(plan_of(f"{OWN} announce: {announce} }}"), 3)
    for of in lower_all(plan_of(text, scheme="two"), 6):
        assert_numbers_are_used(of)
        assert of.across is not None and of.across.ranks == (of.rank % 2, of.rank % 2 + 2, of.rank % 2 + 4)
        inner, expected = of.across.program, alone[of.rank // 2]
        assert (inner.segments, inner.own, inner.expand) == (expected.segments, expected.own, expected.expand)
        for phase, other in zip(inner.phases, expected.phases, strict=True):
            assert (phase.kind, phase.carries) == (other.kind, other.carries)
            assert [(s.sends, s.receives) for s in phase.exchanges] == [(s.sends, s.receives) for s in other.exchanges]
        every = [phase.exchanges for phase in (*of.phases[:-1], *inner.phases, of.phases[-1])]
        steps = [exchange.number for exchanges in every for exchange in exchanges]
        assert steps == list(range(1, of.exchanges + 1))
        assert of.segments[of.across.segment].ranks == (of.rank // 2 * 2, of.rank // 2 * 2 + 1)
        assert of.segments[of.across.result].ranks == tuple(range(6))


def shown(name: str, size: int, rank: int = 1, units: int = 4000) -> ShownProgram:
    plan = plan_of_shipped(name)
    parts = plan.parts(size)
    return ShownProgram(name, lower(plan, size, rank), (units // parts,) * parts, 64, 4)


@pytest.mark.one_in(1)
@pytest.mark.parametrize("name", ["balanced", "holders", "dense_ring"])
def test_programs_are_shown_as_they_were(assert_golden, name):
    assert_golden(f"{name}.program.txt", shown(name, 4).text() + "\n")


@pytest.mark.parametrize("name", SHIPPED)
def test_all_statements_are_shown(name):
    size = allowed(plan_of_shipped(name), (3, 4, 2, 8))[0]
    of = shown(name, size)
    lines, data = of.text().splitlines(), json.loads(json.dumps(of.to_json()))
    statements = list(of.program.statements)
    assert sum(line.startswith("  ") for line in lines) == len(statements)
    assert all(any(line.startswith(f"{phase.name}: ") for line in lines) for phase in of.program.phases)
    found = [data["pack"], *(each for phase in data["phases"] for each in phase["statements"]), data["expand"]]
    assert [each["operation"] for each in found] == [type(each).__name__.lower() for each in statements]
    assert [each["frees"] for each in found] == [list(each.frees) for each in statements]
    for each, statement in zip(found, statements, strict=True):
        sent = [segment for message in each.get("sends", ()) for segment in message["segments"]]
        assert (sent or each.get("of", [])) == list(used_by(statement))


def test_bytes_are_known_where_segments_are_full():
    """A message has 48 bytes of header, 16 for the segment, and 1000 rows of 256 bytes."""
    sends = [
        [message["bytes"] for each in phase["statements"] for message in each.get("sends", ())]
        for name in ("dense_ring", "balanced")
        for phase in shown(name, 4).to_json()["phases"]
    ]
    assert sends == [[256_064] * 3, [256_064] * 3, [None] * 3, [None] * 3]


def test_bytes_of_codes_are_known_and_losses_shown():
    """1000 rows of 64 values take a bit each, and 4 bytes for each block of 2048."""
    of = shown("one_bit", 4)
    sends = {message["bytes"] for phase in of.to_json()["phases"] for each in phase["statements"]
             for message in each.get("sends", ())}  # fmt: skip
    assert sends == {48 + 16 + 8000 + 128}
    assert of.text().count("as sign(2048)    # keeps what is lost") == 4
    short = rank_programs("sketch_sgd", 4, 2, units=1000)["sketch_sgd"]
    assert sum(short.slots) * short.width == 3_200 == 0.05 * 64_000 and "  select     sketch(" in short.text()


def test_the_api_shows_every_candidate_of_a_choice():
    assert list(rank_programs("balanced", 4, 2)) == ["balanced"]
    several = rank_programs("auto", 4, 2)
    assert len(several) > 1 and all(each.program.rank == 2 for each in several.values())
    with pytest.raises(ZencError, match="there is no rank 4 among 4"):
        rank_programs("balanced", 4, 4)
