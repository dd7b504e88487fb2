"""Groups of tensors that are synchronised as one: cuts as MergeComp searches them, one size of buffers as TopKA2A does.

Both search on any function from a cut or a size to the seconds of a step: the model's, or one that measures steps. Its
answers are kept, so that a step is measured once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from zenc.strategy.model import Cuts, Fused, Groups
from zenc.strategy.simulation.step import VALUE_BYTES, TrainingStep

Seconds = Callable[[tuple[int, ...]], float]
"""The seconds of a step by its groups, which end before these indices and at the last tensor."""

LEAST_GAIN = 0.005
"""The least share by which a further group must shorten the step."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups that end before the indices ``ends``; ``seconds`` of the step; ``asked``: the number of evaluations."""

    ends: tuple[int, ...]
    seconds: float
    asked: int


def search_groups(count: int, seconds: Seconds, most: int = 2, least_gain: float = LEAST_GAIN) -> Grouping:
    """Search by MergeComp's Algorithm 2 up to ``most`` groups of ``count`` tensors, while a further one gains enough.

    It starts with one group. Each further cut is found by binary search, with the others fixed: the time of a step
    falls and rises again along the cut, so the better one of two neighbours gives the side to go on (Assumption 5). It
    returns the best that was evaluated.
    """
    kept: dict[tuple[int, ...], float] = {}

    def of(ends: tuple[int, ...]) -> float:
        if ends not in kept:
            kept[ends] = seconds(ends)
        return kept[ends]

    best: tuple[int, ...] = ()
    of(best)
    for _ in range(most - 1):
        _search_cut(count, best, of)
        found = min((ends for ends in kept if len(ends) == len(best) + 1), key=of, default=best)
        if of(found) >= of(best) * (1 - least_gain):
            break
        best = found
    return Grouping(best, of(best), len(kept))


def _search_cut(count: int, others: tuple[int, ...], of: Seconds) -> None:
    """Ask for one more cut beside ``others``, until it can't be moved to either side for the better."""
    free = [cut for cut in range(1, count) if cut not in others]
    low, high = 0, len(free) - 1
    while low < high:
        middle = (low + high) // 2
        here, next_ = (of(tuple(sorted((*others, free[at])))) for at in (middle, middle + 1))
        if here <= next_:
            high = middle
        else:
            low = middle + 1
    if free:
        of(tuple(sorted((*others, free[low]))))


def full_buffers(sizes: Iterable[int], bytes: int) -> tuple[int, ...]:
    """Return the ends of groups that fill buffers of ``bytes`` in turn; a greater size is a group of its own."""
    ends, filled = [], 0
    for at, size in enumerate(sizes):
        if filled and filled + size > bytes:
            ends.append(at)
            filled = 0
        filled += size
    return tuple(ends)


def fused(step: TrainingStep, bytes: int) -> tuple[int, ...]:
    """Return the ends of groups of tensors that fill buffers of ``bytes``."""
    return full_buffers((tensor.numel * VALUE_BYTES for tensor in step.tensors), bytes)


def ends_of(groups: Groups, step: TrainingStep, buckets: Sequence[int]) -> Sequence[int]:
    """Return the ends of ``groups``; those that are searched while a model trains have the ends of ``buckets``."""
    match groups:
        case Cuts(ends):
            return ends
        case Fused(bytes) if bytes:
            return fused(step, bytes)
    return buckets


def search_fusion(step: TrainingStep, seconds: Seconds, least: int = 1 << 16) -> Grouping:
    """Search by TopKA2A's fusion: one size of buffers, between ``least`` bytes and those of the model.

    It starts with half of the model. The paper's rule is not public; here the better one of a size and a tenth more
    gives the side to go on, and the best that was evaluated is returned.
    """
    kept: dict[tuple[int, ...], float] = {}

    def of(bytes: int) -> float:
        ends = fused(step, bytes)
        if ends not in kept:
            kept[ends] = seconds(ends)
        return kept[ends]

    low, high = least, max(least, step.numel * VALUE_BYTES)
    of(high)
    while high > low * 1.05:
        middle = (low + high) // 2
        if of(middle) <= of(middle + middle // 10):
            high = middle
        else:
            low = middle
    best = min(kept, key=lambda ends: kept[ends])
    return Grouping(best, kept[best], len(kept))
