"""The meeting of ranks: strangers at gloo's ports make it start again, with a notice."""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from zenc.errors import SynchronisationError
from zenc.runtime.group import process_groups as meeting
from zenc.runtime.transports.connections import listening

SIZE = 3


def name_of(file: int) -> tuple[str, int]:
    with socket.socket(fileno=os.dup(file)) as at:
        host, port = at.getsockname()[:2]
        return host, port


class Strangers:
    """Strangers who say 8 bytes to so ``many`` ports, as soon as a rank has told others of its own.

    Gloo takes them for the number of a connection that it waits for.
    """

    def __init__(self, many: int) -> None:
        self.many, self.lock = many, threading.Lock()
        self.known = {name_of(file) for file in listening()}
        self.here: list[socket.socket] = []

    def come(self) -> None:
        with self.lock:
            for name in {name_of(file) for file in listening()} - self.known:
                self.known.add(name)
                for number in range(SIZE if self.many else 0):
                    self.here.append(socket.create_connection(name))
                    self.here[-1].sendall(struct.pack("<Q", number))
                self.many = max(0, self.many - 1)


class WatchedStore(dist.Store):
    """A store that tells strangers when a rank listens."""

    def __init__(self, real: dist.Store, strangers: Strangers) -> None:
        super().__init__()
        self.real, self.strangers = real, strangers

    def set(self, key: str, value: Any) -> None:
        if "made/" in key:
            self.strangers.come()
        self.real.set(key, value)

    def get(self, key: str) -> bytes:
        return self.real.get(key)

    def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=60)) -> None:
        self.real.wait(keys, timeout)


def met(many: int, deadline: float) -> list[Any]:
    """Return a group of each rank, or its error, where strangers disturb ``many`` ports."""
    real, strangers = dist.HashStore(), Strangers(many)

    def of(rank: int) -> Any:
        try:
            return meeting.meet(WatchedStore(real, strangers), rank, SIZE, deadline)
        except SynchronisationError as error:
            return error

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(of, range(SIZE)))


def summed(group: Any) -> list[float]:
    ones = torch.ones(2)
    group.allreduce([ones]).wait()
    return ones.tolist()


@pytest.mark.parametrize("many", [0, 2, 3])  # of three ranks one waits for nobody, whom a stranger disturbs in vain
def test_a_meeting_that_was_disturbed_is_made_again(many: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="zenc"):
        groups = met(many, 15.0)
    with ThreadPoolExecutor(SIZE) as pool:
        assert list(pool.map(summed, groups)) == [[3.0, 3.0]] * SIZE
    assert many or not caplog.records, "nothing had happened"
    assert not many or "disturbed, and are made again" in caplog.text


def test_a_meeting_that_is_disturbed_for_good_says_so_within_its_deadline() -> None:
    started = time.monotonic()
    errors = met(1000, 3.0)
    assert time.monotonic() - started < 15
    for error in errors:
        assert error.diagnostics[0].id == "deadline"
        assert "disturbed" in error.diagnostics[0].message
        assert "rank " in error.diagnostics[0].notes[0]


def test_too_few_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank names the lack of files, whichever has too few."""
    real = dist.ProcessGroupGloo

    def made(store: Any, rank: int, *given: Any) -> Any:
        if rank == 1:
            raise RuntimeError(f"[socket.cpp] socket: {os.strerror(errno.EMFILE)}")
        return real(store, rank, *given)

    monkeypatch.setattr(meeting, "_is_settable", lambda: True)
    monkeypatch.setattr(meeting.dist, "ProcessGroupGloo", made)
    for error in met(0, 3.0):
        assert error.diagnostics[0].id == "too-few-connections"
        assert error.diagnostics[0].message.startswith("rank 1 can't open")
