"""The clock: the end of each step of a call, where messages share links fairly and ranks wait for their data.

A rank enters a step when it has received and sent all of the one before, and has merged the received pieces; some time
later it is ready. A message flows when its sender and its receiver are ready in the same step, at its max-min fair rate
among all that flow; rates change when a message starts or ends, and at no other time. It has left its sender when its
rest fits in the buffers of the connection: then it shares the links with the sender's next messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from zenc.plan.expressions import Ints
from zenc.simulator.network import fair_rates
from zenc.simulator.symmetry import ClassProgram

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SimulatedSpan:
    """Ranks of class ``rank`` in a stage: ``ready`` for messages, done with them at ``sent``, merging to ``end``."""

    rank: int
    stage: int
    start: float
    ready: float
    sent: float
    end: float


@dataclass(slots=True)
class Costs:
    """Seconds of a rank in each stage, arrays [classes]: before it is ready, while messages flow, and after."""

    before: list[Floats]
    beside: list[Floats]
    after: list[Floats]
    loads: list[Floats]
    """Bytes of each flow that the network has to carry: [flows] of each stage."""
    delays: list[Floats]
    """Seconds from the end of a flow to its arrival, [flows] of each stage."""
    start: Floats
    """The time at which each rank begins."""
    buffer: float = 0.0
    """Bytes of a message that are left when its sender goes on."""


@dataclass(slots=True)
class Clock:
    """The simulated times: ``ends`` [classes] are those of each rank's last step.

    ``spans`` are kept only where asked for.

    ``since`` and ``until`` [stages]: when the first rank enters each, and the last one leaves it.
    """

    ends: Floats
    since: Floats
    until: Floats
    events: int = 0
    spans: list[SimulatedSpan] = field(default_factory=list)


def run(of: ClassProgram, costs: Costs, bandwidths: Floats, tolerance: float = 1e-9, trace: bool = False) -> Clock:
    """Simulate ``of`` on links of ``bandwidths`` [classes of links], bytes a second.

    Flows that end within the share ``tolerance`` of a step's time free their links at the mean of their ends; what they
    carry arrives at the end of each.
    """
    return _Run(of, costs, bandwidths, tolerance, trace).clock()


class _Run:
    """The state between events: each rank's stage, and the rests of the flows under way."""

    def __init__(self, of: ClassProgram, costs: Costs, bandwidths: Floats, tolerance: float, trace: bool) -> None:
        self.of, self.costs, self.bandwidths, self.tolerance, self.trace = of, costs, bandwidths, tolerance, trace
        ranks = len(of.sizes)
        self.order = _orders(of, ranks)
        self.place = np.zeros(ranks, dtype=np.int64)
        self.now = 0.0
        self.started = costs.start.copy()
        self.entering = np.full(ranks, np.inf)
        self.ready = np.full((ranks), np.inf)
        self.arrived = np.zeros(ranks)
        self.left = np.zeros(ranks, dtype=np.int64)
        self.waiting: dict[int, npt.NDArray[np.bool_]] = {}
        self.degrees: dict[int, Ints] = {}
        self.is_in = np.full(ranks, -1)
        stages = len(of.stages)
        self.found = Clock(costs.start.copy(), np.full(stages, np.inf), np.zeros(stages))
        self.stage_of, self.flow_of = np.zeros((2, 0), dtype=np.int64)
        self.held = np.zeros(0, dtype=bool)  # flows that their senders wait for
        self.rest, self.rate, self.since = np.zeros((3, 0))
        for rank in range(ranks):
            self._go(rank, float(costs.start[rank]))

    def clock(self) -> Clock:
        while True:
            at = min(float(self.entering.min(initial=np.inf)), self._next_end())
            if at == np.inf:
                return self.found
            self.found.events += 1
            self.rest = self.rest - self.rate * (at - self.now)
            self.now = at
            changed = self._finish()
            changed = self._enter() or changed
            if changed:
                self._share()

    def _next_end(self) -> float:
        if not len(self.rest):
            return np.inf
        until = np.where(self.held, np.maximum(self.rest - self.costs.buffer, 0.0), self.rest)
        ends = until / self.rate
        last = ends.min() * (1 + self.tolerance) + self.tolerance * (self.now - self.since)
        return self.now + float(ends[ends <= last].mean())

    def _finish(self) -> bool:
        """Remove the flows that end now, and let their last ranks go on; return whether there were any."""
        if not len(self.rest):
            return False
        slack = np.maximum(self.tolerance / 2 * (self.now - self.since), 4 * np.spacing(self.now))
        ends = self.rest / self.rate  # 4 spacings are what the clock tells apart
        done = ends <= slack
        left = self.held & (self.rest - self.costs.buffer <= self.rate * slack)
        for place in np.flatnonzero(done | left).tolist():
            stage, flow = int(self.stage_of[place]), int(self.flow_of[place])
            of = self.of.stages[stage]
            arrival = self.now + float(ends[place] + self.costs.delays[stage][flow])
            if left[place]:
                self._end_of(int(of.src[flow]), stage, arrival if done[place] else self.now)
            if done[place]:
                self._end_of(int(of.dst[flow]), stage, arrival)
        if not done.any():
            self.held &= ~left
            return False
        keep = ~done
        self.held = (self.held & ~left)[keep]
        self.stage_of, self.flow_of = self.stage_of[keep], self.flow_of[keep]
        self.rest, self.rate, self.since = self.rest[keep], self.rate[keep], self.since[keep]
        return True

    def _end_of(self, rank: int, stage: int, at: float) -> None:
        self.left[rank] -= 1
        self.arrived[rank] = max(self.arrived[rank], at)
        if not self.left[rank]:
            self._leave(rank, stage)

    def _leave(self, rank: int, stage: int) -> None:
        beside = float(self.ready[rank]) + float(self.costs.beside[stage][rank])
        sent = max(float(self.arrived[rank]), beside)
        end = sent + float(self.costs.after[stage][rank])
        if self.trace:
            times = float(self.started[rank]), float(self.ready[rank]), sent, end
            self.found.spans.append(SimulatedSpan(rank, stage, *times))
        self.found.since[stage] = min(self.found.since[stage], self.started[rank])
        self.found.until[stage] = max(self.found.until[stage], end)
        self.is_in[rank] = -1
        self.place[rank] += 1
        self._go(rank, end)

    def _go(self, rank: int, at: float) -> None:
        self.found.ends[rank] = at
        order = self.order[rank]
        if self.place[rank] >= len(order):
            self.entering[rank] = np.inf
            return
        stage = int(order[self.place[rank]])
        self.started[rank] = self.arrived[rank] = at
        self.entering[rank] = at + float(self.costs.before[stage][rank])

    def _enter(self) -> bool:
        """Let ranks that are ready now enter, and begin the flows between them; return whether any rank was."""
        near = self.entering <= self.now * (1 + 1e-12) + 1e-15
        if not near.any():
            return False
        stages = set()
        for rank in np.flatnonzero(near).tolist():
            stage = int(self.order[rank][self.place[rank]])
            self.is_in[rank], self.ready[rank] = stage, self.now
            self.left[rank] = self._degrees(stage)[rank]
            stages.add(stage)
        self.entering[near] = np.inf
        return any([self._begin(stage) for stage in sorted(stages)])

    def _degrees(self, stage: int) -> Ints:
        if stage not in self.degrees:
            of = self.of.stages[stage]
            self.degrees[stage] = np.bincount(np.concatenate([of.src, of.dst]), minlength=len(self.is_in))
        return self.degrees[stage]

    def _begin(self, stage: int) -> bool:
        """Begin the flows of ``stage`` whose ends are both ready; return whether there are any."""
        of = self.of.stages[stage]
        waiting = self.waiting.setdefault(stage, np.ones(len(of.src), dtype=bool))
        inside = self.is_in == stage
        begun = np.flatnonzero(waiting & inside[of.src] & inside[of.dst])
        if not len(begun):
            return False
        waiting[begun] = False
        self.stage_of = np.concatenate([self.stage_of, np.full(len(begun), stage)])
        self.flow_of = np.concatenate([self.flow_of, begun])
        self.rest = np.concatenate([self.rest, self.costs.loads[stage][begun]])
        self.rate = np.concatenate([self.rate, np.zeros(len(begun))])
        self.held = np.concatenate([self.held, np.ones(len(begun), dtype=bool)])
        self.since = np.concatenate([self.since, np.full(len(begun), self.now)])
        return True

    def _share(self) -> None:
        """Share the links among all flows under way, and set their rates."""
        flows, links, times = list[Ints](), list[Ints](), list[Floats]()
        for stage in np.unique(self.stage_of).tolist():
            of, here = self.of.stages[stage], np.flatnonzero(self.stage_of == stage)
            place = np.full(len(of.src), -1)
            place[self.flow_of[here]] = here
            on = place[of.flow]
            flows.append(on[on >= 0])
            links.append(of.link[on >= 0])
            times.append(of.times[on >= 0])
        if flows:
            joined = np.concatenate(flows), np.concatenate(links), np.concatenate(times)
            self.rate = fair_rates(*joined, len(self.rest), self.bandwidths)


def _orders(of: ClassProgram, ranks: int) -> list[list[int]]:
    order: list[list[int]] = [[] for _ in range(ranks)]
    for number, stage in enumerate(of.stages):
        for rank in np.unique(np.r_[stage.src, stage.dst]).tolist():
            order[rank].append(number)
    return order
