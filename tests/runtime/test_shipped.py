"""Every scheme that comes with zenc sums exactly, for 1 to 9 ranks and 16, with sparse and dense gradients."""

from __future__ import annotations

import pytest
import torch

import zenc
from tests.support.cases import KINDS, assert_sums, dense_tensor, sparse_tensor
from tests.support.local import collectives, run_all
from zenc.scheme.library import shipped


@pytest.mark.parametrize("name", [entry["name"] for entry in shipped()])
@pytest.mark.parametrize("size", [*range(1, 10), 16])
def test_it_sums(name, size):
    ranks = collectives(zenc.compile(str(name), ranks=size), size)
    for turn, kind in enumerate(KINDS):
        width, units = (1, 5, 64)[turn % 3], (1, 63, 200)[(turn + size) % 3]
        make = dense_tensor if turn % 4 == 3 else sparse_tensor
        inputs = [make(kind, rank, size, units, width, torch.float32, turn) for rank in range(size)]
        results = run_all(ranks, [tensor.clone() for tensor in inputs], "mean" if turn % 2 else "sum")
        assert_sums(results, inputs, divisor=size if turn % 2 else 1)
