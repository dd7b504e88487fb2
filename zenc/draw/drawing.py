"""The picture of a scheme: each move as an arrow, or among many ranks a matrix of who sends to whom."""

from __future__ import annotations

from dataclasses import dataclass

from zenc.analysis.expected_bytes import expected_bytes
from zenc.draw.flows import Flows, flows_of
from zenc.draw.matrix import draw_matrix
from zenc.draw.picture import MatrixPicture, SchedulePicture
from zenc.draw.render import svg
from zenc.draw.scheme import draw
from zenc.draw.steps import MOST_RANKS, StepRange, Steps, steps_of
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plurals import count
from zenc.topology.model import Topology


@dataclass(frozen=True, slots=True)
class Drawing:
    """A scheme's picture; ``steps`` is what it shows: each move, or among many ranks who sends to whom."""

    plan: Plan
    steps: Steps | Flows
    picture: SchedulePicture | MatrixPicture

    def svg(self) -> str:
        """The text of an SVG file, which needs no other file, font or script."""
        return svg(self.picture)

    def words(self) -> str:
        """The subject of the drawing, in a line."""
        return f"{self.picture.title}, {count(self.steps.moves, 'move')} in {count(self.steps.drawn, 'step')}"

    def to_json(self) -> dict[str, object]:
        """The moves of the drawing, as JSON data."""
        return {"scheme": self.plan.scheme, "digest": self.plan.digest, **self.steps.to_json()}


def picture_of(plan: Plan, ranks: int, chosen: StepRange, topology: Topology | None, gradient: GradientSpec) -> Drawing:
    """The ``chosen`` steps of ``plan`` among ``ranks``; with a ``topology`` the loads that ``gradient`` puts on it."""
    expected = expected_bytes(plan, ranks, gradient) if topology else None
    if ranks > MOST_RANKS:
        flows = flows_of(plan, ranks, chosen, topology, expected)
        return Drawing(plan, flows, draw_matrix(plan, flows))
    shown = steps_of(plan, ranks, chosen, topology, expected)
    return Drawing(plan, shown, draw(plan, shown))
