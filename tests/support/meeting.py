"""A group of ranks that are threads, with the methods that loading uses to gather data."""

import threading
from typing import Any

import torch

from zenc.runtime.call.call_queue import Worker
from zenc.runtime.group.communicator import Communicator


class Meeting:
    """The meeting place of the ranks of a group, with the methods that loading uses."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.shown: list[torch.Tensor | None] = [None] * size
        self.barrier = threading.Barrier(size)

    def group_of(self, rank: int) -> Any:
        return _Group(self, rank)


class _Group:
    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank, self.aborted = meeting, rank, False

    def allgather(self, output: list[list[torch.Tensor]], tensors: list[torch.Tensor]) -> Any:
        self.meeting.shown[self.rank] = tensors[0]
        self.meeting.barrier.wait(60)
        for into, shown in zip(output[0], self.meeting.shown, strict=True):
            assert shown is not None
            into.copy_(shown)
        self.meeting.barrier.wait(60)
        return self

    def allreduce(self, tensors: list[torch.Tensor]) -> Any:
        every = [torch.empty_like(tensors[0]) for _ in range(self.meeting.size)]
        self.allgather([every], tensors)
        torch.sum(torch.stack(every), 0, dtype=tensors[0].dtype, out=tensors[0])
        return self

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        """Refuse: threads have no connections to end."""
        return self

    def wait(self, _: object = None) -> None:
        """Return at once: all has been gathered."""

    def abort(self) -> None:
        self.aborted = True


class _Ranked:
    """A transport that knows its rank, and is used for nothing else."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def release(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def communicator_of(meeting: Meeting, rank: int) -> Communicator:
    group, transport = meeting.group_of(rank), _Ranked(rank, meeting.size)

    def parent() -> Any:
        return group

    return Communicator(parent, group, transport, Worker(f"gpu-{rank}"))  # type: ignore[arg-type]
