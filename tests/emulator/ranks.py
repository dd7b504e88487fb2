"""Ranks of one communicator, each on a thread of its own."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.emulator.libraries import INT64, Failed, Libraries, UniqueId, on_ranks

INVALID_ARGUMENT, INVALID_USAGE = 4, 5
"""Results of NCCL."""
SUM = 0
"""A reduction of NCCL."""


@dataclass
class Rank:
    """A rank on its own thread, with a communicator and a stream."""

    libraries: Libraries
    number: int
    communicator: int
    stream: int

    def send(self, values: np.ndarray, peer: int) -> None:
        self.libraries.call("ncclSend", values.ctypes, values.size, INT64, peer, self.communicator, self.stream)

    def receive(self, values: np.ndarray, peer: int) -> None:
        self.libraries.call("ncclRecv", values.ctypes, values.size, INT64, peer, self.communicator, self.stream)

    def all_reduce(self, values: np.ndarray, out: np.ndarray, type: int, op: int) -> None:
        self.libraries.call(
            "ncclAllReduce", values.ctypes, out.ctypes, values.size, type, op, self.communicator, self.stream
        )

    def wait(self) -> int:
        """Return the asynchronous error when all is done."""
        self.libraries.call("cuStreamSynchronize", self.stream)
        return self.libraries.asynchronous_error(self.communicator)

    def message(self) -> str:
        return self.libraries.last_error(self.communicator)


def on_communicator(libraries: Libraries, size: int, body: Callable[[Rank], Any]) -> list[Any]:
    """Return the results of body(rank) on all ranks of a new communicator."""
    id = UniqueId()
    libraries.call("ncclGetUniqueId", ctypes.byref(id))

    def on_one(number: int) -> Any:
        libraries.make_current(number)
        communicator = libraries.new("ncclCommInitRank", size, id, number)
        stream = libraries.new("cuStreamCreate", 0)
        try:
            return body(Rank(libraries, number, communicator, stream))
        finally:
            try:
                libraries.call("ncclCommAbort", communicator)
            except Failed as problem:  # the body has destroyed it
                assert problem.code == INVALID_ARGUMENT
            libraries.call("cuStreamDestroy_v2", stream)

    return on_ranks(size, on_one)
