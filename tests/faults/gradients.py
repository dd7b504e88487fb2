"""Gradients of the simulated calls, small whole numbers, whose sums are exact in any order."""

from functools import lru_cache

import torch

from tests.faults.scenario import CallSpec

WIDTH = 4


@lru_cache(maxsize=4096)
def _rows(units: int, rank: int, salt: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return row numbers, some of them twice, and their values."""
    generator = torch.Generator().manual_seed(1 + rank + 16 * salt + 1024 * units)
    ids = torch.randint(0, units, (1, max(1, units // 3)), generator=generator)
    return ids, torch.randint(-9, 10, (ids.shape[1], WIDTH), generator=generator).to(torch.float32)


@lru_cache(maxsize=4096)
def whole(units: int, rank: int, salt: int) -> torch.Tensor:
    """Return a rank's gradient [units, 4], dense float64."""
    ids, values = _rows(units, rank, salt)
    return torch.zeros(units, WIDTH, dtype=torch.float64).index_add_(0, ids[0], values.to(torch.float64))


def gradient(call: CallSpec, rank: int) -> torch.Tensor:
    """Return the gradient of ``what`` in ``call``: a new tensor [units, 4] float32, dense or sparse COO of rows."""
    if call.dense:
        return whole(call.units, rank, call.salt).to(torch.float32)
    ids, values = _rows(call.units, rank, call.salt)
    return torch.sparse_coo_tensor(ids, values, (call.units, WIDTH), check_invariants=False)


def is_sum(found: torch.Tensor, calls: list[CallSpec]) -> bool:
    """Return whether ``found`` is the sum of the ranks' gradients of ``calls``, or of these divided first."""
    total = torch.stack([whole(call.units, rank, call.salt) for rank, call in enumerate(calls)]).sum(0)
    dense = (found.to_dense() if found.is_sparse else found).to(torch.float64)
    if calls[0].op == "sum":
        return torch.equal(dense, total)
    return torch.allclose(dense, total / len(calls), rtol=1e-5, atol=1e-5)
