"""Sequences by holders: what one rank sends is what its peer awaits, and every number has a use."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.support.plans import plan_of
from tests.support.shipped import plan_of_shipped
from zenc.codegen.holder_sequence import HolderSequence, holder_sequence
from zenc.codegen.statements import Merge, Transfer

COMMUNICATIONS = ("point_to_point then ring", "ring", "point_to_point", "hierarchy then point_to_point")
VARIANTS = [(each, how) for each in COMMUNICATIONS for how in ("incremental", "one_shot")]


def sequences(communication: str, aggregation: str, size: int, announce: str = "ring") -> list[HolderSequence]:
    text = (
        f"scheme mine {{ communication: {communication} aggregation: {aggregation} partition: parallelism "
        f"balance: balanced by holders announce: {announce} }}"
    )
    return [holder_sequence(plan_of(text), size, rank) for rank in range(size)]


def holders_of(of: HolderSequence, cut: int) -> tuple[int, ...]:
    """Whose slots a cut has."""
    return tuple(of.cuts[piece].rank for piece in of.cuts[cut].pieces) or (of.cuts[cut].rank,)


def transfers(of: HolderSequence) -> list[tuple[str, Transfer]]:
    return [(phase.kind, each) for phase in of.phases for each in phase.statements if isinstance(each, Transfer)]


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_both_sides_of_a_message_know_what_it_brings(communication, aggregation, size):
    on_the_way: dict[tuple[str, int, int, int], list[list[object]]] = defaultdict(list)
    for of in sequences(communication, aggregation, size):
        for kind, transfer in transfers(of):
            for outgoing, parcels in ((True, transfer.sends), (False, transfer.receives)):
                for parcel in parcels:
                    ends = (of.rank, parcel.peer) if outgoing else (parcel.peer, of.rank)
                    brings: list[object] = list(parcel.segments)
                    if kind != "announce":
                        cuts = [of.rows[number] for number in parcel.segments]
                        brings = [(of.cuts[cut].part, holders_of(of, cut)) for cut in cuts]
                    assert parcel.announced == parcel.counted == (kind == "announce")
                    on_the_way[(kind, transfer.number, *ends)].append(brings)
    assert all(len(sides) == 2 and sides[0] == sides[1] for sides in on_the_way.values())
    assert bool(on_the_way) == (size > 1)


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
def test_every_set_comes_before_ranks_agree_and_every_part_is_complete(communication, aggregation):
    for of in sequences(communication, aggregation, 4):
        announced, *later = of.phases
        came = {set for each in announced.statements for parcel in each.receives for set in parcel.segments}
        assert came == {0, 1, 2, 3} - {of.rank}
        assert [of.cuts[of.rows[number]].part for number in of.complete] == [0, 1, 2, 3]
        assert all(holders_of(of, of.rows[number]) == (part,) for part, number in enumerate(of.complete))
        assert [phase.kind for phase in later] == ["push", "pull"]


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
def test_cuts_of_one_rank_come_first_and_what_is_summed_has_bitmaps(communication, aggregation):
    for of in sequences(communication, aggregation, 4):
        several = [cut.rank < 0 for cut in of.cuts]
        assert several == sorted(several)
        assert all(cut.marked and len(cut.pieces) > 1 for cut in of.cuts if cut.rank < 0)
        assert all(of.cuts[piece].marked for cut in of.cuts for piece in cut.pieces)
        merges = [each for phase in of.phases for each in phase.statements if isinstance(each, Merge)]
        for merge in merges:
            assert all(of.cuts[of.rows[number]].marked for number in (merge.result, *merge.segments))


def test_an_owner_sums_what_holders_send_and_needs_no_unions():
    of = holder_sequence(plan_of_shipped("holders"), 3, 1)
    assert all(cut.rank >= 0 for cut in of.cuts)
    merges = [each for phase in of.phases for each in phase.statements if isinstance(each, Merge)]
    assert [[holders_of(of, of.rows[number]) for number in merge.segments] for merge in merges] == [[(0,), (1,), (2,)]]
    assert of.peers == (0, 2)


def test_a_schedule_that_sums_on_the_way_has_unions():
    assert any(cut.pieces for of in sequences("ring", "incremental", 4) for cut in of.cuts)
