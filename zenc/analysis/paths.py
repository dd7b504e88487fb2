"""The way of every move over a topology, or an error at the line of a move that has none.

    Routes = topology links (pair -> links)                 # for every pair of ranks that a plan sends between

A move is a message from one rank to another. Switches, NICs and CPUs on the way forward it; a rank never does, as
``zenc.topology.all_pairs`` has it: where a device is to pass something on, the schedule says so with a move of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from zenc.errors import Diagnostic, TopologyError
from zenc.plan.expressions import Ints
from zenc.plan.requirements import format_ranks
from zenc.plan.unroll import Rounds
from zenc.plurals import count
from zenc.topology.all_pairs import NO_ROUTE, Paths, RouteTable
from zenc.topology.model import Topology
from zenc.verify.provenance import named


@dataclass(frozen=True, slots=True)
class Routes:
    """``place[src, dst]`` is a pair's place in ``paths``, -1 for pairs that exchange nothing."""

    topology: Topology
    table: RouteTable
    place: Ints
    paths: Paths
    starts: Ints

    def over(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """The routes from ``src`` [k] to ``dst`` [k]: the pair and the link of each of their links, both [m]."""
        places = self.place[src, dst]
        lengths = self.paths.lengths[places]
        pair = np.repeat(np.arange(len(src)), lengths)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return pair, self.paths.links[self.starts[places][pair] + within]


def routes(rounds: Rounds, topology: Topology) -> Routes:
    """The ways of all moves of ``rounds``.

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
    table = RouteTable(topology)
    paths = table.paths(src, dst)
    place = np.full((size, size), -1, dtype=np.int64)
    place[src, dst] = np.arange(len(src))
    found = Routes(topology, table, place, paths, paths.starts)
    if (paths.counts == NO_ROUTE).any():
        raise TopologyError(_lacking(rounds, found))
    return found


def _lacking(rounds: Rounds, found: Routes) -> list[Diagnostic]:
    """One diagnostic for every statement with a move that has no way: the first such move."""
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
    """What ``src`` can do instead, and who can pass on to ``dst``; the nearest first."""
    everyone = np.arange(found.topology.size)
    forward = found.table.paths(np.full_like(everyone, src), everyone).counts
    onward = found.table.paths(everyone, np.full_like(everyone, dst)).counts
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
    """The ranks at the least number of links that is not nought."""
    candidates = [rank for rank in np.flatnonzero(counts > 0).tolist() if rank not in set(exclude)]
    least = min((int(counts[rank]) for rank in candidates), default=0)
    return [rank for rank in candidates if counts[rank] == least]
