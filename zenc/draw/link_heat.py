"""The load of the links on the way of every move, for the colours of a drawing.

Heat = limit (phase, number, src, dst) -> LinkHeat        # in seconds; limit is the greatest of all steps
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zenc.analysis.link_load import LinkLoadObserver, Routes
from zenc.plan.ir import Phase
from zenc.verify.provenance import Deliveries


@dataclass(frozen=True, slots=True)
class LinkHeat:
    """The busiest link on the way of a message, in its step, and for how many seconds it is busy."""

    link: str
    seconds: float


@dataclass(slots=True)
class Heat:
    """Fills up while a plan is played and ``observe`` is told of every round."""

    routes: Routes
    meter: LinkLoadObserver
    of: dict[tuple[str, int, int, int], LinkHeat] = field(default_factory=dict)

    @property
    def limit(self) -> float:
        """The most seconds of any move: what the hottest colour stands for; 0 before any round."""
        return max((heat.seconds for heat in self.of.values()), default=0.0)

    def observe(self, phase: Phase, number: int, moved: Deliveries) -> None:
        """Take what moved in round ``number`` of ``phase``."""
        before = self.meter.total.copy()
        self.meter.observe(phase, number, moved)
        busy = (self.meter.total - before) / self.meter.widths
        size, loads = self.routes.topology.size, self.meter.loads()
        src, dst = np.divmod(np.unique(moved.src * size + moved.dst), size)
        pair, link = self.routes.over(src, dst)
        for i, (one, other) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
            mine = link[pair == i]
            worst = int(mine[busy[mine].argmax()])
            self.of[phase.name, number, one, other] = LinkHeat(loads.name(worst), float(busy[worst]))
