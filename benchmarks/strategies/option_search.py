"""Espresso's choice of an option for each tensor: greedy by size (Algorithm 1), then offloading (Algorithm 2).

Algorithm 1 goes through the tensors by falling size, of equal ones the last of the backward pass first, and gives each
the option with which the whole step is shortest while all others stay as they are. The paper leaves out tensors that
are sent before a bubble; here a tensor is left out where the step would be no shorter if it were not synchronised at
all, which holds for those, and for more. The paper goes through the tensors once; a second pass finds more, so passes
go on while they do, up to three.

Algorithm 2 moves compression to the host: among tensors of one size and option those go first whose gradients are ready
first (Lemma 1). All combinations of numbers of each group are tried where they are few; group by group otherwise.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product as combinations
from math import prod

import numpy as np

from benchmarks.strategies.decision_tree import Option
from benchmarks.strategies.option_table import OptionTable, compresses
from zenc.strategy.search.tuning import BETTER, PASSES
from zenc.strategy.simulation.replay import Replay, replay
from zenc.strategy.simulation.step import TrainingStep
from zenc.strategy.simulation.timeline import RESOURCES, Floats, Ints, Timeline, after_gap, identity, matrices

COMBINATIONS = 1024
"""Most combinations of offloads that are all tried."""


@dataclass(frozen=True, slots=True)
class ChosenOptions:
    """An option for each tensor of a step, and the ``seconds`` from the begin of the backward pass to the last sum.

    ``tried``: steps that were evaluated. ``offloaded``: indices of tensors that the host compresses.
    """

    options: tuple[Option, ...]
    seconds: float
    tried: int = 0
    offloaded: frozenset[int] = frozenset()


def select(step: TrainingStep, table: OptionTable, passes: int = PASSES) -> ChosenOptions:
    """Choose by Algorithm 1 an option of ``table`` for each tensor of ``step``, starting with none compressed."""
    sizes = [tensor.numel for tensor in step.tensors]
    table.prepare(sizes)
    options, tried = list(alike(step, table, compressed=False)), len(sizes)
    timeline = Timeline(_gapped(step, _matrices_of(step, table, options)))
    order = sorted(range(len(sizes)), key=lambda at: (-sizes[at], -at))
    for _ in range(passes):
        changed = False
        for at in order:
            of, gap = table.of_size(sizes[at]), step.tensors[at].gap
            if _at_best(timeline, at, gap) >= timeline.seconds * BETTER:
                continue
            seconds = timeline.with_each(at, after_gap(of.matrices, gap))
            best, tried = int(seconds.argmin()), tried + len(seconds)
            if seconds[best] < timeline.seconds * BETTER:
                timeline.change(at, after_gap(of.matrices[best], gap))
                options[at], changed = of.options[best], True
        if not changed:
            break
    return ChosenOptions(tuple(options), timeline.seconds, tried)


def seconds_of(step: TrainingStep, table: OptionTable, options: Sequence[Option]) -> float:
    """Return the seconds from the begin of the backward pass to the last sum, with an option for each tensor."""
    return Timeline(_gapped(step, _matrices_of(step, table, options))).seconds


def replayed(step: TrainingStep, table: OptionTable, options: Sequence[Option]) -> Replay:
    """Return the replay of a step with an option for each tensor, event by event."""
    costs = table.costs
    operations = []
    for tensor, option in zip(step.tensors, options, strict=True):
        numel = np.array([tensor.numel], dtype=np.float64)
        operations.append([(costs.resource(task), float(costs.seconds(task, numel)[0])) for task in option])
    return replay(step, operations)


def alike(step: TrainingStep, table: OptionTable, compressed: bool) -> tuple[Option, ...]:
    """Return for each tensor the quickest option for it alone, of those that compress, or of the others."""
    found = []
    for tensor in step.tensors:
        of = table.of_size(tensor.numel)
        fitting = slice(of.plain, None) if compressed and of.plain < len(of.options) else slice(of.plain)
        quickest = of.matrices[fitting].max(axis=(1, 2)).argmin()
        found.append(of.options[fitting][int(quickest)])
    return tuple(found)


def offload(step: TrainingStep, table: OptionTable, choice: ChosenOptions) -> ChosenOptions:
    """Return ``choice`` with some compression on the host, by Algorithm 2, where free compression would gain."""
    groups = _alike(step, choice.options)
    free = [tuple(task for task in option if not task.device) for option in choice.options]
    if not groups or seconds_of(step, table, free) >= choice.seconds * BETTER:
        return choice
    on_host = tuple(map(_on_host, choice.options))
    either = [_gapped(step, _matrices_of(step, table, options)) for options in (choice.options, on_host)]
    counts = [len(group) + 1 for group in groups]
    if prod(counts) <= COMBINATIONS:
        tries = np.array(list(combinations(*map(range, counts))))
        best = tries[_each(either, groups, tries).argmin()]
        tried = len(tries)
    else:
        best, tried = _in_turn(either, groups)
    moved = frozenset(at for group, count in zip(groups, best, strict=True) for at in group[:count])
    options = tuple(on_host[at] if at in moved else option for at, option in enumerate(choice.options))
    seconds = float(_each(either, groups, best[None])[0])
    if seconds >= choice.seconds * BETTER:
        return replace(choice, tried=choice.tried + tried)
    return ChosenOptions(options, seconds, choice.tried + tried, moved)


def _gapped(step: TrainingStep, made: Iterable[Floats]) -> Floats:
    return after_gap(np.stack(list(made)), np.array([tensor.gap for tensor in step.tensors]))


def _matrices_of(step: TrainingStep, table: OptionTable, options: Sequence[Option]) -> Floats:
    most = max(map(len, options))
    resources, seconds = np.full((len(options), most), -1), np.zeros((len(options), most))
    for row, (tensor, option) in enumerate(zip(step.tensors, options, strict=True)):
        numel = np.array([tensor.numel], dtype=np.float64)
        for column, task in enumerate(option):
            resources[row, column] = table.costs.resource(task)
            seconds[row, column] = table.costs.seconds(task, numel)[0]
    return matrices(resources, seconds)


def _at_best(timeline: Timeline, at: int, gap: float) -> float:
    """Return seconds of the step if tensor ``at`` were not synchronised."""
    before, rest = timeline.without(at)
    moved = before.copy()
    moved[0] += gap
    return float((moved + rest).max())


def _alike(step: TrainingStep, options: Sequence[Option]) -> list[list[int]]:
    """Return the tensors of each size and compressing option, those that are ready first in front."""
    found: dict[tuple[int, Option], list[int]] = {}
    for at, option in enumerate(options):
        if compresses(option):
            found.setdefault((step.tensors[at].numel, option), []).append(at)
    return list(found.values())


def _on_host(option: Option) -> Option:
    return tuple(replace(task, device="cpu") if task.device else task for task in option)


def _each(either: Sequence[Floats], groups: Sequence[Sequence[int]], counts: Ints) -> Floats:
    """Return seconds of the step, [k], for each row of ``counts`` [k, groups], each group's tensors on the host."""
    place = {at: (number, rank) for number, group in enumerate(groups) for rank, at in enumerate(group)}
    free, run = np.zeros((len(counts), RESOURCES)), identity(1)[0]
    for at, (here, there) in enumerate(zip(*either, strict=True)):
        if at not in place:
            run = (here[:, :, None] + run[None]).max(axis=1)
            continue
        free, run = (free[:, None, :] + run).max(axis=2), identity(1)[0]
        number, rank = place[at]
        moved = (counts[:, number] > rank)[:, None, None]
        free = (np.where(moved, there, here) + free[:, None, :]).max(axis=2)
    return np.asarray((free[:, None, :] + run).max(axis=(1, 2)))


def _in_turn(either: Sequence[Floats], groups: Sequence[Sequence[int]]) -> tuple[Ints, int]:
    """Return the tensors of each group for the host, found group by group until nothing is better, and the trials."""
    best, tried = np.zeros(len(groups), dtype=np.int64), 0
    seconds = np.inf
    for _ in range(PASSES):
        before = seconds
        for number, group in enumerate(groups):
            tries = np.repeat(best[None], len(group) + 1, axis=0)
            tries[:, number] = np.arange(len(group) + 1)
            found = _each(either, groups, tries)
            tried += len(tries)
            if found.min() < seconds * BETTER:
                best, seconds = tries[found.argmin()], float(found.min())
        if seconds >= before * BETTER:
            break
    return best, tried
