"""Ranges of a call: pack, push 1, merge, ..., expand, as torch's profiler and a Recorder of zenc's own see them.

    with ranges.within("push", 1): ...        # costs next to nothing unless somebody looks

    call > pack, announce i, push i, merge, pull i, expand         # of a call on a GPU: call > kernels and messages

Ranges know the call that their thread is in, and so the name of its tensor. torch's profiler sees those of its own
thread, and of zenc's threads where it was told to look at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType

import torch.autograd.profiler as torch_profiler

MOST_KEPT = 1_000_000
"""Of the ranges of a recorder; those after them are dropped."""


@dataclass(frozen=True, slots=True)
class Range:
    """A span of a rank's time, ``start`` to ``end``, seconds of ``time.perf_counter``, in ``call`` of ``tensor``."""

    what: str
    tensor: str
    call: int
    start: float
    end: float


@dataclass(slots=True)
class Recorder:
    """Keeps ranges as they end, of whichever thread."""

    ranges: list[Range] = field(default_factory=list)
    dropped: int = 0

    def add(self, ended: Range) -> None:
        """Keep ``ended``; beyond ``MOST_KEPT`` it is only counted as dropped."""
        if len(self.ranges) < MOST_KEPT:
            self.ranges.append(ended)
        else:
            self.dropped += 1


class _Here(threading.local):
    """The call that a thread is in."""

    recorder: Recorder | None = None
    tensor = ""
    call = 0


_here = _Here()
_show: Callable[[str], AbstractContextManager[object]] = torch_profiler.record_function
_NOTHING: AbstractContextManager[None] = nullcontext()


def profiling() -> bool:
    """Whether torch's profiler runs, in whichever thread."""
    return bool(getattr(torch_profiler, "_is_profiler_enabled", False))


def of_call(recorder: Recorder | None, tensor: str, call: int) -> AbstractContextManager[None]:
    """The range of a whole call; those within it are of ``tensor``, and go to ``recorder``."""
    return _NOTHING if recorder is None and not profiling() else _Call(recorder, tensor, call)


def within(what: str, number: int = 0) -> AbstractContextManager[None]:
    """A range of the call that this thread is in: ``what``, and the number of a step from 1."""
    if _here.recorder is None and not profiling():
        return _NOTHING
    return _Range(f"{what} {number}" if number else what)


class _Range(AbstractContextManager[None]):
    """One range, for whoever looks when it begins."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.start: float
        self._shown: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        if profiling():
            self._shown = _show(" ".join(filter(None, ("zenc", self.what, _here.tensor))))
            self._shown.__enter__()
        self.start = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _here.recorder is not None:
            _here.recorder.add(Range(self.what, _here.tensor, _here.call, self.start, time.perf_counter()))
        if self._shown is not None:
            self._shown.__exit__(kind, error, trace)


class _Call(_Range):
    """The range of a call, which sets what ranges within it are of."""

    def __init__(self, recorder: Recorder | None, tensor: str, call: int) -> None:
        super().__init__("call")
        self._of = recorder, tensor, call
        self._before: tuple[Recorder | None, str, int] = (None, "", 0)

    def __enter__(self) -> None:
        self._before = _here.recorder, _here.tensor, _here.call
        _here.recorder, _here.tensor, _here.call = self._of
        super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        _here.recorder, _here.tensor, _here.call = self._before
