"""Folding: the residual that one scheme has kept of a tensor goes into a call of another one that keeps nothing.

Where a scheme is chosen anew for a tensor, the next call may be one that sums everything. The residual so far is then
added to the gradient, and nothing of it is kept; but for the loss where 16 bits can't hold the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from zenc.runtime.compression.residual_store import VECTORS, FlatState, Pieces, ResidualStore


@dataclass(frozen=True, slots=True)
class FoldedCall:
    """A call of a tensor plus the residual in ``state``.

    ``rest`` [elements] is the residual's part that did not fit.
    """

    state: FlatState
    rest: torch.Tensor

    def end(self, result: torch.Tensor) -> None:
        """Keep the rest alone, if ``result``, of any shape, is finite; otherwise all that was kept before."""
        if not bool(torch.isfinite(result).all()):
            return
        for vector in VECTORS:
            kept = self.rest if vector == "residual" else getattr(self.state.now, vector)
            if kept is not None:
                self.state.room(vector).copy_(kept)
        self.state.commit()
        if not bool(self.rest.any()):
            self.state.now.residual = None


def fold(store: ResidualStore, pieces: Pieces, tensor: torch.Tensor) -> FoldedCall | None:
    """Add the residual of ``pieces`` in ``store`` to the dense ``tensor`` of any shape; None without a residual."""
    if not any(piece.name in store.entries for piece in pieces):
        return None
    state = store.state_of(pieces, tensor.device)
    if state.now.residual is None:
        return None
    whole = tensor.detach().reshape(-1).float() + state.now.residual
    tensor.detach().copy_(whole.view(tensor.shape))
    return FoldedCall(state, whole - tensor.detach().reshape(-1).float())
