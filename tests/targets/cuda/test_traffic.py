"""Bytes that the kernels of a dense call of single values move, counted: no kernel walks over the tensor in vain."""

from __future__ import annotations

from tests.support.traffic import traffic_of_a_call


def test_a_call_takes_two_reads_of_the_tensor():
    found = traffic_of_a_call()
    reads = [each.reads for each in found]
    assert found[0].kernel == "pack_values_32"
    assert 1 < reads[0] < 1.15, "packing"
    assert 1.5 < sum(reads) < 2.1, "the whole call, without its wire"
    assert all(each.loaded > 0 and each.stored > 0 for each in found)
