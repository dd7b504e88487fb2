"""Support selections: which units of a vector are contributed, as marks; each rank chooses its own.

    key of a unit = the bits of its magnitude, so that NaN is greatest of all, then infinity; -1 where it was taken

All is made of torch's operations, on any device: what the compiled kernels do is compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from zenc.runtime.compression.residual_store import FlatState
from zenc.scheme.compression import (
    Above,
    Bisection,
    Dense,
    Estimator,
    Falling,
    Histogram,
    RandomEach,
    Reused,
    Sampled,
    Selection,
    Sketch,
    Top,
    TopOfBlocks,
    TopOfParts,
    Warmup,
    count_of,
)

SIGN_LESS = 0x7FFFFFFF
TAKEN = -1
GOLDEN = 0x9E3779B97F4A7C15


PartUnits: TypeAlias = "Sequence[range | torch.Tensor]"
"""The units of each part, in the order of their slots; ranges where they are contiguous."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Facts that one choice of units is made of: ``step`` calls before, the ``seed`` of this one, and the ``rank``."""

    step: int
    seed: int
    rank: int
    parts: PartUnits


def warmed(selections: Sequence[Selection], warmup: Warmup | None, step: int) -> tuple[Selection, ...]:
    """``selections`` as they are after ``step`` calls; none where everything is contributed."""
    if warmup is None or step >= warmup.steps:
        return tuple(selections)
    if isinstance(warmup, Dense):
        return ()
    return tuple([_falling(each, warmup, step) for each in selections])


def _falling(selection: Selection, warmup: Falling, step: int) -> Selection:
    """``selection`` with a density between that of the start and its own: by equal factors (DGC, section 3.3)."""
    if isinstance(selection, Above | Sketch) or selection.density >= warmup.start:
        return selection
    return replace(selection, density=warmup.start * (selection.density / warmup.start) ** (step / warmup.steps))


def marks_of(
    values: torch.Tensor, selections: Sequence[Selection], draw: Draw, state: FlatState | None
) -> torch.Tensor:
    """Marks [units] bool of what ``selections``, one after another, take of ``values`` [units, width] float32."""
    keys = _keys(values)
    taken = torch.zeros(len(keys), dtype=torch.bool, device=keys.device)
    for selection in selections:
        mine = _taken_by(selection, keys, draw, state)
        taken |= mine
        keys = torch.where(mine, TAKEN, keys)
    return taken


def _keys(values: torch.Tensor) -> torch.Tensor:
    """A key of each unit [units] int32; a row's magnitude is that of its greatest value."""
    return (values.contiguous().view(torch.int32) & SIGN_LESS).amax(dim=1)


def _taken_by(selection: Selection, keys: torch.Tensor, draw: Draw, state: FlatState | None) -> torch.Tensor:
    match selection:
        case Top(density, by):
            return _top(keys, count_of(density, len(keys)), by, draw, state)
        case TopOfParts(density):
            return _top_of_parts(keys, density, draw.parts)
        case TopOfBlocks(density, block):
            return _top_of_blocks(keys, density, block)
        case Above(threshold):
            return keys >= _key_of(threshold)
        case RandomEach(density, seed):
            return _drawn(keys, density, seed, draw)
    raise AssertionError(f"{selection} is no support selection")


def _key_of(magnitude: float) -> int:
    return int(torch.tensor(magnitude, dtype=torch.float32).view(torch.int32))


def _top(keys: torch.Tensor, k: int, by: Estimator, draw: Draw, state: FlatState | None) -> torch.Tensor:
    """The ``k`` greatest, exactly; or those from a threshold on that is expected to be passed by about as many."""
    match by:
        case Histogram():
            return exact_top(keys, k)
        case Sampled(share):
            every = max(1, round(1 / share))
            sample = keys[draw.step % min(every, len(keys)) :: every]
            threshold = int(torch.topk(sample, max(1, round(k * len(sample) / len(keys)))).values[-1])
        case Reused(steps):
            return _reused(keys, k, steps, draw.step, state)
        case Bisection(steps):
            threshold = _bisected(keys, k, steps)
    return keys >= max(threshold, 0)


def exact_top(keys: torch.Tensor, k: int) -> torch.Tensor:
    """Marks [units] of the ``k`` greatest ``keys`` [units] int32; of equal ones the first. None that was taken."""
    if k >= len(keys):
        return keys >= 0
    least = int(torch.topk(keys, k, sorted=True).values[-1])
    marks = keys > least
    ties = (keys == least).nonzero()[: k - int(marks.sum()), 0]
    marks[ties] = True
    return marks & (keys >= 0)


def _reused(keys: torch.Tensor, k: int, steps: int, step: int, state: FlatState | None) -> torch.Tensor:
    known = state.threshold if state else None
    if known is not None and step % steps and step - known[1] < steps:
        return keys >= known[0]
    if state is not None:
        state.threshold = int(torch.topk(keys, k).values[-1]), step
    return exact_top(keys, k)


def _bisected(keys: torch.Tensor, k: int, steps: int) -> int:
    """A threshold that at least ``k`` pass, in ``steps`` halvings of the range of magnitudes (MSTopK, section 3)."""
    magnitudes = keys.clamp(min=0).view(torch.float32)
    low, high = 0.0, float(magnitudes.nan_to_num(posinf=3e38).max())
    for _ in range(steps):
        middle = (low + high) / 2
        if int((magnitudes >= middle).sum()) >= k:
            low = middle
        else:
            high = middle
    return _key_of(low)


def _top_of_parts(keys: torch.Tensor, density: float, parts: Sequence[range | torch.Tensor]) -> torch.Tensor:
    marks = torch.zeros(len(keys), dtype=torch.bool, device=keys.device)
    for part in parts:
        if len(part):
            where = slice(part.start, part.stop) if isinstance(part, range) else part
            marks[where] = exact_top(keys[where], count_of(density, len(part)))
    return marks


def _top_of_blocks(keys: torch.Tensor, density: float, block: int) -> torch.Tensor:
    """Of blocks that are whole by one call; of the last one, if it is short, by itself."""
    whole = len(keys) // block * block
    marks = torch.zeros(len(keys), dtype=torch.bool, device=keys.device)
    if whole:
        rows = keys[:whole].view(-1, block)
        order = rows.sort(dim=1, descending=True, stable=True).indices[:, : count_of(density, block)]
        marks[:whole] = torch.zeros_like(rows, dtype=torch.bool).scatter_(1, order, True).view(-1)
    if whole < len(keys):
        marks[whole:] = exact_top(keys[whole:], count_of(density, len(keys) - whole))
    return marks & (keys >= 0)


def _drawn(keys: torch.Tensor, density: float, seed: int, draw: Draw) -> torch.Tensor:
    generator = torch.Generator().manual_seed((seed ^ draw.seed) + GOLDEN * (draw.rank + 1) & (1 << 63) - 1)
    marks = torch.rand(len(keys), generator=generator) < density
    return marks.to(keys.device) & (keys >= 0)
