"""Residuals beside a GradScaler, an optimizer with momentum, and parameters that no rank used in a step.

A GradScaler multiplies the loss by its scale, and so residuals are multiplied, too. Where it finds a gradient that is
not finite it skips the step and lowers the scale: nothing is to be kept of that step, neither of the gradients that
were not finite nor of finite ones in other buckets. Both are seen when the next step begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from zenc.errors import Diagnostic, SchemeError
from zenc.plan.ir import Plan
from zenc.runtime.call.collective import Collective
from zenc.scheme.compression import Momentum
from zenc.torch.bucket import PlacedGradient


class ScaleWatch:
    """A watch that keeps the residuals of ``collectives`` in the scale of ``scaler``, a ``torch.amp.GradScaler``."""

    def __init__(self, collectives: Iterable[Collective], scaler: Any) -> None:
        self._summed = {id(keeper): (keeper, list[str]()) for each in collectives if (keeper := each.keeper)}
        self._scaler = scaler
        self.scale: float | None = None
        """The scale of the residuals; None before the first step."""

    def step_begins(self) -> None:
        """Undo the calls of a skipped step, and follow the scale; called before the first call of a step."""
        before, self.scale = self.scale, float(self._scaler.get_scale())
        for keeper, names in self._summed.values():
            if before is not None and before != self.scale:
                if self.scale < before and names:
                    keeper.take_back(names)
                keeper.rescale(self.scale / before)
            names.clear()

    def sums(self, collective: Collective, names: Iterable[str]) -> None:
        """Note a call of ``names`` by ``collective`` in this step."""
        if (keeper := collective.keeper) is not None:
            self._summed[id(keeper)][1].extend(names)


def ensure_momentum_once(plan: Plan, optimizer: torch.optim.Optimizer | None) -> None:
    """Raise SchemeError (``momentum-twice``) where both ``plan`` and ``optimizer`` sum momentum."""
    if optimizer is None or not isinstance(plan.feedback, Momentum):
        return
    for group in optimizer.param_groups:
        own = group.get("momentum") or group.get("betas", (0.0,))[0]
        if own:
            message = f"{plan.scheme} sums momentum {plan.feedback.m:g}, and {type(optimizer).__name__} {own:g} again"
            help = "give the optimizer no momentum; or take a scheme with 'feedback: residual'"
            raise SchemeError(Diagnostic("momentum-twice", message, help=help))


def used_somewhere(pieces: list[PlacedGradient], group: dist.ProcessGroup | None) -> list[PlacedGradient]:
    """Return those of ``pieces`` whose gradient is not zero on all ranks; all ranks ask together, in the backward pass.

    DDP drops the average of a parameter that no rank used, and residuals in it would be lost with it.
    """
    if not pieces:
        return pieces
    used = torch.stack([piece.gradient.any() for piece in pieces]).to(torch.uint8)
    dist.all_reduce(used, dist.ReduceOp.MAX, group=group)
    return [piece for piece, any_rank in zip(pieces, used.tolist(), strict=True) if any_rank]
