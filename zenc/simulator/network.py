"""Links that messages take, those of a topology or of one switch that holds nobody up; and the rates of flows on them.

    Network = name size bandwidths latencies               # of its links, [links]

On the switch each rank has a link of its own into it, and one out of it: the first ``size`` links, and the others.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from zenc.errors import Diagnostic, TopologyError
from zenc.plan.expressions import Ints
from zenc.topology.all_pairs import NO_ROUTE, Paths
from zenc.topology.model import RANK, Topology

Floats = npt.NDArray[np.float64]


MOST_KEPT = 1024
"""Most ranks for which the routes of all pairs are found once and kept."""


class Switch:
    """A switch of ``size`` ranks; ``bandwidth`` in bytes a second each way, ``latency`` in seconds."""

    flat = True

    def __init__(self, size: int, bandwidth: float, latency: float = 0.0, name: str = "one switch") -> None:
        self.size, self.name = size, name
        self.bandwidths: Floats = np.full(2 * size, bandwidth)
        self.latencies: Floats = np.full(2 * size, latency)

    def over(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the routes from ``src`` [k] to ``dst`` [k]: pair and link of each of their links, [2 k] each."""
        pair = np.repeat(np.arange(len(src)), 2)
        link = np.empty(2 * len(src), dtype=np.int64)
        link[::2], link[1::2] = src, dst + self.size
        return pair, link

    def label(self, link: int) -> str:
        """Return ``rank 3 -> switch`` or ``switch -> rank 3``."""
        rank = link % self.size
        return f"rank {rank} -> switch" if link < self.size else f"switch -> rank {rank}"


class Cluster:
    """The links of a topology, by its routes."""

    flat = False

    def __init__(self, topology: Topology) -> None:
        self.topology, self.name, self.size = topology, topology.name, topology.size
        self.bandwidths = np.array([link.bandwidth for link in topology.links], dtype=np.float64)
        self.latencies = np.array([link.latency for link in topology.links], dtype=np.float64)

    def over(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return routes from ``src`` [k] to ``dst`` [k] as a Switch does, both [m].

        Raises TopologyError (``no-route``).
        """
        wanted = src * self.size + dst
        if len(src) > self.size and self.size <= MOST_KEPT:
            paths, index = self._every, wanted
        else:
            pairs, index = np.unique(wanted, return_inverse=True)
            paths = self.topology.routes.paths(*np.divmod(pairs, self.size))
        counts = paths.counts[index]
        if (counts == NO_ROUTE).any():
            source, target = divmod(int(wanted[np.argmax(counts == NO_ROUTE)]), self.size)
            message = f"rank {source} has no way to rank {target} on {self.name}"
            help = "ranks forward nothing by themselves; zenc check --topology shows the line of the move"
            raise TopologyError(Diagnostic("no-route", message, help=help))
        return paths.over(index)

    @cached_property
    def _every(self) -> Paths:
        """The routes of all pairs, for many plans."""
        return self.topology.routes.paths(*np.divmod(np.arange(self.size**2), self.size))

    def label(self, link: int) -> str:
        """Return the names of both ends: ``gpu(0, 0) -> nvswitch``."""
        ends = self.topology.links[link]
        return f"{self.topology.label(ends.source)} -> {self.topology.label(ends.target)}"


Network: TypeAlias = Switch | Cluster
"""Links with bandwidths and latencies [links], and the routes over them."""


def star_of(topology: Topology) -> Switch | None:
    """Return ``topology`` as a switch, where all ranks are on one, and by equal links; otherwise None."""
    if len(topology.switches) != 1 or topology.size < 2:
        return None
    links = topology.links
    kinds = {(link.bandwidth, link.latency) for link in links}
    ends = {frozenset((topology.kind(link.source) == RANK, topology.kind(link.target) == RANK)) for link in links}
    if len(kinds) != 1 or ends != {frozenset((True, False))} or len(links) != 2 * topology.size:
        return None
    ((bandwidth, latency),) = kinds
    return Switch(topology.size, bandwidth, latency, topology.name)


def fair_rates(
    flow: Ints, link: Ints, times: Floats, flows: int, bandwidths: Floats, alike: float = 1 + 1e-9
) -> Floats:
    """Return the rate of each of ``flows`` flows, [flows].

    Flow ``flow[i]`` loads ``link[i]`` ``times[i]`` over, of ``bandwidths`` [links]. A flow without links has no bound.
    Links are full at once where no flow on them has another with less for it, by more than ``alike`` times.
    """
    rates, left, links = np.full(flows, np.inf), bandwidths.copy(), len(bandwidths)
    order = np.argsort(flow, kind="stable")
    flow, link, times = flow[order], link[order], times[order]
    while len(flow):
        load = np.bincount(link, times, minlength=links)
        share = np.divide(left, load, out=np.full(links, np.inf), where=load > 0)[link]
        first = np.flatnonzero(np.r_[True, flow[1:] != flow[:-1]])
        lowest = np.repeat(np.minimum.reduceat(share, first), np.diff(np.r_[first, len(flow)]))
        full, found = np.ones(links, dtype=bool), np.zeros(flows, dtype=bool)
        full[link[share > lowest * alike]] = False
        found[flow[full[link]]] = True
        on = found[flow]
        rates[flow[on]] = lowest[on]
        left = np.maximum(left - np.bincount(link[on], times[on] * lowest[on], minlength=links), 0.0)
        flow, link, times = flow[~on], link[~on], times[~on]
    return rates
