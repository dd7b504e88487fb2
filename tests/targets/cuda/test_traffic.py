"""Bytes that the kernels of a dense call of single values move, counted: no kernel walks over the tensor in vain."""

from __future__ import annotations

from tests.support.traffic import traffic_of_a_call


def test_a_call_takes_three_reads_of_the_tensor():
    found = traffic_of_a_call()
    reads = [each.reads for each in found]
    assert [each.kernel for each in found[:3]] == ["mark_dense_f32", "rank", "place_dense_f32"]
    assert 1 < sum(reads[:3]) < 1.6, "packing"
    assert 2.1 < sum(reads) < 3.2, "the whole call, without its wire"
    assert all(each.loaded > 0 and each.stored > 0 for each in found)
