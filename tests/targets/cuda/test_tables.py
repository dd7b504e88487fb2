"""Cuts of units for a GPU: sizes and tables are those of the CPU's kernels, made and uploaded once."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.emulated import interpreter
from tests.support.fuzz import tried
from zenc.errors import TensorError
from zenc.runtime.gpu.call_args import CallArgs
from zenc.runtime.gpu.library import CallLibrary
from zenc.runtime.gpu.partition import DevicePartitions
from zenc.scheme.model import Contiguous, HierarchicalHash, Permutation
from zenc.wire.partitioning import part_sizes

MAPPING = HierarchicalHash(3, 2.0, 0.2, 0x5EED)


@pytest.fixture(scope="module")
def library() -> CallLibrary:
    """The library that plays calls; none is made here."""
    return interpreter()


class Uploads:
    """Stand-in for a GPU's memory."""

    def __init__(self) -> None:
        self.copies: list[np.ndarray] = []

    def __call__(self, words: ctypes.Array[ctypes.c_uint64]) -> tuple[int, object]:
        copy = np.array(words, np.uint64)
        self.copies.append(copy)
        return copy.ctypes.data, copy


@settings(max_examples=tried(60), deadline=None)
@given(units=st.integers(0, 2000), parts=st.integers(1, 9), k=st.integers(1, 16))
def test_tables_are_those_of_the_cpu(library, hashing, units, parts, k):
    uploads, call = Uploads(), CallArgs()
    cut = DevicePartitions(HierarchicalHash(k, 1.5, 0.25, MAPPING.seed), parts, library, uploads).of(units, 1)
    expected = hashing.geometry(units, 1, parts).tables
    assert np.array_equal(uploads.copies[0], np.array(expected.keep, np.uint64))
    assert list(cut.part_slots) == list(expected.sizes) == part_sizes(MAPPING, units, 1, parts)
    cut.fill(call)
    assert call.tables == uploads.copies[0].ctypes.data
    assert call.part_slots == ctypes.addressof(cut.part_slots)


@pytest.mark.parametrize(
    ("mapping", "width", "sizes"),
    [(Contiguous(), 1, [25, 25, 25, 25]), (Permutation(7), 2, [25, 25, 25, 25]), (Permutation(7), 1, [32, 32, 32, 4])],
)
def test_other_mappings_cut_equally_and_need_no_tables(library, mapping, width, sizes):
    uploads, call = Uploads(), CallArgs(tables=1)
    cut = DevicePartitions(mapping, 4, library, uploads).of(100, width)
    cut.fill(call)
    assert list(cut.part_slots) == part_sizes(mapping, 100, width, 4) == sizes
    assert (call.tables, uploads.copies) == (None, [])


def test_tables_in_use_are_shared_and_others_dropped(library):
    uploads = Uploads()
    cuts = DevicePartitions(MAPPING, 3, library, uploads)
    first, second = cuts.of(500, 1), cuts.of(500, 8)
    assert first is second and len(uploads.copies) == 1
    assert cuts.of(501, 1) is not first and len(uploads.copies) == 2
    del first, second
    gc.collect()
    cuts.of(500, 1)
    assert len(uploads.copies) == 3


def test_too_many_units_are_refused(library):
    with pytest.raises(TensorError) as raised:
        DevicePartitions(MAPPING, 3, library, Uploads()).of(1 << 32, 1)
    (found,) = raised.value.diagnostics
    assert found.id == "tensor-too-large" and "balanced by permutation" in found.help
