"""Bytes that the kernels of a call move: no kernel walks over the tensor, or its rows, in vain."""

from __future__ import annotations

import pytest
import torch

from tests.support.call_traffic import all_reduce, counted, total
from tests.support.emulated_gpu import emulated_ranks
from tests.support.traffic import UNION, VALUE_BYTES, traffic_of_a_call
from zenc.api import compile

MOST_READS = {"qsgd": 3.6, "terngrad": 3.7, "one_bit": 5.2, "topk_a2a": 6.3, "ok_topk": 6.3, "dgc": 10.7}
"""Reads of a tensor of 131,072 float32 that a rank of two makes in a second call."""
pytestmark = pytest.mark.slow


def test_each_kernel_reads_once_what_it_reads():
    units = 1 << 16
    found = traffic_of_a_call(units)
    reads = [each.reads for each in found]
    packing, expanding = found[0], found[-1]
    assert packing.kernel == "pack_values_32" and expanding.kernel == "expand_values_32"
    assert 1 <= packing.loaded / (VALUE_BYTES * units) <= 1.05
    assert expanding.loaded <= 1.05 * units * (VALUE_BYTES * UNION + 1 / 8 + 1 / 64), "values, bitmaps, ranks"
    assert 1.5 < sum(reads) < 2.3, "the whole call, without its wire"
    assert all(each.reads > 0 for each in found)


@pytest.mark.parametrize("width", [128, 256])
def test_rows_are_read_and_written_once_by_each_kernel(width):
    """1 % of the rows of each rank; those of 1 KiB go in bulk."""
    units, size, n = 20_000, 2, 200
    torch.manual_seed(1)
    ids = [torch.randperm(units)[:n].sort().values for _ in range(size)]
    tensors = [
        torch.sparse_coo_tensor(own[None], torch.randn(n, width), (units, width), check_invariants=False) for own in ids
    ]
    with counted() as traffic:
        sums = all_reduce(emulated_ranks(compile("balanced", ranks=size), size), [each.coalesce() for each in tensors])
    bulk, union = "_bulk" if width == 256 else "", sums[0]._nnz()
    moved = {"place_once": (size * n, size * n), "merge_32": (size * n, union), "expand_units": (size * union,) * 2}
    for kernel, (read, written) in moved.items():
        loaded, stored = total(traffic, kernel + bulk)
        assert 1 <= loaded / (read * width * VALUE_BYTES) <= 1.05
        assert 1 <= stored / (written * width * VALUE_BYTES) <= 1.05


@pytest.mark.parametrize("scheme", MOST_READS)
def test_lossy_calls_of_dense_tensors(scheme):
    units, size = 1 << 17, 2
    torch.manual_seed(1)
    with counted() as traffic:
        ranks = emulated_ranks(compile(scheme, ranks=size), size)
        all_reduce(ranks, [torch.randn(units) for _ in range(size)])
        traffic.clear()
        all_reduce(ranks, [torch.randn(units) for _ in range(size)])
    assert 3 < sum(each.loaded + each.stored for each in traffic) / (VALUE_BYTES * units * size) < MOST_READS[scheme]
