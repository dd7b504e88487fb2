"""Cuts of rows by holders: those of one rank come first, and what is summed has bitmaps."""

from __future__ import annotations

import pytest

from tests.rank_ir.test_holders import VARIANTS, programs
from tests.support.shipped import plan_of_shipped
from zenc.codegen.sequence import holder_sequence
from zenc.codegen.statements import HolderSequence, Merge
from zenc.rank_ir.lower import lower


def holders_of(of: HolderSequence, cut: int) -> tuple[int, ...]:
    """Whose slots a cut has."""
    return tuple(of.cuts[piece].rank for piece in of.cuts[cut].pieces) or (of.cuts[cut].rank,)


@pytest.mark.parametrize(("communication", "aggregation"), VARIANTS)
def test_cuts_of_one_rank_come_first_and_what_is_summed_has_bitmaps(communication, aggregation):
    for of in map(holder_sequence, programs(communication, aggregation, 4)):
        several = [cut.rank < 0 for cut in of.cuts]
        assert several == sorted(several)
        assert all(cut.marked and len(cut.pieces) > 1 for cut in of.cuts if cut.rank < 0)
        assert all(of.cuts[piece].marked for cut in of.cuts for piece in cut.pieces)
        for merge in [each for phase in of.phases for each in phase.statements if isinstance(each, Merge)]:
            assert all(of.cuts[of.rows[number]].marked for number in (merge.result, *merge.segments))
        assert all(holders_of(of, of.rows[number]) == (part,) for part, number in enumerate(of.complete))


def test_an_owner_needs_no_unions():
    assert all(cut.rank >= 0 for cut in holder_sequence(lower(plan_of_shipped("holders"), 3, 1)).cuts)


def test_a_schedule_that_sums_on_the_way_has_unions():
    every = map(holder_sequence, programs("ring", "incremental", 4))
    assert any(cut.pieces for of in every for cut in of.cuts)
