"""Requirements of a schedule: the numbers of ranks it allows, and the error for others."""

from __future__ import annotations

import json

import pytest

from tests.support.plans import DIRECT_PULL, DIRECT_PUSH, plan_of, plan_with
from zenc.errors import VerificationError
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import Plan
from zenc.plan.requirements import LARGEST_SOUGHT, allowed, nearest_allowed
from zenc.verify.proof import verify, verify_all

EVEN = 'require size mod 2 == 0 "ranks come in pairs"'


def requiring(text: str, *, pull: str = "", size: int | None = None) -> Plan:
    return plan_with(f"{text}\n{DIRECT_PUSH}", f"{pull}\n{DIRECT_PULL}", size)


def refused(plan: Plan, size: int) -> tuple[str, str, str, str | None]:
    """Return (message, note, place, help) of the only diagnostic, about an unmet requirement."""
    with pytest.raises(VerificationError) as caught:
        verify(plan, size)
    (found,) = caught.value.diagnostics
    assert found.id == "unmet-requirement" and found.span is not None and f"among {size} ranks" in found.notes
    return found.message, found.notes[0], f"{found.span.line}:{found.span.column}", found.help


def test_the_author_speaks_at_the_line_and_the_nearest_sizes_are_named():
    message, note, place, help = refused(requiring(EVEN), 7)
    assert (message, place) == ("ranks come in pairs", "3:9")
    assert note == "'size mod 2 == 0' does not hold where size is 7"
    assert help == "it holds for 6 and for 8 ranks"


def test_parameters_show_their_values():
    text = (
        'scheme mine(a, b = 2) { communication: schedule { push { let c = a * b require c == size "no" } pull { } }\n'
        "aggregation: incremental partition: centralization }"
    ).replace("(a,", "(a = 3,")
    _, note, _, help = refused(plan_of(text), 5)
    assert note == "'c == size' does not hold where c is 6 and size is 5"
    assert help == "it holds for 6 ranks"


def test_an_unpinned_plan_is_proved_for_the_sizes_it_allows():
    assert [proof.size for proof in verify_all(requiring(EVEN))] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [proof.size for proof in verify_all(requiring('require size mod 20 == 0 "twenty"'))] == [20]
    assert [proof.size for proof in verify_all(requiring("", pull=EVEN))] == [2, 4, 6, 8, 10, 12, 14, 16]


def test_what_no_size_meets_is_an_error():
    *_, help = refused(requiring('require size < 0 "never"'), 3)
    assert help == f"no number of ranks up to {LARGEST_SOUGHT:,} meets it: look at the parameters"
    with pytest.raises(VerificationError, match="never"):
        verify_all(requiring('require size < 0 "never"'))


def test_nothing_but_the_requirement_is_told():
    """A number of ranks that the schedule refuses has other faults too, which are not reported."""
    plan = plan_with(f"{EVEN}\nstep {{ send all to size }}", "step { send all to rank }")
    assert refused(plan, 3)[0] == "ranks come in pairs"


def test_in_branches_loops_and_steps():
    assert allowed(requiring(f"if size > 4 {{ {EVEN} }}"), range(1, 9)) == [1, 2, 3, 4, 6, 8]
    inside = requiring('for k in 1 .. size { require k < 5 "a short loop" }')
    assert allowed(inside, [9]) == [9], "a loop is not run to find out"
    with pytest.raises(VerificationError, match="a short loop"):
        verify(inside, 9)
    verify(inside, 4)
    with pytest.raises(VerificationError, match="rank 2 is one too many"):
        verify(requiring('step { require rank < 2 "rank 2 is one too many" }'), 3)


def test_a_message_may_be_left_empty():
    assert refused(requiring('require size == 4 ""'), 3)[0] == "what this schedule requires does not hold"


def test_a_rank_at_which_it_fails_is_named():
    _, note, _, _ = refused(requiring('require rank < 3 "few"'), 5)
    assert note == "'rank < 3' does not hold where rank is 3"


def test_other_errors_are_told_as_ever():
    with pytest.raises(VerificationError, match="divides by zero"):
        verify(requiring('require 4 / (size - 3) > 0 "x"'), 3)


def test_pinned_and_saved_plans_keep_it():
    for size in (None, 4, 5):
        plan = requiring(EVEN, size=size)
        again = plan_from_json(json.loads(plan.text()))
        assert again == plan and again.digest == plan.digest
    assert refused(again, 5)[3] == "it holds for 4 and for 6 ranks"


@pytest.mark.parametrize(
    ("condition", "nearest"),
    [("size > 0", 4), ("size mod 2 == 1", 3), ("size == 16", 16), ("size > 100", 101), ("size == 1", 1), ("0", 4)],
)
def test_the_nearest_number_of_ranks(condition: str, nearest: int) -> None:
    assert nearest_allowed(requiring(f'require {condition} "some"'), 4) == nearest
