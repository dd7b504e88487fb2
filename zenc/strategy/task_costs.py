"""Seconds of the tasks of options: collectives by the alpha-beta model, compression as measured by size.

Machines   = machines ranks latency inside across host              # bytes a second: a rank's link inside; a machine's
Compressor = name ratio encode decode                               # seconds: constant up to a size, then linear
TaskCosts      = Machines Compressor -> seconds of a task on tensors of any sizes
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np

from zenc.strategy.decision_tree import Action, Among, Cut, Task
from zenc.strategy.step import VALUE_BYTES
from zenc.strategy.timeline import Floats, Resource

RESOURCE_OF = {
    Among.FLAT: Resource.ACROSS,
    Among.INSIDE_PUSH: Resource.INSIDE_PUSH,
    Among.ACROSS: Resource.ACROSS,
    Among.INSIDE_PULL: Resource.INSIDE_PULL,
}


@dataclass(frozen=True, slots=True)
class Machines:
    """Clusters of ``machines`` with ``ranks`` each; bytes a second of a rank's link ``inside``, a machine's ``across``.

    ``latency``: seconds of a step of a collective; ``start``: seconds of a collective, whatever its steps. ``host``:
    bytes a second that go to the host, and are compressed or decompressed there.
    """

    machines: int
    ranks: int
    latency: float
    inside: float
    across: float
    host: float
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class Compressor:
    """A compressor to ``ratio`` of the bytes, in ``encode`` and ``decode`` seconds: linear beyond ``constant``."""

    name: str
    ratio: float
    encode: float
    decode: float
    constant: int = 1 << 20


@dataclass(frozen=True, slots=True)
class TaskCosts:
    """Seconds of tasks on ``machines``, with ``compressor``."""

    machines: Machines
    compressor: Compressor

    def resource(self, task: Task) -> Resource:
        """Return the resource that serves ``task``."""
        if task.level is not None:
            return RESOURCE_OF[task.level]
        return Resource.HOST if task.device == "cpu" else Resource.STREAM

    def seconds(self, task: Task, numel: Floats) -> Floats:
        """Return the seconds of ``task`` in the synchronisation of tensors of ``numel`` values each, [k]."""
        values = numel * self._share(task)
        if task.level is None:
            return self._computed(task, values * self._pieces(task))
        bytes = VALUE_BYTES * values
        if task.held.compressed:
            bytes = bytes * self.compressor.ratio * self._pieces(task)
        return self._carried(task, bytes)

    def _share(self, task: Task) -> float:
        held, of = task.held, self.machines
        flat = held.inside is Cut.SHARE and task.level is Among.FLAT
        inside = of.ranks * (of.machines if flat else 1) if held.inside is Cut.SHARE else 1
        return 1 / (inside * (of.machines if held.across is Cut.SHARE else 1))

    def _pieces(self, task: Task) -> int:
        held, of = task.held, self.machines
        return (of.ranks if held.many_inside else 1) * (of.machines if held.many_across else 1)

    def _computed(self, task: Task, values: Floats) -> Floats:
        if task.device == "cpu":
            return np.asarray(VALUE_BYTES * values / self.machines.host)
        of = self.compressor
        each = of.encode if task.action is Action.COMPRESS else of.decode
        return np.asarray(each * np.maximum(values / of.constant, 1.0))

    def _carried(self, task: Task, bytes: Floats) -> Floats:
        """Return the seconds of the link that carries most: a rank's inside of a machine, otherwise a machine's."""
        of = self.machines
        if task.level is Among.FLAT:
            ranks, rate, load = of.machines * of.ranks, of.across, 1.0
            outside = ranks - of.ranks
        elif task.level is Among.ACROSS:
            ranks, rate = of.machines, of.across
            load, outside = float(of.ranks if task.held.inside is Cut.SHARE else 1), ranks - 1
        else:
            ranks, rate, load, outside = of.ranks, of.inside, 1.0, of.ranks - 1
        steps, times = _steps_and_times(task, ranks, outside, of.ranks if task.level is Among.FLAT else 1)
        return np.asarray(of.start + steps * of.latency + load * times * bytes / rate)


def _steps_and_times(task: Task, ranks: int, outside: int, beside: int) -> tuple[float, float]:
    """Return the steps of the collective among ``ranks``, and the times that a link carries a rank's bytes.

    ``outside``: the ranks behind the link; ``beside``: those that share it. A ring crosses each machine's link once, so
    plain collectives of all ranks load it like one rank; all compressed pieces of others come over it once.
    """
    others, tree = ranks - 1, log2(max(ranks, 1))
    if task.held.compressed:
        return {
            Action.ALL_GATHER: (others, outside),
            Action.SCATTER: (others, beside * outside / ranks),
            Action.COLLECT: (others, outside),
            Action.ROOT: (others, outside),
            Action.BROADCAST: (tree, 1.0),
        }[task.action]
    return {
        Action.ALL_REDUCE: (2 * others, 2 * others / ranks),
        Action.SCATTER: (others, others / ranks),
        Action.COLLECT: (others, others),
        Action.ROOT: (tree, 1.0),
        Action.BROADCAST: (tree, 1.0),
    }[task.action]
