"""Bytes that the kernels of a dense call of single values move: no kernel walks over the tensor in vain."""

from __future__ import annotations

from tests.support.traffic import UNION, UNITS, VALUE_BYTES, traffic_of_a_call


def test_each_kernel_reads_once_what_it_reads():
    found = traffic_of_a_call()
    reads = [each.reads for each in found]
    packing, expanding = found[0], found[-1]
    assert packing.kernel == "pack_values_32" and expanding.kernel == "expand_values_32"
    assert 1 <= packing.loaded / (VALUE_BYTES * UNITS) <= 1.05
    assert expanding.loaded <= 1.05 * UNITS * (VALUE_BYTES * UNION + 1 / 8 + 1 / 64), "values, bitmaps, ranks"
    assert 1.5 < sum(reads) < 2.3, "the whole call, without its wire"
    assert all(each.reads > 0 for each in found)
