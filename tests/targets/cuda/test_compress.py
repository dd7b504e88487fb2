"""Codes on emulated GPUs: bytes, meaning and losses are the CPU's, bit for bit."""

import ctypes
import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator.device import Device
from tests.support.emulated import interpreter
from tests.support.fuzz import tried
from tests.support.nvrtc import compiled_by
from tests.support.ptx import declared, entries, usages
from tests.support.refusals import refusals
from tests.targets.conftest import Dtype
from tests.targets.cpu.test_compress import BLOCK_CODES, Drawn
from zenc.codegen.build.nvrtc import Nvrtc
from zenc.codegen.render import COMPRESSION, compression_unit
from zenc.errors import TensorError
from zenc.runtime.gpu.call_args import CallArgs
from zenc.runtime.gpu.library import CallLibrary
from zenc.runtime.gpu.partition import DevicePartitions
from zenc.runtime.lossy.kernels import compression_kernels
from zenc.scheme.compression import Code, Fixed
from zenc.scheme.model import Contiguous, HierarchicalHash, Permutation
from zenc.wire.codes import code_parameters, encoded_bytes
from zenc.wire.partitioning import part_sizes

SOURCE = compression_unit()[COMPRESSION]
DTYPES = {"f32": Dtype("f32", np.float32), "f16": Dtype("f16", np.float16), "bf16": Dtype("bf16", np.uint16)}


@pytest.fixture(scope="module")
def coder(opened) -> Device:
    return opened({"kernels.cu": SOURCE})


class CodedRow(ctypes.Structure):
    """A table of one row, as ``templates/shared/zenc/compress/coding.h`` has it; it keeps its ``arrays``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("values", "bytes", "loss")),
        *(("n", ctypes.c_uint64), ("key", ctypes.c_uint64), ("facts", ctypes.c_void_p), ("work", ctypes.c_void_p)),
        ("code", ctypes.c_int64 * 4),
        ("meaning", ctypes.c_void_p),
        ("how", ctypes.c_uint64),
        ("before", ctypes.c_void_p),
    )


SETS_LOSS, CLEARS_SIGNS = 1, 2


def coded_row(
    values: np.ndarray,
    out: np.ndarray,
    loss: np.ndarray | None,
    n: int,
    code: Code,
    facts: np.ndarray | None = None,
    how: int = 0,
) -> CodedRow:
    """Return the row of ``values`` [n] and their results, whose addresses a GPU's launch translates."""
    arrays = (values, out, loss, facts)
    first, second, third, fourth = (None if array is None else array.ctypes.data for array in arrays)
    row = CodedRow(first, second, third, n, 7, fourth, None, code_parameters(code), first, how)
    row.arrays = tuple(array for array in arrays if array is not None)
    return row


@pytest.mark.parametrize("code", BLOCK_CODES, ids=repr)
@pytest.mark.parametrize(
    ("n", "dtype", "kind"), [(3000, "f32", "special"), (1024, "f16", "normal"), (161, "bf16", "ties")]
)
def test_codes_are_those_of_the_cpu(coder: Device, code: Code, n: int, dtype: str, kind: str) -> None:
    stored, size = DTYPES[dtype].narrow(Drawn.of(n, n, kind)), encoded_bytes(code, n)
    known, out = np.zeros(size + 8, np.uint8), np.zeros(size + 8, np.uint8)
    decoded, loss = stored.copy(), np.ones(n, np.float32)
    addresses = [array.ctypes.data for array in (decoded, known, decoded, loss)]
    compression_kernels().encode(code, dtype, n, *addresses, key=7)
    mine, lost, back = stored.copy(), np.ones(n, np.float32), np.zeros_like(stored)
    for work in ("scale_rows", "encode_rows"):
        coder.launch(f"zenc_{work}_{dtype}", (2, 1), [coded_row(mine, out, lost, n, code), 1])
    assert out.tobytes() == known.tobytes()
    assert mine.tobytes() == decoded.tobytes() and np.array_equal(lost, loss, equal_nan=True)
    coder.launch(f"zenc_decode_rows_{dtype}", (3, 1), [coded_row(back, out, None, n, code), 1])
    assert back.tobytes() == decoded.tobytes()


@pytest.mark.parametrize("code", BLOCK_CODES, ids=repr)
def test_zeros_lose_their_signs_and_losses_are_set(coder: Device, code: Code) -> None:
    n = 3000
    values = np.where(np.arange(n) % 3 == 0, -0.0, Drawn.of(n, n, "normal")).astype(np.float32)
    found = []
    for how, stored, before in ((0, values + 0.0, 0.0), (SETS_LOSS | CLEARS_SIGNS, values, 7.0)):
        mine, lost, out = stored.copy(), np.full(n, before, np.float32), np.zeros(encoded_bytes(code, n) + 8, np.uint8)
        for work in ("scale_rows", "encode_rows"):
            coder.launch(f"zenc_{work}_f32", (2, 1), [coded_row(mine, out, lost, n, code, how=how), 1])
        found.append((out.tobytes(), mine.tobytes(), lost.tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize(("n", "bits", "last"), [(3000, 8, 0.5), (1024, 3, 0.09375), (161, 16, -np.inf), (1, 5, 0.0)])
def test_integers_are_those_of_the_cpu(coder: Device, n: int, bits: int, last: float) -> None:
    most = (1 << (bits - 1)) - 1
    values = (np.random.default_rng(n).integers(-most, most + 1, n) * 2.0**-5).astype(np.float32)
    values[-1] = last
    code, out = Fixed(bits), np.full(encoded_bytes(Fixed(bits), n) + 8 & ~7, 255, np.uint8)
    known, facts, back, again = np.zeros_like(out), np.zeros(2, np.uint64), np.zeros_like(values), np.zeros_like(values)
    compression_kernels().encode(code, "f32", n, values.ctypes.data, known.ctypes.data)
    row = coded_row(values, out, None, n, code, facts)
    for work in ("scale_rows", "encode_rows"):
        coder.launch(f"zenc_{work}_f32", (2, 1), [row, 1])
    assert out.tobytes() == known.tobytes()
    coder.launch("zenc_decode_rows_f32", (3, 1), [coded_row(back, out, None, n, code), 1])
    compression_kernels().decode(code, "f32", n, known.ctypes.data, encoded_bytes(code, n), again.ctypes.data)
    assert back.tobytes() == again.tobytes()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_kernels_compile_and_spill_nothing(nvrtc: Nvrtc, arch: str) -> None:
    told = compiled_by(nvrtc.path, SOURCE, arch)
    found = {usage.name: usage for usage in usages(told.log)}
    assert set(entries(told.ptx)) == set(declared(SOURCE)) == set(found)
    assert all(usage.spilled == 0 and usage.registers <= 128 for usage in found.values())


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
    (found,) = refusals(TensorError, DevicePartitions(MAPPING, 3, library, Uploads()).of, 1 << 32, 1)
    assert found.id == "tensor-too-large" and "balanced by permutation" in found.help
