"""The options of a decision tree by size: their effects on the timeline, and the undominated ones.

    OptionTable = options x TaskCosts
    Candidates  = options that nothing dominates, with their matrices [k, 6, 6]     # of tensors of one size

An option dominates another where no entry of its matrix is greater: in any step, it is as good in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from zenc.strategy.decision_tree import Action, Option
from zenc.strategy.task_costs import TaskCosts
from zenc.strategy.timeline import NO_OPERATION, RESOURCES, Floats, Ints, matrices

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
        """Return the candidates for tensors of ``numel`` values."""
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
