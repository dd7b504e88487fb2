"""Accumulation of sparse gradients of 16 bits, under ``no_sync`` and over steps, which torch does not have on CPUs.

torch would add the gradient of a backward pass to the one before, and fails: "not implemented for 'BFloat16'". Here the
rows of both are laid one after another; the scheme adds those that come twice, in float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.utils.hooks import RemovableHandle

SHORT = (torch.float16, torch.bfloat16)


def accumulating(tables: Iterable[torch.Tensor]) -> list[RemovableHandle]:
    """Let sparse gradients of ``tables`` [rows, width], of 16 bits on the CPU, accumulate; torch refuses to do that."""
    return [_accumulating(table) for table in tables if table.dtype in SHORT and table.device.type == "cpu"]


def _accumulating(table: torch.Tensor) -> RemovableHandle:
    def hook(gradients: Sequence[torch.Tensor]) -> tuple[torch.Tensor] | None:
        before, (gradient,) = table.grad, gradients
        if before is None or not before.is_sparse or not gradient.is_sparse:
            return None
        table.grad = None  # torch has nothing to add to
        return (_together(before, gradient),)

    accumulator = torch.autograd.graph.get_gradient_edge(table).node  # DDP keeps it; torch.autograd.grad skips it
    return accumulator.register_prehook(hook)


def _together(before: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    indices = torch.cat([before._indices(), gradient._indices()], dim=1)
    values = torch.cat([before._values(), gradient._values()])
    return torch.sparse_coo_tensor(indices, values, gradient.shape, check_invariants=False, device=values.device)
