"""The replay of a step: its operations event by event; each resource serves them first come, first served.

The timeline has every resource serve tensors in their order, and links inside a machine twice. A replay needs neither:
the operation that waits longest is served next, and the links inside are one. Winners of a search are compared by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from zenc.strategy.simulation.step import TrainingStep
from zenc.strategy.simulation.timeline import Resource

Operations = Sequence[tuple[Resource, float]]
"""The operations of a tensor, one after another: the resource, and its seconds."""

SHARED = {Resource.INSIDE_PULL: Resource.INSIDE_PUSH}
"""Resources of the timeline that are the same links."""


@dataclass(frozen=True, slots=True)
class StepSpan:
    """An operation of the tensor at index ``tensor`` on a resource, from ``start`` to ``end`` seconds."""

    tensor: int
    resource: Resource
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Replay:
    """``seconds`` from the begin of the backward pass to the last sum, and the ``spans`` of all operations."""

    seconds: float
    spans: tuple[StepSpan, ...]

    def idle(self, resource: Resource) -> list[tuple[float, float]]:
        """Return the bubbles of ``resource``: the spans in which it waits between two operations."""
        own = [span for span in self.spans if SHARED.get(span.resource, span.resource) == resource]
        own.sort(key=lambda span: span.start)
        return [(one.end, other.start) for one, other in pairwise(own) if other.start > one.end]


def replay(step: TrainingStep, operations: Sequence[Operations]) -> Replay:
    """Return the events of ``step`` with the ``operations`` of each of its tensors.

    The backward pass goes on whatever happens, but for operations on ``BACKWARD`` itself, which stop it.
    """
    return _Events(step, operations).run()


class _Events:
    def __init__(self, step: TrainingStep, operations: Sequence[Operations]) -> None:
        self.step, self.operations = step, operations
        self.waiting: dict[Resource, list[tuple[float, int, int]]] = {each: [] for each in Resource}
        self.busy: dict[Resource, bool] = dict.fromkeys(Resource, False)
        self.events: list[tuple[float, int, int]] = []
        self.spans: list[StepSpan] = []

    def run(self) -> Replay:
        """Run each event: a tensor's operation before the next one, which has ended; the pass itself is number -1."""
        self._compute(0, 0.0)
        end = 0.0
        while self.events:
            now, tensor, number = heappop(self.events)
            end = max(end, now)
            self._ended(now, tensor, number)
        return Replay(end, tuple(sorted(self.spans, key=lambda span: (span.start, span.tensor))))

    def _compute(self, tensor: int, now: float) -> None:
        if tensor < len(self.step.tensors):
            until = now + self.step.tensors[tensor].gap
            self.spans.append(StepSpan(tensor, Resource.BACKWARD, now, until))
            heappush(self.events, (until, tensor, -1))

    def _ended(self, now: float, tensor: int, number: int) -> None:
        operations = self.operations[tensor]
        if number >= 0:
            on = self._on(tensor, number)
            self.busy[on] = False
            self._serve(on, now)
        begun = number + 1
        if begun < len(operations):
            heappush(self.waiting[self._on(tensor, begun)], (now, tensor, begun))
            self._serve(self._on(tensor, begun), now)
        stopped = begun < len(operations) and operations[begun][0] == Resource.BACKWARD
        held = number >= 0 and operations[number][0] == Resource.BACKWARD
        if (number == -1 or held) and not stopped:
            self._compute(tensor + 1, now)

    def _on(self, tensor: int, number: int) -> Resource:
        resource = self.operations[tensor][number][0]
        return SHARED.get(resource, resource)

    def _serve(self, on: Resource, now: float) -> None:
        if self.busy[on] or not self.waiting[on]:
            return
        _, tensor, number = heappop(self.waiting[on])
        resource, seconds = self.operations[tensor][number]
        self.busy[on] = True
        self.spans.append(StepSpan(tensor, resource, now, now + seconds))
        heappush(self.events, (now + seconds, tensor, number))
