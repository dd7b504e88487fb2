"""PyTorch's own tests of sparse all-reduce by gloo, and of DDP with sparse gradients, with zenc in its place.

The sums are those that ``torch.testing`` ships. ``peers_jobs`` retells its tests of DDP with gloo:
``test_sparse_gradients``, also with the gradient as a view of its bucket, and ``test_ddp_comm_hook_sparse_gradients``.
"""

from __future__ import annotations

import pytest

from tests.support.shipped import cases
from tests.torch.peers_jobs import SEAMS, SIMPLE, shipped_tests

JOBS = "tests.torch.peers_jobs:"


@pytest.mark.skipif(shipped_tests() is None, reason=f"this PyTorch does not ship {SIMPLE}")
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_simple_sparse_sums(four, inputs):
    """Every scheme for four ranks is tried, half of them at a time."""
    schemes = [name for name, _ in cases([4])][inputs % 2 :: 2]
    results = four.run(JOBS + "simple_sums", schemes=schemes, inputs=inputs)
    assert len(results[0]) == 6 * len(schemes) and all(result == results[0] for result in results)


@pytest.mark.parametrize("view", [False, True], ids=["copied", "view"])
@pytest.mark.parametrize("seam", SEAMS)
def test_sparse_gradients(four, seam, view):
    results = four.run(JOBS + "sparse_gradients", seam=seam, view=view)
    assert all(result == results[0] for result in results)
