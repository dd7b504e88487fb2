"""Gradient clipping that takes sparse gradients, which ``torch.nn.utils.clip_grad_norm_`` does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch

from zenc.common.arguments import names_wrong_types
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.call.layout import ensure_writable, plain


@names_wrong_types
def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scale the gradients of ``parameters``, of any shapes, so that their total norm is at most ``max_norm``; in place.

    It works as ``torch.nn.utils.clip_grad_norm_``, with sparse COO gradients too; these are coalesced first, since the
    norm of an uncoalesced one would count a row that is there twice wrongly. After DDP has synchronised, all ranks
    compute the same norm.

    Returns:
        The total norm before clipping, a tensor without dimensions.

    Raises:
        TensorError: ``nonfinite-norm``, if ``error_if_nonfinite`` and the norm is NaN or infinite; and for a gradient
            without memory of its own, such as a DTensor, as ``Collective.all_reduce`` does.
    """
    owners = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    values = [values_of(owner) for owner in owners if owner.grad is not None]
    if not values:
        return torch.tensor(0.0, dtype=torch.float32, device="cpu")
    norms = [torch.linalg.vector_norm(v, norm_type) if v.numel() else v.new_zeros(()) for v in values]
    total = torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]), norm_type)
    if error_if_nonfinite and not torch.isfinite(total):
        message = f"the total norm of the gradients is {total.item()}, so they can't be clipped"
        raise TensorError(Diagnostic("nonfinite-norm", message))
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for value in values:
        value.mul_(scale.to(value.device))
    return cast(torch.Tensor, total)


def values_of(owner: torch.Tensor) -> torch.Tensor:
    """Return the values of the gradient of ``owner``, of any shape, as a dense tensor that shares their memory."""
    gradient = owner.grad
    assert gradient is not None
    plain(gradient)
    if gradient.layout is not torch.sparse_coo:
        ensure_writable(gradient)
        return gradient.detach()
    if not gradient.is_coalesced():
        gradient = owner.grad = gradient.coalesce()
    return gradient._values().detach()
