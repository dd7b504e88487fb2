"""Bytes that the kernels of a call move: no kernel walks over the tensor, or its rows, in vain."""

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch

from tests.emulator.build import counter, engine
from tests.emulator.libraries import Libraries
from tests.support.emulated_gpu import _POOL, EmulatedGpu, EmulatedRank, emulated_ranks
from tests.support.traffic import UNION, VALUE_BYTES, Traffic, traffic_of_a_call
from zenc.api import compile

_WATCHER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)
_OF_DRIVER = "cu"


class _Watch:
    """The traffic of what runs on the emulator, launch by launch."""

    def __init__(self) -> None:
        self.found: list[Traffic] = []
        self._counter = ctypes.CDLL(str(counter()))
        self._one = threading.Lock()
        self._called = _WATCHER(self._watch)
        self._engine = ctypes.CDLL(str(engine()))

    def begin(self) -> None:
        self._counter.count_everywhere(self._engine.emulator_is_of_block)
        self._set(ctypes.cast(self._called, ctypes.c_void_p).value)

    def end(self) -> None:
        self._set(None)
        self._counter.count_everywhere(None)

    def _set(self, address: int | None) -> None:
        ctypes.c_void_p.in_dll(self._engine, "emulator_watcher").value = address

    def _watch(self, name: bytes, what: int) -> None:
        """Count one launch at a time: ``what`` is 0 before and 1 after it; of a copy it is its bytes."""
        kernel = name.decode().removeprefix("zenc_")
        if kernel.startswith(_OF_DRIVER):
            self.found.append(Traffic(kernel, what, 0))
            return
        if what == 0:
            self._one.acquire()
        bytes_of = (ctypes.c_uint64 * 2)()
        self._counter.take_traffic(bytes_of)
        if what == 1:
            self.found.append(Traffic(kernel, *bytes_of))
            self._one.release()


@contextmanager
def counted() -> Iterator[list[Traffic]]:
    """Count what ranks that are made within do; the list grows until they are done."""
    watch, EmulatedGpu.mode = _Watch(), "counted"
    watch.begin()
    try:
        yield watch.found
    finally:
        watch.end()
        EmulatedGpu.mode = None


def all_reduce(ranks: Sequence[EmulatedRank], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the sums of all ranks, when all that they have put on streams is done."""

    def one(rank: EmulatedRank, tensor: torch.Tensor) -> torch.Tensor:
        rank.gpu.make_current()
        result = rank.collective.all_reduce(tensor, name="tensor")
        Libraries().call("cuStreamSynchronize", rank.gpu.stream())
        return result

    calls = [_POOL.submit(one, *each) for each in zip(ranks, tensors, strict=True)]
    return [call.result() for call in calls]


def total(traffic: Sequence[Traffic], kernel: str) -> tuple[int, int]:
    """Return the bytes that all launches of ``kernel`` have loaded and stored."""
    of = [each for each in traffic if each.kernel == kernel]
    return sum(each.loaded for each in of), sum(each.stored for each in of)


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
    """1 % of the rows of each rank."""
    units, size, n = 20_000, 2, 200
    torch.manual_seed(1)
    ids = [torch.randperm(units)[:n].sort().values for _ in range(size)]
    tensors = [
        torch.sparse_coo_tensor(own[None], torch.randn(n, width), (units, width), check_invariants=False) for own in ids
    ]
    with counted() as traffic:
        sums = all_reduce(emulated_ranks(compile("balanced", ranks=size), size), [each.coalesce() for each in tensors])
    union = sums[0]._nnz()
    moved = {"place_once_32": (size * n, size * n), "merge_32": (size * n, union), "expand_units": (size * union,) * 2}
    for kernel, (read, written) in moved.items():
        loaded, stored = total(traffic, kernel)
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
