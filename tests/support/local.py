"""Ranks as threads of one process: the whole run time but for gloo, fast enough for property tests."""

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from typing import Any
from unittest import mock

import torch

from tests.support.cases import same_bits, wrong_sums
from tests.support.meeting import Meeting
from zenc import pipeline
from zenc.api import compile_text
from zenc.codegen.artifact import Artifact
from zenc.plan.ir import Plan
from zenc.rank_ir.ir import RankProgram
from zenc.rank_ir.lower import lower_all
from zenc.runtime.call.call_queue import Worker
from zenc.runtime.call.collective import Collective
from zenc.runtime.cpu import library
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.load import collective_of
from zenc.runtime.transports.transport import Done, PacketTransport
from zenc.scheme.model import Mapping as SlotMapping


class _Mailboxes:
    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int, int], queue.SimpleQueue[torch.Tensor]] = defaultdict(queue.SimpleQueue)
        self.lock = threading.Lock()

    def box(self, src: int, dst: int, tag: int) -> queue.SimpleQueue[torch.Tensor]:
        with self.lock:
            return self.boxes[src, dst, tag]


class _Awaited:
    def __init__(self, box: queue.SimpleQueue[torch.Tensor], buffer: torch.Tensor) -> None:
        self.box, self.buffer = box, buffer

    def wait(self, seconds: float) -> torch.Tensor:
        try:
            packet = self.box.get(timeout=seconds)
        except queue.Empty:
            raise RuntimeError(f"nothing came in {seconds} s") from None
        self.buffer[: packet.numel()] = packet
        return self.buffer


class LocalTransport(PacketTransport):
    """A ``zenc.runtime.transports.transport.Transport`` between threads. ``on_send`` may change or drop a packet."""

    def __init__(
        self, boxes: _Mailboxes, rank: int, size: int, on_send: Callable[[torch.Tensor], torch.Tensor | None]
    ) -> None:
        self.boxes, self.rank, self.size, self.on_send = boxes, rank, size, on_send

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Done:
        packet = self.on_send(buffer.clone())
        if packet is not None:
            self.boxes.box(self.rank, peer, tag).put(packet)
        return Done(buffer)

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> _Awaited:
        return _Awaited(self.boxes.box(peer, self.rank, tag), buffer)

    def close(self) -> None:
        """Do nothing: threads end with their process."""


def collectives(
    artifact: Artifact,
    size: int,
    deadline: float = 20.0,
    on_send: Callable[[torch.Tensor], torch.Tensor | None] = lambda packet: packet,
) -> list[Collective]:
    return [of_rank for (of_rank,) in of_one_group([artifact], size, deadline, on_send)]


def of_one_group(
    artifacts: Sequence[Artifact],
    size: int,
    deadline: float = 20.0,
    on_send: Callable[[torch.Tensor], torch.Tensor | None] = lambda packet: packet,
) -> list[list[Collective]]:
    """Return by rank the collectives of all ``artifacts``, which share a communicator."""
    boxes, meeting = _Mailboxes(), Meeting(size)
    made = []
    for rank in range(size):
        transport = LocalTransport(boxes, rank, size, on_send)
        group: Any = meeting.group_of(rank)
        communicator = Communicator(lambda of=group: of, group, transport, Worker("test"))
        made.append([_loaded(artifact, communicator, deadline) for artifact in artifacts])
    return made


def _loaded(artifact: Artifact, communicator: Communicator, deadline: float) -> Collective:
    with mock.patch.object(pipeline, "lower_rank", _program), mock.patch.object(library, "load", _kernels):
        made = pipeline.backend(artifact, torch.device("cpu"), communicator, deadline)
    return collective_of(artifact, communicator, lambda _: made)


def _program(plan: Plan, size: int, rank: int) -> RankProgram:
    """Return ``rank``'s own program, of those that one proof makes for all."""
    return _programs(plan, size)[rank]


_programs = lru_cache(maxsize=64)(lower_all)


def _kernels(sources: Mapping[str, str], mapping: SlotMapping, **_: object) -> Kernels:
    """Return one library for all ranks that want the same."""
    return _opened(tuple(sources.items()), mapping)


@cache
def _opened(sources: tuple[tuple[str, str], ...], mapping: SlotMapping) -> Kernels:
    return LOAD(dict(sources), mapping)


LOAD = library.load


@lru_cache(maxsize=64)
def ranks_of(text: str, size: int, scheme: str | None = None) -> list[Collective]:
    """Return collectives of the scheme in ``text``, or of the one called ``scheme``."""
    return collectives(compile_text(text, ranks=size, scheme=scheme), size)


_POOL = ThreadPoolExecutor(max_workers=16)


def run_all(
    ranks: list[Collective], tensors: list[torch.Tensor], op: Any = "sum", **options: Any
) -> list[torch.Tensor]:
    """Run ``all_reduce`` on all ranks at once; raise the error of the lowest rank that failed."""
    return run_each([partial(rank.all_reduce, op=op, **options) for rank in ranks], tensors)


def sums(ranks: list[Collective], inputs: list[torch.Tensor], op: str = "sum") -> list[torch.Tensor]:
    """Return what two calls on copies of ``inputs`` give, and check that it is the right sum, and the same bits."""
    first, faults = _twice(ranks, inputs, op)
    assert faults == []
    return first


def faults_of(ranks: list[Collective], inputs: list[torch.Tensor], op: str = "sum") -> list[str]:
    """Return faults of two calls on copies of ``inputs``: wrong sums, or other bits the second time."""
    return _twice(ranks, inputs, op)[1]


def _twice(ranks: list[Collective], inputs: list[torch.Tensor], op: str) -> tuple[list[torch.Tensor], list[str]]:
    first, second = (run_all(ranks, [tensor.clone() for tensor in inputs], op) for _ in range(2))
    faults = wrong_sums(first, inputs, divisor=len(inputs) if op == "mean" else 1)
    return first, faults if same_bits([first[0], *second]) else [*faults, "the second call gave other bits"]


def run_each(of_ranks: list[Callable[[torch.Tensor], Any]], tensors: list[torch.Tensor]) -> list[Any]:
    """Run the function of each rank on its tensor, all at once; raise the error of the lowest rank that failed."""
    calls = [_POOL.submit(of_rank, tensor) for of_rank, tensor in zip(of_ranks, tensors, strict=True)]
    errors = [call.exception() for call in calls]
    for error in errors:
        if error is not None:
            raise error
    return [call.result() for call in calls]
