"""Ranges of a call: pack, push 1, merge, ..., expand, as torch's profiler and a Recorder of zenc's own see them.

    with ranges.within("push", 1): ...        # costs next to nothing unless somebody looks

    call > pack, announce i, push i, merge, pull i, expand         # of a call on a GPU: call > kernels and messages

Ranges know the call that their thread is in, and so the name of its tensor. torch's profiler sees those of its own
thread, and of zenc's threads where it was told to watch all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch.autograd.profiler as torch_profiler

MOST_KEPT = 1_000_000
"""Most ranges of a recorder; later ones are dropped."""


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
    """A recorder of ranges as they end, of whichever thread."""

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
NOTHING: AbstractContextManager[None] = nullcontext()
"""The range of what nobody watches."""
profiling: Callable[[], bool] = partial(getattr, torch_profiler, "_is_profiler_enabled", False)
"""Return whether torch's profiler runs, in whichever thread."""


def is_watched() -> bool:
    """Return whether anybody watches the ranges of this thread."""
    return _here.recorder is not None or profiling()


def of_call(recorder: Recorder | None, tensor: str, call: int) -> AbstractContextManager[None]:
    """Return the range of a whole call; those within it are of ``tensor``, and go to ``recorder``."""
    return NOTHING if recorder is None and not profiling() else _call(recorder, tensor, call)


def within(what: str, number: int = 0) -> AbstractContextManager[None]:
    """Return a range of the call that this thread is in: ``what``, and the number of a step from 1."""
    if not is_watched():
        return NOTHING
    return _range(f"{what} {number}" if number else what)


@contextmanager
def _range(what: str) -> Iterator[None]:
    """Enter one range, for all that watch when it begins."""
    shown = _show(" ".join(filter(None, ("zenc", what, _here.tensor)))) if profiling() else NOTHING
    with shown:
        start = time.perf_counter()
        try:
            yield
        finally:
            if _here.recorder is not None:
                _here.recorder.add(Range(what, _here.tensor, _here.call, start, time.perf_counter()))


@contextmanager
def _call(recorder: Recorder | None, tensor: str, call: int) -> Iterator[None]:
    """Enter the range of a call, which sets the tensor and the recorder of ranges within it."""
    before = _here.recorder, _here.tensor, _here.call
    _here.recorder, _here.tensor, _here.call = recorder, tensor, call
    try:
        with _range("call"):
            yield
    finally:
        _here.recorder, _here.tensor, _here.call = before
