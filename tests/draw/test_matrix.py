"""Drawings of more than 16 ranks are matrices: every pair that a move joins has its mark, at its place."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.draw.test_scheme import HOSTILE, NAMESPACE, off_paper
from tests.support.fuzz import tried
from tests.support.pictures import marks_of, numbers, words
from tests.support.plans import plan_of
from tests.support.refusals import refusals
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.analysis.expected_bytes import expected_bytes
from zenc.api import draw as draw_file
from zenc.draw import steps
from zenc.draw.colour import ramp
from zenc.draw.matrix import MOST_RANKS, Flow, draw_matrix, flows_of, step_class
from zenc.draw.shown import StepRange
from zenc.errors import DrawingError
from zenc.gradients.spec import GradientSpec
from zenc.plan.requirements import allowed
from zenc.topology.shapes import nodes


def marks(panel: ElementTree.Element) -> set[tuple[int, int]]:
    """Return the pairs of sender and receiver that a panel marks."""
    square = next(rect for rect in panel.iter(f"{NAMESPACE}rect") if rect.get("class") == "node")
    left, top = float(square.get("x", "")), float(square.get("y", ""))
    rows = [group for group in panel.iter(f"{NAMESPACE}g") if group.get("class") == "from"]
    cell = float(square.get("width", "")) / len(rows)
    found = set()
    for row in rows:
        for path in row.iter(f"{NAMESPACE}path"):
            for x, y, side in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)", path.get("d", "")):
                middle = float(x) + float(side) / 2 - left, float(y) + float(side) / 2 - top
                found.add((int(middle[1] / cell), int(middle[0] / cell)))
                assert int(middle[1] / cell) == int(row.get("data-src", ""))
    return found


@pytest.mark.parametrize("scheme", SHIPPED)
@given(size=st.integers(2, 20))
@settings(max_examples=tried(3), deadline=None)
def test_each_pair_has_its_mark(scheme: str, size: int) -> None:
    plan = plan_of_shipped(scheme)
    assume(allowed(plan, [size]))
    flows = flows_of(plan, size)
    root = ElementTree.fromstring(draw_matrix(plan, flows).svg())
    assert off_paper(root) == []
    panels = [group for group in root.iter(f"{NAMESPACE}g") if group.get("class") == "panel"]
    assert [panel.get("data-phase") for panel in panels] == [flow.phase for flow in flows.flows]
    for flow, panel in zip(flows.flows, panels, strict=True):
        assert marks(panel) == set(flow.pairs())


@pytest.mark.parametrize("scheme", ["balanced", "holders", "sparcml"])
def test_flows_are_the_moves(scheme: str) -> None:
    plan = plan_of_shipped(scheme)
    flows, drawn = flows_of(plan, 8), steps.steps_of(plan, 8)
    assert (flows.moves, flows.drawn, flows.rounds) == (drawn.moves, drawn.drawn, drawn.rounds)
    for flow in flows.flows:
        mine = [step for step in drawn.steps if step.phase == flow.phase]
        assert set(flow.pairs()) == {(move.src, move.dst) for step in mine for move in step.moves}
        parts = 1 if flow.phase == "announce" else drawn.parts
        total = sum((move.last - move.first + 1) / parts for step in mine for move in step.moves)
        assert flow.shares.sum() == pytest.approx(total)
        for step in reversed(mine):
            assert all(flow.first[move.src, move.dst] <= step.number for move in step.moves)


def test_seventeen_ranks_are_a_matrix_and_sixteen_are_arrows() -> None:
    large, small = draw_file("balanced", steps.MOST_RANKS + 1), draw_file("balanced", steps.MOST_RANKS)
    assert marks_of(large.picture, "g", "panel") and not marks_of(small.picture, "g", "panel")
    assert large.words() == "balanced among 17 ranks, 544 moves in 2 steps"
    data: Any = large.to_json()
    push, pull = data["phases"]
    assert push["pairs"][0] == {"src": 0, "dst": 1, "share": pytest.approx(1 / 17), "first_step": 1}
    assert len(push["pairs"]) == len(pull["pairs"]) == 17 * 16


def test_steps_can_be_chosen_and_their_number_is_limited() -> None:
    plan = plan_of_shipped("sparcml")
    (flow,) = flows_of(plan, 32, StepRange("push", 2, 3)).flows
    assert (flow.steps, flow.moves, set(np.unique(flow.first))) == (2, 64, {0, 2, 3})
    assert refusals(DrawingError, flows_of, plan, 32, StepRange("push", 6))[0].id == "no-such-step"
    assert refusals(DrawingError, draw_file, "balanced", MOST_RANKS + 1)[0].id == "drawing-too-large"


def test_loads_colour_the_marks() -> None:
    plan, topology = plan_of_shipped("balanced"), nodes(5, gpus=4)
    flows = flows_of(plan, 20, None, topology, expected_bytes(plan, 20, GradientSpec(10_000, 8, "f32", 0.1)))
    push = flows.flows[0]
    assert push.seconds is not None and push.seconds.max() <= flows.limit
    assert push.seconds[0, 1] < push.seconds[0, 4], "inside a machine it is faster"
    picture = draw_matrix(plan, flows)
    colours = {cells.attributes["fill"] for cells in marks_of(marks_of(picture, "g", "panel")[0], "path")}
    assert len(colours) > 1 and colours <= set(ramp())
    assert any("busiest link of nodes" in text for text in words(picture))


def test_rows_say_what_they_send_and_text_of_a_user_is_escaped() -> None:
    plan = replace(plan_of_shipped("balanced"), scheme=HOSTILE, doc=HOSTILE)
    text = draw_matrix(plan, flows_of(plan, 17)).svg()
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    titles = [
        group.findtext(f"{NAMESPACE}title") for group in root.iter(f"{NAMESPACE}g") if group.get("class") == "from"
    ]
    assert titles[0] == "push: rank 0 sends 94.1 % of the tensor, in all, to 1 to 16"


def test_tiers_have_lines_between_their_groups() -> None:
    plan = plan_of_shipped("zen_cluster")
    (panel, *_) = marks_of(draw_matrix(plan, flows_of(plan, 24)), "g", "panel")
    left, side = numbers(panel.children[0], "x", "width")
    ends = [numbers(line, "x1", "x2") for line in marks_of(panel, "line", "rule")]
    assert sorted({(x - left) / side for x, other in ends if x == other}) == [8 / 24, 16 / 24]


def test_classes_of_steps() -> None:
    assert [step_class(number, 1) for number in (1,)] == [0]
    assert [step_class(number, 5) for number in range(1, 6)] == [0, 1, 2, 3, 4]
    assert step_class(254, 254) == 4 and step_class(1, 254) == 0


def test_a_flow_is_data() -> None:
    plan = plan_of(
        "scheme s { communication: ring aggregation: incremental partition: parallelism balance: imbalanced }"
    )
    flow: Flow = flows_of(plan, 17).flows[0]
    assert flow.steps == 16 and set(flow.pairs()) == {(rank, (rank + 1) % 17) for rank in range(17)}
    assert flow.shares.max() == pytest.approx(16 / 17)


def test_the_picture_in_the_manual_is_what_zenc_draws(assert_golden: Callable[[str, str], None]) -> None:
    assert_golden("../../docs/images/sparcml.svg", draw_file("sparcml", 32).svg())
