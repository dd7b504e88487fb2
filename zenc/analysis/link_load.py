"""Link loads: the expected bytes of each step of a plan, and of all steps, on every link.

    LinkLoads = topology total[link] StepLoad*              # expected bytes of a call, headers included
    StepLoad  = phase number link bytes seconds moves crowd port_seconds

Seconds are those that a link is busy at its full bandwidth, so the link with the most of them is the bottleneck. They
are no estimate of how long a step takes: latency, the ranks' own work and what waits for what are left out.

Ports and crowds: a link that serves one sender or one receiver alone in a step is a port of that rank, and how long it
is busy is given by what the rank moves. A link that moves of several senders to several receivers share is a crowd. A
step is *contended* where a crowd is busy for longer than any port: then the network holds the ranks up, and another
order or place of the moves might be faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.plan.ir import Phase
from zenc.verify.provenance import Deliveries

if TYPE_CHECKING:
    from zenc.analysis.paths import Routes
    from zenc.topology.model import Link, Topology

CONTENDED = 1.05
"""A crowd that is busy so much longer than the busiest port is worth a warning."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """``link`` is the busiest one of the step, with ``moves`` messages; ``line`` is the statement of one of them.

    ``port_seconds``: how long the busiest port is; ``crowd``: whether ``link`` is shared, see above.
    """

    phase: str
    number: int
    link: int
    bytes: float
    seconds: float
    moves: int
    crowd: bool
    port_seconds: float
    line: int

    @property
    def contended(self) -> bool:
        """Whether the network holds the ranks up: a shared link is busy for longer than any port."""
        return self.crowd and self.seconds > CONTENDED * self.port_seconds


@dataclass(frozen=True, slots=True)
class LinkLoads:
    """``total[i]`` is the bytes that a call sends over ``links[i]`` of the topology."""

    topology: Topology
    total: npt.NDArray[np.float64]
    steps: tuple[StepLoad, ...]

    @property
    def links(self) -> tuple[Link, ...]:
        """The links of the topology, in its order."""
        return self.topology.links

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """The seconds [links] that each link is busy in a call."""
        widths = np.array([link.bandwidth for link in self.links], dtype=np.float64)
        return np.asarray(self.total / widths) if len(widths) else self.total

    @property
    def bottleneck(self) -> int | None:
        """The link that is busy for longest; None where nothing is sent."""
        return int(self.seconds.argmax()) if self.total.any() else None

    def name(self, link: int) -> str:
        """``gpu(0, 1) -> nvswitch(0)``."""
        ends = self.links[link]
        return f"{self.topology.label(ends.source)} -> {self.topology.label(ends.target)}"

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON data; links that carry nothing are left out."""
        seconds = self.seconds
        used = np.flatnonzero(self.total > 0).tolist()
        return {
            "topology": self.topology.name,
            "bottleneck": None if self.bottleneck is None else self.name(self.bottleneck),
            "links": [
                {
                    "source": self.topology.label(self.links[i].source),
                    "target": self.topology.label(self.links[i].target),
                    "bandwidth": self.links[i].bandwidth,
                    "bytes": round(float(self.total[i])),
                    "busy_seconds": float(seconds[i]),
                }
                for i in used
            ],
            "steps": [
                {
                    "phase": step.phase,
                    "number": step.number,
                    "busiest_link": self.name(step.link),
                    "bytes": round(step.bytes),
                    "busy_seconds": step.seconds,
                    "moves": step.moves,
                    "contended": step.contended,
                }
                for step in self.steps
            ],
        }


class LinkLoadObserver:
    """Measures the load of all links while a plan is played: ``observe`` is told of every round."""

    def __init__(self, routes: Routes, expected: ExpectedBytes) -> None:
        self.routes, self.expected = routes, expected
        self.widths = np.array([link.bandwidth for link in routes.topology.links], dtype=np.float64)
        self.total = np.zeros(len(self.widths))
        self.steps: list[StepLoad] = []

    def observe(self, phase: Phase, number: int, moved: Deliveries) -> None:
        """Add what moved in step ``number`` of ``phase``."""
        size = self.routes.topology.size
        pairs, first, inverse = np.unique(moved.src * size + moved.dst, return_index=True, return_inverse=True)
        weights = self.expected.delivered(phase, moved, inverse.reshape(-1), len(pairs))
        src, dst = np.divmod(pairs, size)
        pair, link = self.routes.over(src, dst)
        loads = np.bincount(link, weights[pair], minlength=len(self.widths))
        self.total += loads
        crowds = _shared(src[pair], link, len(loads)) & _shared(dst[pair], link, len(loads))
        busy = loads / self.widths
        worst = int(busy.argmax())
        ports = float(busy[~crowds].max(initial=0.0))
        on = pair[link == worst]
        line = int(moved.line[first[on[0]]])
        load = (worst, float(loads[worst]), float(busy[worst]), len(on), bool(crowds[worst]))
        self.steps.append(StepLoad(phase.name, number, *load, ports, line))

    def loads(self) -> LinkLoads:
        """The loads of all steps so far."""
        return LinkLoads(self.routes.topology, self.total, tuple(self.steps))


def _shared(rank: npt.NDArray[np.int64], link: npt.NDArray[np.int64], links: int) -> npt.NDArray[np.bool_]:
    """Of each link, whether several of the ranks are on it."""
    least, most = np.full(links, np.iinfo(np.int64).max), np.full(links, -1)
    np.minimum.at(least, link, rank)
    np.maximum.at(most, link, rank)
    return np.asarray(least < most)
