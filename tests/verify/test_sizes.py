"""Schemes that are right for some numbers of ranks only: the advice to their author, and that it helps."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.plans import DIRECT_PULL, DIRECT_PUSH, plan_with
from zenc.errors import Diagnostic, Source, Span, VerificationError
from zenc.language.parse import parse_expression
from zenc.plan.expressions import condition, scope_of
from zenc.verify.proof import UNPINNED_SIZES, verify_all
from zenc.verify.survey import fitting, survey

SIX = "step { for d in 1 .. 5 { send part (rank + d) mod 6 to (rank + d) mod 6 } }"
SIX_PULL = "step { for d in 1 .. 5 { send part rank to (rank + d) mod 6 } }"
PAIRS = "for s in 0 .. log2(size) - 1 { step { send all to rank ^ (1 << s) } }"


def refused(push: str, pull: str, **more: str) -> Diagnostic:
    with pytest.raises(VerificationError) as caught:
        verify_all(plan_with(push, pull, **more))
    return caught.value.diagnostics[0]


def test_a_scheme_for_six_ranks_is_told_at_two_and_what_to_require() -> None:
    found = refused(SIX, SIX_PULL)
    assert found.notes[:2] == ("in the push, among 2 ranks", "of 1 to 16 ranks it is right for 6")
    assert found.help is not None and 'require size == 6 "made for 6 ranks"' in found.help


def test_with_the_advice_it_is_proved() -> None:
    advice = re.search(r"require .*", refused(SIX, SIX_PULL).help or "")
    assert advice
    proofs = verify_all(plan_with(f"{advice[0]}\n{SIX}", f"{advice[0]}\n{SIX_PULL}"))
    assert [proof.size for proof in proofs] == [6]


def test_powers_of_two_are_told_as_such() -> None:
    found = refused(PAIRS, "", parts="partition: centralization")
    assert "among 3 ranks" in found.notes[0] and "1, 2, 4, 8 and 16" in found.notes[1]
    assert found.help is not None and "require size & (size - 1) == 0 " in found.help


def test_one_rank_is_shown_where_no_other_fails() -> None:
    found = refused(f"{DIRECT_PUSH}\nstep {{ send part 0 to 1 where size == 1 }}", DIRECT_PULL)
    assert "for 1 rank alone" in found.notes[0] and "right for 2 to 16" in found.notes[1]


def test_where_nothing_is_right_it_is_shown_at_two_ranks() -> None:
    found = refused("", "")
    note = "it is wrong for each of 1 to 16 ranks; if it is for more, check it with --ranks"
    assert found.notes[1:] == ("among 2 ranks", note)
    assert "sent from there to no rank in the push" in found.notes[0]


def test_the_survey_ends_where_a_schedule_is_too_long() -> None:
    asked: list[int] = []

    def prove(size: int) -> int:
        asked.append(size)
        raise VerificationError(Diagnostic("schedule-too-long", "long", Span(Source("t", "x"), 0, 1)))

    with pytest.raises(VerificationError):
        survey(UNPINNED_SIZES, prove)
    assert asked == [1]


@given(st.sets(st.sampled_from(UNPINNED_SIZES), min_size=1))
def test_a_condition_holds_for_those_sizes_and_no_others(right: set[int]) -> None:
    found = fitting(sorted(right), UNPINNED_SIZES)
    if found is not None:
        tree = parse_expression(found.text)
        assert {n for n in UNPINNED_SIZES if condition(tree, scope_of(n, n, False)).all()} == right
    else:
        assert len(right) > 6


@pytest.mark.parametrize(
    ("right", "text"),
    [
        ([6], "size == 6"),
        (range(2, 17), "size > 1"),
        (range(1, 5), "size < 5"),
        ([1, 2, 4, 8, 16], "size & (size - 1) == 0"),
        ([2, 4, 8, 16], "size > 1 and size & (size - 1) == 0"),
        (range(2, 17, 2), "size mod 2 == 0"),
        (range(1, 17, 2), "size mod 2 == 1"),
        (range(3, 9), "size > 2 and size < 9"),
        ([2, 6, 7], "size == 2 or size == 6 or size == 7"),
        ([n for n in UNPINNED_SIZES if n not in (5, 11)], "size != 5 and size != 11"),
        ([1, 3, 4, 6, 7, 8, 12, 13], None),
    ],
)
def test_the_simplest_condition_is_found(right: list[int], text: str | None) -> None:
    found = fitting(right, UNPINNED_SIZES)
    assert (found and found.text) == text
