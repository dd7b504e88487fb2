"""Turns: the order of jobs of one worker, of which two may be under way at once.

    job k      begin ─ pack ─ send ─ pass_on ─ wait, merge, wait ─ settle ─ expand ─ end
    job k + 1                         begin ─ pack ─ send ─ wait, merge ............. settle ─ expand ─ end

A job begins when the one before has passed on or ended, and ends after it. One that does not pass on is alone from
beginning to end, and begins when all before have ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Touched:
    """The things that a job changes: the state under ``names``, and the memory from ``first`` to before ``end``."""

    names: frozenset[str]
    first: int = 0
    end: int = 0

    def meets(self, other: Touched) -> bool:
        """Return whether both change something in common."""
        return not self.names.isdisjoint(other.names) or (self.first < other.end and other.first < self.end)


def touched_by(tensor: torch.Tensor, names: frozenset[str]) -> Touched:
    """Return the changes of a sum of ``tensor``, of any shape: the tensor itself if dense, and the state by name."""
    if tensor.is_sparse or not tensor.numel():
        return Touched(names)
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Touched(names, tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size())


class Turn:
    """The turn of one job, used by the thread that runs it.

    ``touched``: compared with other jobs', it decides which this job may run beside; None: beside no other. ``ensure``
    raises where an earlier job has failed, after which this one must not go on.
    """

    def __init__(self, touched: Touched | None = None, ensure: Callable[[], None] = lambda: None) -> None:
        self.touched, self._ensure = touched, ensure
        self.exchanges = 0
        """The exchanges of the job that are still to come."""
        self._before: Turn | None = None
        self._let_next: Callable[[], None] = lambda: None
        self.passed = False
        """True once the next job may have begun."""
        self._over = threading.Lock()  # locked until the job has ended and all have been told; cheaper than an event
        self._over.acquire()

    def begin(self, before: Turn | None, let_next: Callable[[], None]) -> None:
        """Take the turn after ``before``; ``let_next`` lets the next job begin."""
        self._before, self._let_next = before, let_next
        if before and not (self.touched and before.touched and not self.touched.meets(before.touched)):
            self.wait()

    def pass_on(self) -> None:
        """Let the next job begin, at the latest when this one waits for other ranks; do nothing if it may not."""
        if self.touched is not None and not self.passed:
            self.passed = True
            self._let_next()

    def wait(self) -> None:
        """Wait until the job before has ended, well or not."""
        if self._before is not None:
            self._before._over.acquire()
            self._before._over.release()
            self._before = None

    def settle(self) -> None:
        """Wait until the job before has ended well; raises its error if it has not."""
        if self._before is not None:
            self.wait()
            self._ensure()

    def end(self) -> None:
        """End the turn, when the job has ended and all have been told."""
        self._over.release()

    @property
    def exchanges_before(self) -> int:
        """The exchanges that the job before still makes, each of which may take as long as a wait may."""
        return self._before.exchanges if self._before is not None and self._before._over.locked() else 0
