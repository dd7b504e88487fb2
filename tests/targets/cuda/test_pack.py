"""The launchers of mark, rank and place: in the order, and with the work space, that the kernels need."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.build import compiled
from tests.gpu.machine import Machine, emulated_gpu, gpu
from tests.support.emulated import Device
from tests.targets.cuda.conftest import MAPPINGS
from zenc.codegen.render import headers, include_dirs, render
from zenc.runtime.gpu.call_args import ALLOCATE, CallArgs
from zenc.scheme.model import Permutation
from zenc.wire.constants import DTYPE_NUMBERS

SOURCE = Path(__file__).with_name("pack.cpp")
FLAGS = ("-std=c++17", "-O0", "-g", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
FINE = (1 << 64) - 1


@pytest.fixture(scope="module", params=["emulated", pytest.param("real", marks=pytest.mark.gpu)])
def machine(request) -> Machine:
    return emulated_gpu() if request.param == "emulated" else gpu()


@pytest.fixture(scope="module")
def library(machine):
    command = [*FLAGS, *(f"-I{path}" for path in include_dirs("cuda")), str(SOURCE)]
    made = ctypes.CDLL(str(compiled(command, {**headers("cuda"), "pack.cpp": SOURCE.read_text("utf-8")})))
    made.pack.restype, made.zenc_load_kernels.restype = ctypes.c_uint64, ctypes.c_void_p
    error = ctypes.create_string_buffer(200)
    assert made.zenc_bind(machine.cuda.encode(), None, error, ctypes.c_uint64(200)), error.value
    return made


@pytest.fixture
def device(machine) -> Iterator[Device]:
    made = Device(0, machine)
    yield made
    made.close()


@pytest.fixture(params=MAPPINGS)
def pack(request, library, machine, device, kernels_of, at):
    """pack(units, width, parts, dtype, ids or None, values, divisor) -> (tensors, status, bitmap, counts, rows)"""
    host, error, mapping = kernels_of(request.param), ctypes.create_string_buffer(200), MAPPINGS[request.param]
    image = machine.image(render(type(mapping), "cuda"))
    loaded = library.zenc_load_kernels(image, None, ctypes.c_int64(machine.copies_in_bulk), error, ctypes.c_uint64(200))
    assert loaded, error.value
    allocate = ALLOCATE(lambda _, size: device.allocate(size))

    def there(array):
        return None if array is None else device.copy_bytes_in(array.ctypes.data, array.nbytes)

    def tables_of(geometry):
        words = geometry.tables.keep if geometry.sizes else None
        return None if words is None else device.copy_bytes_in(ctypes.addressof(words), ctypes.sizeof(words))

    def packed(units, width, parts, dtype, ids, values, divisor):
        tensors = at.Tensors(host, host.geometry(units, width, parts, dense=True), dtype)
        g, message = tensors.geometry, ctypes.create_string_buffer(512)
        part_slots = np.array([g.slots_of(part) for part in range(parts)])
        bitmap, counts, rows = np.zeros(g.words, np.uint64), np.zeros(parts, np.int64), tensors.values(units)
        call = CallArgs(
            units=units, width=width, dtype=DTYPE_NUMBERS[dtype.name], tables=tables_of(g),
            part_slots=part_slots.ctypes.data, ids=there(ids), n=0 if ids is None else len(ids),
            values=there(values), divisor=divisor, kernels=loaded, stream=device.streams[0],
            seed=getattr(mapping, "seed", 0), block=g.block if isinstance(mapping, Permutation) else 0,
            allocate=allocate,
        )  # fmt: skip
        outs = (ctypes.c_void_p(array.ctypes.data) for array in (bitmap, counts, rows))
        status = library.pack(ctypes.byref(call), ctypes.c_int64(parts), *outs, message)
        device.free_all()
        assert message.value == b""
        return tensors, status, bitmap, counts, rows[: counts.sum()]

    yield packed
    device.use()
    library.zenc_unload_kernels(ctypes.c_void_p(loaded))


def drawn_ids(units, n, rng):
    """Draw distinct ids if n is not above their number; else some come very often."""
    return rng.permutation(units)[:n] if n <= units else (units * rng.random(n) ** 4).astype(np.int64)


@pytest.mark.parametrize(("units", "width", "parts"), [(1, 1, 1), (65, 5, 9), (200, 1, 3), (70, 130, 2)])
def test_units_are_packed_as_by_the_cpu(pack, at, units, width, parts):
    rng = np.random.default_rng(9)
    for dtype, n in zip(at.DTYPES, (0, units // 2 + 1, units + 1, 6 * units), strict=True):
        ids, values = drawn_ids(units, n, rng), dtype.narrow(rng.standard_normal((n, width)))
        for divisor in (1, 3):
            tensors, status, *mine = pack(units, width, parts, dtype, ids, values, divisor)
            bitmap, rows = tensors.place_units(ids, values, divisor)
            assert status == FINE
            check(tensors, bitmap, rows, *mine)


@pytest.mark.parametrize(
    ("units", "width", "parts"), [(0, 3, 2), (200, 1, 3), (90, 7, 4), (20, 256, 3), (300, 2, 60), (9001, 1, 2)]
)
def test_dense_tensors_are_packed_as_by_the_cpu(pack, at, units, width, parts):
    """The table of 60 parts does not fit among a kernel's parameters."""
    rng = np.random.default_rng(10)
    for dtype, density in zip(at.DTYPES, (0.0, 0.1, 0.6, 1.0), strict=True):
        values = dtype.narrow(rng.standard_normal((units, width)) * (rng.random((units, 1)) < density))
        tensors, status, *mine = pack(units, width, parts, dtype, None, values, 2)
        bitmap, rows = tensors.place_dense(values, 2)
        assert status == FINE
        check(tensors, bitmap, rows, *mine)


def check(tensors, bitmap, rows, my_bitmap, my_counts, my_rows):
    assert np.array_equal(my_bitmap, bitmap)
    assert my_counts.tolist() == tensors.part_counts(bitmap)
    assert np.array_equal(my_rows.view(np.uint8), rows.view(np.uint8))


def test_an_id_out_of_range_is_told(pack, at):
    ids, values = np.array([1, 2, 10, 3]), np.zeros((4, 1), np.float32)
    assert pack(10, 1, 2, at.DTYPES[0], ids, values, 1)[1] == 2
