"""A lock between the processes of a node, which the system releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import BinaryIO

POLL_SECONDS = 0.05


def open_lock(path: Path) -> BinaryIO:
    """The lock file ``path``, not yet held. Closing it releases the lock. Raises OSError.

    The file stays behind: removing it while others wait would give two of them a lock of their own.
    """
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)


def acquire(lock: BinaryIO, deadline: float) -> bool:
    """Hold ``lock``, waiting for others until ``deadline`` (of time.monotonic). Returns whether it is held."""
    while True:
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
