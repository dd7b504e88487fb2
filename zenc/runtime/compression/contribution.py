"""Contribution: a gradient and what earlier calls left of it, cut in what is sent and what is kept.

    accumulated = gradient + residual           # with momentum + velocity, which is m velocity + gradient
    gradient    = what is selected of it, in the gradient's dtype; +0 else
    residual    = accumulated - gradient        # velocity = 0 where units were selected

Momentum is DGC's (ICLR 2018, section 3.1 and 3.2): summed before selection, and cleared where units are sent. Where all
units are contributed, as in a dense warm-up, it goes on as ordinary momentum does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from zenc.runtime.compression.residual_store import FlatState

Marker = Callable[[torch.Tensor], torch.Tensor]
"""Function from accumulated values [units, width] float32 to marks [units] of the selected units."""


@dataclass(frozen=True, slots=True)
class Contributed:
    """``gradient``, ``residual``: sums of squares. ``finite``: whether all that was accumulated is."""

    gradient: float
    residual: float
    finite: bool


def contribute(
    gradient: torch.Tensor, state: FlatState | None, momentum: float | None, marker: Marker | None
) -> tuple[torch.Tensor, Contributed]:
    """Leave in ``gradient`` [units, width] what is contributed of it, and write the rest to ``state``, uncommitted.

    The rest comes back, too: without a ``state`` it is lost. Without a ``marker`` all is selected. What is not finite
    is sent, so that all ranks see it: a NaN in the first unit, if need be.
    """
    norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float32)) ** 2
    total, velocity = accumulated(gradient, state, momentum)
    finite = bool(torch.isfinite(total).all())
    if marker is None:
        selected = total
    else:
        marks = marker(total)[:, None]
        selected = torch.where(marks, total, 0.0)
        if velocity is not None:
            velocity.masked_fill_(marks, 0.0)
    gradient.copy_(selected)
    if not finite:
        gradient[0, 0] = torch.nan
    left = torch.sub(total, gradient, out=total)
    return left, Contributed(norm, float(torch.linalg.vector_norm(left)) ** 2, finite)


def accumulated(
    gradient: torch.Tensor, state: FlatState | None, momentum: float | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """``gradient`` [units, width] and what is kept of earlier ones, in room of ``state``; and the velocity, if any."""
    if state is None:
        return gradient.to(torch.float32, copy=True), None
    now, total = state.now, state.room("residual").view_as(gradient)
    added, velocity = gradient, None
    if momentum is not None:
        velocity = state.room("velocity").view_as(gradient)
        if now.velocity is None:
            velocity.copy_(gradient)
        else:
            torch.mul(now.velocity.view_as(gradient), momentum, out=velocity)
            velocity += gradient
        added = velocity
    if now.residual is None:
        total.copy_(added)
    else:
        torch.add(now.residual.view_as(gradient), added, out=total)
    return total, velocity
