"""gTop-k: each sum on its way is selected from anew, the same on all ranks that make it, and one of them keeps the rest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

import zenc
from tests.runtime.lossy.test_conservation import compiled, gradients
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact

Floats = npt.NDArray[np.float32]
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def top(values: Floats, k: int) -> Floats:
    """Return the ``k`` greatest of ``values``, of equals the first, and 0 elsewhere."""
    chosen = np.argsort(-np.abs(values), kind="stable")[:k]
    found = np.zeros_like(values)
    found[chosen] = values[chosen]
    return found


def gtop_k(of: list[Floats], k: int) -> tuple[Floats, list[Floats]]:
    """Return the result of gTop-k (ICDCS 2019, algorithms 2 and 3), and what each of 2^m ranks keeps."""
    held = [top(each, k) for each in of]
    left = [each - mine for each, mine in zip(of, held, strict=True)]
    distance = 1
    while distance < len(of):
        for rank in range(0, len(of), 2 * distance):
            both = held[rank] + held[rank + distance]
            held[rank] = top(both, k)
            left[rank] += both - held[rank]
        distance *= 2
    return held[0], left


@pytest.mark.parametrize("size", [2, 4])
def test_it_is_gtop_k(size: int) -> None:
    ranks = collectives(zenc.compile("gtop_k", ranks=size, params={"density": 0.05}), size)
    left = [np.zeros(200, dtype=np.float32) for _ in range(size)]
    for step in range(6):
        given = [torch.randn(200, generator=torch.Generator().manual_seed(9 * step + rank)) for rank in range(size)]
        found = run_all(ranks, [each.clone() for each in given], name="w")
        wanted, left = gtop_k([each.numpy() + rest for each, rest in zip(given, left, strict=True)], 10)
        assert all(each.numpy().tolist() == wanted.tolist() for each in found)
        assert int((found[0] != 0).sum()) <= 10
        kept = [rank.residual("w").numpy() for rank in ranks]
        assert all(a.tolist() == b.tolist() for a, b in zip(kept, left, strict=True))
