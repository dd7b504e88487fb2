"""Link loads: the way of every move over a topology, and the expected bytes of every step on every link.

    LinkLoads = topology total[link] StepLoad*              # expected bytes of a call, headers included
    StepLoad  = phase number link bytes seconds moves crowd port_seconds
    Routes    = topology links (pair -> links)              # for every pair of ranks that a plan sends between

A move is a message from one rank to another. Switches, NICs and CPUs on the way forward it; a rank never does, as
``zenc.topology.all_pairs`` has it: where a device is to pass something on, the schedule says so with a move of its own.
A move that has no way is an error at its line.

Seconds are those that a link is busy at its full bandwidth, so the link with the most of them is the bottleneck. They
are no estimate of how long a step takes: latency, the ranks' own work and waits are left out.

Ports and crowds: a link that serves one sender or one receiver alone in a step is a port of that rank, and the rank's
bytes determine how long it is busy. A link that moves of several senders to several receivers share is a crowd. A step
is *contended* where a crowd is busy for longer than any port: then the network holds the ranks up, and another order or
place of the moves might be faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.common.wording import count
from zenc.errors import Diagnostic, TopologyError
from zenc.plan.expressions import Ints
from zenc.plan.ir import Phase
from zenc.plan.requirements import format_ranks
from zenc.plan.unroll import Rounds
from zenc.topology.all_pairs import NO_ROUTE, Paths
from zenc.topology.model import Topology
from zenc.verify.provenance import Deliveries, named

if TYPE_CHECKING:
    from zenc.topology.model import Link, Topology


CONTENDED = 1.05
"""The ratio to the busiest port's time from which on a busy crowd is worth a warning."""


@dataclass(frozen=True, slots=True)
class StepLoad:
    """The load of a step; ``link`` is its busiest link, with ``moves`` messages, ``line`` the statement of one of them.

    ``port_seconds``: how long the busiest port is busy; ``crowd``: whether ``link`` is shared, as the module describes.
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
        """Return whether the network holds the ranks up: a shared link is busy for longer than any port."""
        return self.crowd and self.seconds > CONTENDED * self.port_seconds


@dataclass(frozen=True, slots=True)
class LinkLoads:
    """Loads of all links: ``total[i]`` is the bytes that a call sends over ``links[i]`` of the topology."""

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
        """Return ``gpu(0, 1) -> nvswitch(0)``."""
        ends = self.links[link]
        return f"{self.topology.label(ends.source)} -> {self.topology.label(ends.target)}"

    def to_json(self) -> dict[str, Any]:
        """Return the loads as JSON data; links that carry nothing are left out."""
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
    """A measurement of all links while a plan is played: ``observe`` is called with every round."""

    def __init__(self, routes: Routes, expected: ExpectedBytes) -> None:
        self.routes, self.expected = routes, expected
        self.widths = np.array([link.bandwidth for link in routes.topology.links], dtype=np.float64)
        self.total = np.zeros(len(self.widths))
        self.steps: list[StepLoad] = []

    def observe(self, phase: Phase, number: int, moved: Deliveries) -> None:
        """Add the deliveries ``moved`` in step ``number`` of ``phase``."""
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
        """Return the loads of all steps so far."""
        return LinkLoads(self.routes.topology, self.total, tuple(self.steps))


def _shared(rank: npt.NDArray[np.int64], link: npt.NDArray[np.int64], links: int) -> npt.NDArray[np.bool_]:
    least, most = np.full(links, np.iinfo(np.int64).max), np.full(links, -1)
    np.minimum.at(least, link, rank)
    np.maximum.at(most, link, rank)
    return np.asarray(least < most)


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of a plan: ``place[src, dst]`` is a pair's place in ``paths``, -1 for pairs that exchange nothing."""

    topology: Topology
    place: Ints
    paths: Paths

    def over(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the routes from ``src`` [k] to ``dst`` [k]: the pair and the link of each of their links, both [m]."""
        return self.paths.over(self.place[src, dst])


def routes(rounds: Rounds, topology: Topology) -> Routes:
    """Return the routes of all moves of ``rounds``.

    Raises TopologyError: ``wrong-topology-size``, or ``no-route`` for every statement with a move that has no way.
    """
    size = rounds.size
    if size != topology.size:
        message = f"{topology.name} has {count(topology.size, 'rank')}, and the moves are {format_ranks(size)}"
        raise TopologyError(Diagnostic("wrong-topology-size", message))
    used = np.zeros((size, size), dtype=bool)
    for _, _, round_ in rounds:
        used[round_.src, round_.dst] = True
    src, dst = np.nonzero(used)
    paths = topology.routes.paths(src, dst)
    place = np.full((size, size), -1, dtype=np.int64)
    place[src, dst] = np.arange(len(src))
    found = Routes(topology, place, paths)
    if (paths.counts == NO_ROUTE).any():
        raise TopologyError(_lacking(rounds, found))
    return found


def _lacking(rounds: Rounds, found: Routes) -> list[Diagnostic]:
    """Return a diagnostic for every statement with a move that has no way: the first such move."""
    blamed: dict[int, Diagnostic] = {}
    for phase, number, round_ in rounds:
        lost = np.flatnonzero(found.paths.counts[found.place[round_.src, round_.dst]] == NO_ROUTE)
        for line in np.unique(round_.line[lost]).tolist():
            if line not in blamed:
                mine = lost[round_.line[lost] == line]
                src, dst = int(round_.src[mine[0]]), int(round_.dst[mine[0]])
                message = f"rank {src} has no way to rank {dst} on {found.topology.name} ({phase.name}, step {number})"
                notes, help = _alternatives(found, src, dst, len(mine) - 1)
                blamed[line] = Diagnostic("no-route", message, rounds.sends[line].span, notes, help)
    return list(blamed.values())


def _alternatives(found: Routes, src: int, dst: int, others: int) -> tuple[tuple[str, ...], str]:
    """Return alternatives for ``src``, and the ranks that can pass on to ``dst``; the nearest first."""
    everyone = np.arange(found.topology.size)
    forward = found.topology.routes.paths(np.full_like(everyone, src), everyone).counts
    onward = found.topology.routes.paths(everyone, np.full_like(everyone, dst)).counts
    reached = _nearest(forward, exclude=(src,))
    between = (forward > 0) & (onward > 0)
    relays = _nearest(np.where(between, forward + onward, NO_ROUTE), exclude=(src, dst))
    moves = f"{count(others, 'other move')} of this statement in this step {'has' if others == 1 else 'have'}"
    more = (f"{moves} no way either",) if others else ()
    notes = (f"the nearest that rank {src} reaches: {named(reached)}", *more, format_ranks(found.topology.size))
    if relays:
        return notes, f"ranks forward nothing by themselves: send to rank {relays[0]} first, which reaches rank {dst}"
    return notes, "ranks forward nothing by themselves: let the schedule pass it on, one move after another"


def _nearest(counts: Ints, exclude: Iterable[int]) -> list[int]:
    candidates = [rank for rank in np.flatnonzero(counts > 0).tolist() if rank not in set(exclude)]
    least = min((int(counts[rank]) for rank in candidates), default=0)
    return [rank for rank in candidates if counts[rank] == least]
