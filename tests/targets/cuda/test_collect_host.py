"""The launchers of collect.h: with a memory of the right size, in the order that the kernels need."""

from __future__ import annotations

import ctypes
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.build import compiled, engine, kernels
from tests.emulator.libraries import Libraries
from tests.targets.cuda.conftest import INPUTS
from zenc.codegen.render import headers, include_dirs, render
from zenc.runtime.gpu.call_args import ALLOCATE, CallArgs
from zenc.wire.constants import CallOutcome

SOURCE = Path(__file__).with_name("collect.cpp")
FLAGS = ("-std=c++17", "-O0", "-g", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
RUBBISH = 0xA5A5A5A5


@pytest.fixture(scope="module")
def library():
    command = [*FLAGS, *(f"-I{path}" for path in include_dirs("cuda")), str(SOURCE)]
    texts = {**headers("cuda"), "collect.cpp": SOURCE.read_text("utf-8")}
    made = ctypes.CDLL(str(compiled(command, texts)))
    made.collect.restype, made.zenc_load_kernels.restype = ctypes.c_int64, ctypes.c_void_p
    made.shape.argtypes = (ctypes.c_double, ctypes.c_double, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)
    error = ctypes.create_string_buffer(200)
    assert made.zenc_bind(str(engine()).encode(), None, error, ctypes.c_uint64(200)), error.value
    return made


@settings(max_examples=100, deadline=None)
@given(r1=st.floats(0, 64), r2=st.floats(0, 8), n=st.integers(0, 1 << 40), parts=st.integers(1, 1 << 12))
def test_rows_have_their_share_of_the_cells(library, r1, r2, n, parts):
    out = np.zeros(3, np.uint64)
    library.shape(r1, r2, n, parts, out.ctypes.data)
    parallel, serial = (-(-ceil(each * n) // parts) for each in (r1, r2))
    assert out.tolist() == [parallel, serial, parts + -(-parts * (parallel + serial) // 2)]


@pytest.mark.parametrize(("r1", "r2"), [(2.0, 0.2), (0.25, 0.05), (0.0, 0.0)])
@pytest.mark.parametrize(("units", "n", "parts"), [(1, 0, 2), (300, 300, 7), (1000, 2500, 3)])
def test_launchers_collect_and_mark(library, hashing, at, units, n, parts, r1, r2):
    """By the kernels of the generated unit, in memory that holds rubbish at first."""
    tensors, rng = at.Tensors(hashing, hashing.geometry(units, 1, parts), at.DTYPES[0]), np.random.default_rng(5)
    bitmap, slots = np.zeros(tensors.geometry.words, np.uint64), np.full(n, -1, np.int64)
    ids, status, kept = rng.integers(0, units, n), np.zeros(1, np.uint64), []

    def allocate(_, size: int) -> int:
        kept.append(np.full(size // 4 + 64, RUBBISH, np.uint32))
        return -(-kept[-1].ctypes.data // 256) * 256

    libraries, error = Libraries(), ctypes.create_string_buffer(200)
    libraries.make_current(0)
    image = str(kernels(render(INPUTS["hierarchical_hash"], "cuda"))).encode()
    loaded = library.zenc_load_kernels(image, None, error, ctypes.c_uint64(200))
    assert loaded, error.value
    part_slots = np.array([tensors.geometry.slots_of(part) for part in range(parts)])
    call = CallArgs(units=units, width=1, tables=tensors.geometry.cut[3], r1=r1, r2=r2, n=n, kernels=loaded)
    call.part_slots = part_slots.ctypes.data
    call.ids, call.stream, call.allocate = ids.ctypes.data, libraries.new("cuStreamCreate", 0), ALLOCATE(allocate)
    outs = (ctypes.c_void_p(array.ctypes.data) for array in (bitmap, slots, status))
    assert library.collect(ctypes.byref(call), ctypes.c_int64(parts), *outs) == CallOutcome.DONE, call.message
    expected, places = tensors.mark_slots(ids)
    assert status[0] == 0 and np.array_equal(bitmap, expected) and np.array_equal(slots, places)
    libraries.call("cuStreamDestroy_v2", call.stream)
    library.zenc_unload_kernels(ctypes.c_void_p(loaded))
