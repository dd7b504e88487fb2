"""Support selections: the choice of units that a selection means in one call, in the form of all devices' kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from zenc.runtime.lossy.kernels import Threshold
from zenc.runtime.lossy.parameters import AT_RANDOM, BISECTED, FROM, OF_BLOCKS, SAMPLED, TOP, UnitChoice
from zenc.runtime.lossy.residual_store import FlatState
from zenc.scheme.compression import (
    Above,
    Bisection,
    Dense,
    Falling,
    Histogram,
    LowRank,
    RandomEach,
    Reused,
    Sampled,
    Selection,
    Sketch,
    Top,
    TopOfBlocks,
    Warmup,
    count_of,
)
from zenc.wire.constants import GOLDEN
from zenc.wire.mix import ALL_BITS, mixed

PartUnits: TypeAlias = "Sequence[range | torch.Tensor]"
"""The units of each part, in the order of their slots; ranges where they are contiguous."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Facts behind one choice of units: ``step`` calls before, the ``seed`` of this one, and the ``rank``."""

    step: int
    seed: int
    rank: int
    parts: PartUnits


def warmed(selections: Sequence[Selection], warmup: Warmup | None, step: int) -> tuple[Selection, ...]:
    """Return the ``selections`` after ``step`` calls; an empty tuple where everything is contributed."""
    if warmup is None or step >= warmup.steps:
        return tuple(selections)
    if isinstance(warmup, Dense):
        return ()
    return tuple([_falling(each, warmup, step) for each in selections])


STAGE = 4
"""The quotient of the densities of two stages of a warm-up: 25 %, 6.25 %, 1.56 % and so on, as in DGC."""


def _falling(selection: Selection, warmup: Falling, step: int) -> Selection:
    if isinstance(selection, Above | Sketch | LowRank) or selection.density >= warmup.start:
        return selection
    stages = math.ceil(math.log(warmup.start / selection.density, STAGE) - 1e-9)
    return replace(selection, density=warmup.start / STAGE ** (step * stages // warmup.steps))


def key_for(seed: int, salt: int, rank: int = 0) -> int:
    """Return 64 bits for the draws of a selection with ``seed`` in the call of ``salt``.

    ``rank`` from 1 if they differ.
    """
    return mixed(mixed(seed ^ salt) + GOLDEN * rank & ALL_BITS)


def choice_of(selection: Selection, units: int, draw: Draw, state: FlatState | None) -> UnitChoice:
    """Return the choice among ``units``, for kernels, of a ``selection`` that is not by parts."""
    match selection:
        case Top(density, Sampled(share)):
            drawn = min(units, max(1, round(share * units)))
            return UnitChoice(SAMPLED, count_of(density, units), drawn, key_for(0, draw.seed))
        case Top(density, Bisection(steps)):
            return UnitChoice(BISECTED, count_of(density, units), steps)
        case Top(density, by):
            if isinstance(by, Reused) and (known := _reusable(by, draw, state)) is not None:
                return UnitChoice(FROM, known)
            return UnitChoice(TOP, count_of(density, units))
        case TopOfBlocks(density, block):
            return UnitChoice(OF_BLOCKS, count_of(density, block), block)
        case Above(threshold):
            return UnitChoice(FROM, Threshold.of(threshold).magnitude)
        case RandomEach(density, seed):
            return UnitChoice(AT_RANDOM, round(density * 2**31), key=key_for(seed, draw.seed, draw.rank + 1))
    raise AssertionError(f"{selection} is no support selection")


def takes_greatest(selections: Sequence[Selection]) -> bool:
    """Return whether rows of zeros, which slots have that nobody has a row of, change nothing of ``selections``."""
    return len(selections) <= 1 and all(
        isinstance(one, Top) and isinstance(one.by, Histogram | Reused) for one in selections
    )


MOST_DRIFT = 1.2
"""The factor by which a reused threshold may take more units than its share, or fewer."""


def _reusable(by: Reused, draw: Draw, state: FlatState | None) -> int | None:
    """Return the threshold that an earlier call found, if this one need not find its own."""
    known = state.threshold if state else None
    if known is None or draw.step % by.steps == 0 or draw.step - known[1] >= by.steps:
        return None
    return known[0]


def remember_threshold(
    selection: Selection,
    threshold: int,
    draw: Draw,
    state: FlatState | None,
    units: int,
    taken: Callable[[], int] | None,
) -> None:
    """Keep a threshold for later calls, unless it took too many or too few of ``units``, as ``taken`` tells.

    The residual grows from call to call, and gradients change their scale: an old threshold takes ever more of it.
    """
    if state is None or not isinstance(selection, Top) or not isinstance(by := selection.by, Reused):
        return
    if _reusable(by, draw, state) is None:
        state.threshold = threshold, draw.step
    elif taken is None or not _is_share(selection, units, taken()):
        state.threshold = None


SAMPLED_UNITS = 4096
"""Most units that are sampled before a threshold is used again."""


def forget_drifted(selections: Sequence[Selection], state: FlatState, gradient: torch.Tensor, m: float) -> None:
    """Forget a threshold that takes too many of a sample of ``gradient`` [units, width] plus residual.

    That happens after gradients have changed their scale. ``m``: that of the momentum. Devices see the same sample.
    """
    reused = any(isinstance(each, Top) and isinstance(each.by, Reused) for each in selections)
    if not reused or state.threshold is None or not gradient.numel():
        return
    step = -(-len(gradient) // SAMPLED_UNITS)
    of, kept = gradient[::step].float(), state.now
    for vector, factor in ((kept.velocity, m), (kept.added, 1.0)):
        of = of if vector is None else of + vector.view_as(gradient)[::step] * factor
    magnitudes = of.abs().amax(dim=1).view(torch.int32)
    wanted = min(each.density for each in selections if isinstance(each, Top)) * len(magnitudes)
    if int((magnitudes >= state.threshold[0]).sum()) > MOST_DRIFT * wanted + 3 * wanted**0.5:
        state.threshold = None


def _is_share(selection: Top, units: int, taken: int) -> bool:
    wanted = count_of(selection.density, units)
    return wanted / MOST_DRIFT <= taken <= wanted * MOST_DRIFT
