"""Ranks as threads of one process: the whole run time but for gloo, fast enough for property tests."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from tests.support.meeting import Meeting
from zenc.codegen.artifact import Artifact
from zenc.pipeline import backend
from zenc.runtime.call_queue import Worker
from zenc.runtime.collective import Collective
from zenc.runtime.communicator import Communicator
from zenc.runtime.load import collective_of


class _Mailboxes:
    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int, int], queue.SimpleQueue[torch.Tensor]] = defaultdict(queue.SimpleQueue)
        self.lock = threading.Lock()

    def box(self, src: int, dst: int, tag: int) -> queue.SimpleQueue[torch.Tensor]:
        with self.lock:
            return self.boxes[src, dst, tag]


class _Sent:
    def wait(self, seconds: float) -> None:
        return None


class _Awaited:
    def __init__(self, box: queue.SimpleQueue[torch.Tensor], buffer: torch.Tensor) -> None:
        self.box, self.buffer = box, buffer

    def wait(self, seconds: float) -> None:
        try:
            packet = self.box.get(timeout=seconds)
        except queue.Empty:
            raise RuntimeError(f"nothing came in {seconds} s") from None
        self.buffer[: packet.numel()] = packet


class LocalTransport:
    """As ``zenc.runtime.cpu.transport.Transport`` says, between threads. ``on_send`` may change or drop a packet."""

    def __init__(
        self, boxes: _Mailboxes, rank: int, size: int, on_send: Callable[[torch.Tensor], torch.Tensor | None]
    ) -> None:
        self.boxes, self.rank, self.size, self.on_send = boxes, rank, size, on_send

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> _Sent:
        packet = self.on_send(buffer.clone())
        if packet is not None:
            self.boxes.box(self.rank, peer, tag).put(packet)
        return _Sent()

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> _Awaited:
        return _Awaited(self.boxes.box(peer, self.rank, tag), buffer)

    def close(self) -> None:
        """Threads end with their process."""


def collectives(
    artifact: Artifact,
    size: int,
    deadline: float = 20.0,
    on_send: Callable[[torch.Tensor], torch.Tensor | None] = lambda packet: packet,
) -> list[Collective]:
    """One loaded collective for each of ``size`` ranks."""
    boxes, meeting = _Mailboxes(), Meeting(size)
    made = []
    for rank in range(size):
        transport = LocalTransport(boxes, rank, size, on_send)
        group: Any = meeting.group_of(rank)
        communicator = Communicator(group, group, transport, Worker("test"))
        made_here = backend(artifact, torch.device("cpu"), communicator, deadline)
        made.append(collective_of(artifact, communicator, lambda _, made_here=made_here: made_here))
    return made


_POOL = ThreadPoolExecutor(max_workers=16)


def run_all(
    ranks: list[Collective], tensors: list[torch.Tensor], op: Any = "sum", **options: Any
) -> list[torch.Tensor]:
    """``all_reduce`` on all ranks at once; raises the error of the lowest rank that failed."""
    calls = [_POOL.submit(rank.all_reduce, tensor, op, **options) for rank, tensor in zip(ranks, tensors, strict=True)]
    errors = [call.exception() for call in calls]
    for error in errors:
        if error is not None:
            raise error
    return [call.result() for call in calls]
