"""The options of a decision tree by size: their effects on the timeline, and the undominated ones.

    OptionTable = options x TaskCosts
    Candidates  = options that nothing dominates, with their matrices [k, 6, 6]     # of tensors of one size

An option dominates another where no entry of its matrix is greater: in any step, it is as good in its place.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

from benchmarks.strategies.decision_tree import Action, Among, Cut, Option, Task
from zenc.strategy.simulation.step import VALUE_BYTES
from zenc.strategy.simulation.timeline import NO_OPERATION, RESOURCES, Floats, Ints, Resource, matrices

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
            Action.ALL_GATHER: (others, outside), Action.SCATTER: (others, beside * outside / ranks),
            Action.COLLECT: (others, outside), Action.ROOT: (others, outside), Action.BROADCAST: (tree, 1.0),
        }[task.action]  # fmt: skip
    return {
        Action.ALL_REDUCE: (2 * others, 2 * others / ranks), Action.SCATTER: (others, others / ranks),
        Action.COLLECT: (others, others), Action.ROOT: (tree, 1.0), Action.BROADCAST: (tree, 1.0),
    }[task.action]  # fmt: skip


MUCH = 1e6
"""Seconds in the place of infinity, where sums of entries are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The ``options`` for a tensor of ``numel`` values, first the uncompressed, and the matrix of each [k, 6, 6]."""

    numel: int
    options: tuple[Option, ...]
    matrices: Floats

    @property
    def plain(self) -> int:
        """The number of options that do not compress; they come first."""
        return sum(not compresses(option) for option in self.options)


def compresses(option: Option) -> bool:
    """Return whether any task of ``option`` compresses."""
    return any(task.action is Action.COMPRESS for task in option)


class OptionTable:
    """``options`` under ``costs``; tables of sizes are made when they are asked for, and kept."""

    def __init__(self, options: Iterable[Option], costs: TaskCosts) -> None:
        self.options, self.costs = tuple(sorted(options, key=compresses)), costs
        self._tasks = list(dict.fromkeys(task for option in self.options for task in option))
        numbers = {task: number for number, task in enumerate(self._tasks)}
        most = max(map(len, self.options), default=0)
        self._rows = np.full((len(self.options), most), NO_OPERATION)
        for row, option in zip(self._rows, self.options, strict=True):
            row[: len(option)] = [numbers[task] for task in option]
        self._on = np.array([*(costs.resource(task) for task in self._tasks), NO_OPERATION])[self._rows]
        self._kept: dict[int, Candidates] = {}

    def of_size(self, numel: int) -> Candidates:
        if numel not in self._kept:
            self.prepare([numel])
        return self._kept[numel]

    def prepare(self, sizes: Sequence[int]) -> None:
        """Make the candidates for tensors of all of ``sizes`` at once."""
        new = [numel for numel in dict.fromkeys(sizes) if numel not in self._kept]
        if not new:
            return
        of = np.array(new, dtype=np.float64)
        by_task = np.array([self.costs.seconds(task, of) for task in self._tasks] + [np.zeros(len(new))])
        for column, numel in enumerate(new):
            self._kept[numel] = self._undominated(numel, by_task[self._rows, column])

    def _undominated(self, numel: int, seconds: Floats) -> Candidates:
        made = matrices(self._on, seconds)
        kept = sorted(undominated(made))
        if not any(compresses(self.options[at]) for at in kept[:1]):
            return Candidates(numel, tuple(self.options[at] for at in kept), made[kept])
        kept = [0, *kept]
        return Candidates(numel, tuple(self.options[at] for at in kept), made[kept])


def undominated(made: Floats) -> Ints:
    """Return the indices of matrices [k, 6, 6] that no other one dominates; of equal ones the first."""
    flat = np.maximum(made.reshape(len(made), RESOURCES**2), -MUCH)
    flat = flat[:, (flat != flat[0]).any(axis=0)]
    order = np.argsort(flat.sum(axis=1), kind="stable")
    kept: list[int] = []
    left = flat[order]
    while len(order):
        best = left[0]
        kept.append(int(order[0]))
        beaten = (left >= best).all(axis=1)
        order, left = order[~beaten], left[~beaten]
    return np.array(kept)
