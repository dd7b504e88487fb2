"""Sequences say what the plan means: all ranks are played together, with trees of what was added in place of values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import COMBINATIONS, FORMATS, INNER, scheme_text, tiered_text
from tests.support.plans import plan_of
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from tests.support.steps import assert_plays
from zenc.codegen.sequence import sequence
from zenc.codegen.statements import Fill, Merge, Sequence, Sparsify, Transfer
from zenc.errors import InternalError
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.scheme.model import Format
from zenc.wire.formats import FILLING

WITH_A_CUT = [name for name in SHIPPED if plan_of_shipped(name).announce is None]
Tree = Any
"""A rank, or the tuple of trees that were added, in order; a pair ("filled", tree) or ("sparse", tree)."""


class Player:
    """One rank: the trees of its segments, once they are made."""

    def __init__(self, what: Sequence) -> None:
        self.what = what
        self.trees: dict[int, Tree] = {segment: what.rank for segment in range(what.parts)}
        self.met: set[tuple[str, int]] = set()

    def make(self, result: int, tree: Tree, *inputs: int) -> None:
        part = self.what.segments[result].part
        assert result not in self.trees and all(self.what.segments[segment].part == part for segment in inputs)
        self.trees[result] = tree

    def transfers(self):
        """Do what comes between transfers, and stop at each: (phase, transfer)."""
        for phase in self.what.phases:
            for statement in phase.statements:
                match statement:
                    case Transfer():
                        yield phase, statement
                    case Merge(result, segments):
                        self.make(result, tuple(self.trees[segment] for segment in segments), *segments)
                    case Fill(result, segment, format):
                        self.make(result, ("filled", format, self.trees[segment]), segment)
                    case Sparsify(result, segment):
                        self.make(result, ("sparse", self.trees[segment]), segment)


def play(sequences: list[Sequence]) -> list[Player]:
    """All ranks, step by step; what is sent in a step has to be what is expected in it, part by part."""
    players = [Player(what) for what in sequences]
    under_way: dict[tuple[int, int, int], tuple[Any, ...]] = {}
    waiting = [(player, player.transfers()) for player in players]
    now = [(player, steps, *next(steps, (None, None))) for player, steps in waiting]
    while any(transfer for *_, transfer in now):
        number = min(transfer.number for *_, transfer in now if transfer)
        current = [entry for entry in now if entry[3] and entry[3].number == number]
        for player, _, phase, transfer in current:
            for parcel in transfer.sends:
                assert_sendable(player, phase.format, parcel.segments)
                carried = [(player.what.segments[s].part, player.trees[s]) for s in parcel.segments]
                how = phase.format, parcel.announced, parcel.counted, carried
                assert (player.what.rank, parcel.peer, number) not in under_way
                under_way[player.what.rank, parcel.peer, number] = how
        for player, _, phase, transfer in current:
            for parcel in transfer.receives:
                format, announced, counted, carried = under_way.pop((parcel.peer, player.what.rank, number))
                assert (format, announced, counted) == (phase.format, parcel.announced, parcel.counted)
                assert [part for part, _ in carried] == [player.what.segments[s].part for s in parcel.segments]
                assert announced or parcel.peer in player.met
                player.met.add(parcel.peer)
                for segment, (_, tree) in zip(parcel.segments, carried, strict=True):
                    player.make(segment, tree)
        now = [(p, s, *(next(s, (None, None)) if t and t.number == number else (f, t))) for p, s, f, t in now]
    assert not under_way
    return players


def assert_sendable(player: Player, format: Format, segments: tuple[int, ...]) -> None:
    """What a filling format carries has been filled up for it, whatever was added since."""
    for segment in segments:
        if format in FILLING:
            assert is_filled(player.trees[segment], format), (player.what.rank, segment)


def is_filled(tree: Tree, format: Format) -> bool:
    match tree:
        case int() | ("sparse", _):
            return False
        case ("filled", Format() as done, inner):
            return done is Format.DENSE or 0 < format.block <= done.block or is_filled(inner, format)
    if format is Format.DENSE:
        return any(is_filled(branch, format) for branch in tree)
    return all(is_filled(branch, format) for branch in tree) or any(is_filled(b, Format.DENSE) for b in tree)


def sum_of(tree: Tree) -> Tree:
    """``tree`` without what only changes its units."""
    match tree:
        case int():
            return tree
        case ("filled", _, inner) | ("sparse", inner):
            return sum_of(inner)
    return tuple(sum_of(branch) for branch in tree)


def assert_same_sums(plan: Plan, size: int) -> None:
    """The sums are those that the plan means, added in its order."""
    players = play([sequence(plan, size, rank) for rank in range(size)])
    held = assert_plays(plan, expand(plan, size))
    for player, wanted in zip(players, held, strict=True):
        assert len(player.trees) == len(player.what.segments)
        assert [player.what.segments[segment].part for segment in player.what.complete] == list(range(len(wanted)))
        found = [player.trees[segment] for segment in player.what.complete]
        assert found == [players[0].trees[segment] for segment in players[0].what.complete]
        assert [sum_of(tree) for tree in found] == [tree for ((_, tree),) in wanted]


@pytest.mark.parametrize(("name", "size"), cases(range(1, 10), WITH_A_CUT))
def test_shipped_schemes(name, size):
    assert_same_sums(plan_of_shipped(name), size)


@pytest.mark.parametrize("push", FORMATS)
@pytest.mark.parametrize("pull", FORMATS)
def test_every_pair_of_formats(push, pull):
    """With every third combination; which ones goes round with the pairs."""
    first = (FORMATS.index(push) + FORMATS.index(pull)) % 3
    for number in range(first, len(COMBINATIONS), 3):
        assert_same_sums(plan_of(scheme_text(*COMBINATIONS[number], push, pull)), 3 + number % 3)


@pytest.mark.slow
@pytest.mark.parametrize("push", FORMATS)
@pytest.mark.parametrize("pull", FORMATS)
def test_every_pair_of_formats_with_every_combination(push, pull):
    for number, combination in enumerate(COMBINATIONS):
        assert_same_sums(plan_of(scheme_text(*combination, push, pull)), 3 + number % 3)


@pytest.mark.parametrize("number", range(len(INNER)))
def test_tiers(number):
    formats = [(FORMATS[number % 7], FORMATS[(number + 3) % 7]), (FORMATS[(number + 5) % 7], FORMATS[number % 4])]
    plan = plan_of(tiered_text([2], [INNER[number], COMBINATIONS[number]], formats), scheme="tiered")
    assert_same_sums(plan, 6)


def test_what_is_never_used_is_not_made():
    """A rank of a ring merges what it passes on, and no part twice: the pull brings all others."""
    what = sequence(plan_of_shipped("dense_ring"), 4, 1)
    merges = [s for phase in what.phases for s in phase.statements if isinstance(s, Merge)]
    assert [what.segments[merge.result].part for merge in merges] == [3, 2, 1]


def test_only_the_first_message_of_a_dense_ring_is_announced():
    what = sequence(plan_of_shipped("dense_ring"), 4, 1)
    transfers = [s for phase in what.phases for s in phase.statements if isinstance(s, Transfer)]
    assert [t.sends[0].announced for t in transfers] == [True] + [False] * 5
    assert not any(parcel.counted for t in transfers for parcel in (*t.sends, *t.receives))


def test_segments_know_what_they_are_sent_in():
    what = sequence(plan_of_shipped("balanced"), 4, 1)
    assert [what.segments[segment].asked for segment in what.own] == [Format.AUTO, None, Format.AUTO, Format.AUTO]
    assert what.segments[what.complete[1]].asked is Format.BITMAP


def test_a_plan_by_holders_has_no_sequence_of_this_kind():
    with pytest.raises(InternalError):
        sequence(plan_of_shipped("holders"), 2, 0)
