"""Traffic of whole calls over the emulator: sectors that kernels and copies of all ranks load and store.

with counted() as traffic:
    ranks = emulated_ranks(artifact, size)
    all_reduce(ranks, tensors)
traffic                                     # of each launch and copy

Each kernel is counted as by ``tests.support.traffic``; messages, which NCCL moves, and what PyTorch does are not.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from tests.emulator.build import counter, engine
from tests.emulator.libraries import Libraries
from tests.support.emulated_gpu import _POOL, EmulatedGpu, EmulatedRank
from tests.support.traffic import Traffic

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
