"""Plans of schemes: lowered, as golden JSON, and executed by a reader that knows docs/internals/plan.md alone."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zenc
from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.plans import DIRECT_PULL, DIRECT_PUSH, plan_of, plan_with
from tests.support.refusals import refusals
from tests.support.shipped import ALL
from zenc.api import compile
from zenc.errors import VerificationError
from zenc.language.parse import parse_expression
from zenc.language.schedule import Block, For, If, Send, Step
from zenc.plan.expressions import Scope
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import PhaseKind, Plan
from zenc.plan.lower import LARGEST_SIZE, partial_eval
from zenc.plan.requirements import LARGEST_SOUGHT, allowed, nearest_allowed
from zenc.plan.unroll import expand
from zenc.verify.proof import verify, verify_all

ONE = "partition: centralization"
CUT = "partition: parallelism balance: imbalanced"


def kinds(block: Block) -> list[str]:
    """Return the class names of the statements of a block, nested ones included."""
    found = []
    for statement in block:
        found.append(type(statement).__name__)
        match statement:
            case For(body=body) | Step(body=body):
                found += kinds(body)
            case If(then=then, otherwise=otherwise):
                found += [*kinds(then), *kinds(otherwise)]
    return found


def settled(text: str, **known: int) -> int | None:
    import numpy as np

    return partial_eval(parse_expression(text), Scope(np.zeros(1, dtype=np.int64), known))


@pytest.mark.parametrize(
    ("text", "known", "value"),
    [
        ("parts == 1", {"parts": 1}, 1), ("parts > 1", {"parts": 1}, 0), ("not one_shot", {"one_shot": 0}, 1),
        ("size / 2 + 1", {"size": 7}, 4), ("max(log2(size), 2)", {"size": 1024}, 10), ("parts > 1", {}, None),
        ("parts > 1 and one_shot", {"one_shot": 0}, 0), ("one_shot and parts > 1", {"one_shot": 0}, 0),
        ("one_shot and parts > 1", {"one_shot": 1}, None), ("parts > 1 or one_shot", {"one_shot": 1}, 1),
        ("parts > 1 or one_shot", {"one_shot": 0}, None), ("rank == 0 or one_shot", {"one_shot": 1}, 1),
        ("1 / (parts - 1)", {"parts": 1}, None), ("one_shot and 1 / (parts - 1)", {"parts": 1, "one_shot": 0}, 0),
        ("-parts", {"parts": 3}, -3), ("2", {}, 2),
    ],
)  # fmt: skip
def test_what_names_decide(text, known, value):
    assert settled(text, **known) == value


def test_patterns_lose_the_branches_that_cannot_run():
    for communication in ("ring", "hierarchy", "point_to_point"):
        for cut in (ONE, CUT):
            plan = plan_of(scheme_text(communication, "incremental", cut), size=8)
            assert "If" not in kinds(plan.of(PhaseKind.PUSH)[0].block) + kinds(plan.of(PhaseKind.PULL)[0].block)


def test_centralization_is_known_without_a_size():
    plan = plan_of(scheme_text("point_to_point", "incremental", ONE))
    (step,) = plan.of(PhaseKind.PUSH)[0].block
    assert isinstance(step, Step) and kinds(step.body) == ["For", "Send"]
    assert plan.of(PhaseKind.PULL)[0].block == ()


def test_a_size_is_needed_to_settle_what_depends_on_parts():
    """A single rank has one part under parallelism too, so the condition stays in a plan for any number."""
    unpinned = plan_of(scheme_text("point_to_point", "incremental", CUT))
    assert "If" in kinds(unpinned.of(PhaseKind.PUSH)[0].block)
    pinned = plan_of(scheme_text("point_to_point", "incremental", CUT), size=4)
    assert "If" not in kinds(pinned.of(PhaseKind.PUSH)[0].block)


def test_one_shot_settles_the_ring():
    for aggregation, forwards in (("one_shot", True), ("incremental", False)):
        plan = plan_of(scheme_text("ring", aggregation, ONE))
        (loop,) = plan.of(PhaseKind.PUSH)[0].block
        assert isinstance(loop, For)
        (step,) = loop.body
        assert isinstance(step, Step)
        (send,) = step.body
        assert isinstance(send, Send) and (send.origin is not None) == forwards


def test_conditions_of_ranks_stay():
    plan = plan_with("if rank == 0 { step { send all to 1 } } else { step { send all to 0 } }", "", size=2)
    assert kinds(plan.of(PhaseKind.PUSH)[0].block) == ["If", "Step", "Send", "Step", "Send"]


def test_empty_blocks_are_dropped_with_what_holds_them():
    push = "for s in 0 .. 3 { step { if one_shot { send all to 0 } } }\nlet k = 1\n" + DIRECT_PUSH
    assert kinds(plan_with(push, DIRECT_PULL).of(PhaseKind.PUSH)[0].block) == ["Let", "Step", "For", "Send"]


def test_a_condition_that_fails_is_left_for_the_proof():
    plan = plan_with("if 1 / (size - 2) > 0 { step { send all to 0 where rank == 9 } }", "", size=2)
    assert kinds(plan.of(PhaseKind.PUSH)[0].block)[0] == "If"
    with pytest.raises(VerificationError, match="division-by-zero"):
        expand(plan, 2)


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_settling_changes_no_move(combination):
    """Pinned or not, the same ranks send the same parts in the same rounds."""
    for size in (1, 2, 3, 6, 8):
        text = scheme_text(*combination)
        pinned, free = expand(plan_of(text, size), size), expand(plan_of(text), size)
        for (_, _, a), (_, _, b) in zip(pinned, free, strict=True):
            for column in ("src", "dst", "first", "last", "origin"):
                assert getattr(a, column).tolist() == getattr(b, column).tolist()


@pytest.mark.parametrize("size", [0, -1, LARGEST_SIZE + 1])
def test_sizes_that_cannot_be(size):
    with pytest.raises(VerificationError, match="bad-size"):
        plan_of(scheme_text("ring", "incremental", CUT), size)


def test_a_pinned_plan_is_proved_for_its_size_alone():
    assert [proof.size for proof in verify_all(plan_of(scheme_text("ring", "incremental", CUT), 5))] == [5]


@pytest.mark.one_in(1)
@pytest.mark.parametrize("scheme", ALL)
def test_plan(scheme: str, assert_golden: Callable[[str, str], None]) -> None:
    assert_golden(f"{scheme}.plan.json", compile(scheme).plan.text())


Sends = list[tuple[int, int]]
"""Sent parts with their receivers."""


def value(text: str, names: dict[str, int]) -> int:
    """Evaluate an expression of ``balanced``, whose operators are those of Python but for two."""
    return int(eval(re.sub(r"\bmod\b", "%", text).replace("/", "//"), {}, names))


def moves(block: list[dict[str, Any]], names: dict[str, int]) -> Iterator[Sends]:
    for item in block:
        if "step" in item:
            yield [move for send in moves(item["step"], names) for move in send]
        elif "for" in item:
            for i in range(value(item["from"], names), value(item["to"], names) + 1):
                yield from moves(item["do"], {**names, item["for"]: i})
        elif "if" in item:
            yield from moves(item["then"] if value(item["if"], names) else item["else"], names)
        else:
            which = item["send"].partition(" ")[2]
            chosen = range(names["parts"]) if item["send"] == "all" else [value(which, names)]
            yield [(part, value(item["to"], names)) for part in chosen]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_balanced_by_hand(size: int) -> None:
    plan = zenc.compile("balanced", target="plan").plan.to_json()
    held = [[f"{part}{'abcde'[rank]}" for part in range(size)] for rank in range(size)]
    sums = [" + ".join(f"{part}{letter}" for letter in "abcde"[:size]) for part in range(size)]
    for phase, (described,) in (("push", plan["pushes"]), ("pull", plan["pulls"])):
        names = {"size": size, "parts": size}
        of_rank = [list(moves(described["moves"], {"rank": rank, **names})) for rank in range(size)]
        for step in zip(*of_rank, strict=True):
            before = [list(row) for row in held]
            for rank in range(size):
                arriving = [(source, part) for source in range(size) for part, to in step[source] if to == rank]
                for part in {part for _, part in arriving}:
                    holders = [source for source, other in arriving if other == part] + [rank] * (phase == "push")
                    held[rank][part] = " + ".join(before[holder][part] for holder in sorted(holders))
        if phase == "push":
            assert [held[rank][rank] for rank in range(size)] == sums
    assert held == [sums] * size


EVEN = 'require size mod 2 == 0 "ranks come in pairs"'


def requiring(text: str, *, pull: str = "", size: int | None = None) -> Plan:
    return plan_with(f"{text}\n{DIRECT_PUSH}", f"{pull}\n{DIRECT_PULL}", size)


def refused(plan: Plan, size: int) -> tuple[str, str, str, str | None]:
    """Return (message, note, place, help) of the only diagnostic, about an unmet requirement."""
    (found,) = refusals(VerificationError, verify, plan, size)
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
