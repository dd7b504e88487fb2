"""Locks, queues, threads and clocks of the simulation, in the place of Python's in modules of the run time.

The run time asks ``threading``, ``queue`` and ``time`` for them by these names, and so gets them from a run that is
under way: it has no seam of its own, and what it will use of these modules tomorrow is simulated or an error.
"""

from __future__ import annotations

import math
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.faults.scheduler import Fiber, Killed, Scheduler
from zenc.runtime.transports import block_pool

_runs: list[Scheduler] = []


def active() -> Scheduler:
    return _runs[-1]


class Lock:
    """``threading.Lock`` of the simulation."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: list[Fiber] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        run = active()
        run.pause()
        if self._held and not (blocking and run.wait(self._waiting, self._free, math.inf if timeout < 0 else timeout)):
            return False
        self._held = True
        return True

    def _free(self) -> bool:
        return not self._held

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if self._waiting:
            active().wake(self._waiting[0])

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimpleQueue:
    """``queue.SimpleQueue`` of the simulation."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: list[Fiber] = []

    def __class_getitem__(cls, _: object) -> type[SimpleQueue]:
        return cls

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            active().wake(self._waiting[0])

    def get(self, timeout: float = math.inf) -> Any:
        if not active().wait(self._waiting, lambda: bool(self._items), timeout):
            raise queue.Empty
        return self._items.popleft()


class Thread:
    """``threading.Thread`` of the simulation, in the process of the fiber that starts it."""

    def __init__(
        self, target: Callable[..., None], name: str = "", daemon: bool = False, args: tuple[Any, ...] = ()
    ) -> None:
        self._target, self._name, self._args = target, name or getattr(target, "__name__", "thread"), args
        self._fiber: Fiber | None = None

    def start(self) -> None:
        run = active()
        assert run.current is not None
        if run.current.killed:
            raise Killed
        self._fiber = run.spawn(run.current.process, lambda: self._target(*self._args), self._name)

    def join(self, timeout: float | None = None) -> None:
        fiber = self._fiber
        assert fiber is not None
        active().wait(fiber.joiners, lambda: fiber.ended, math.inf if timeout is None else timeout)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.ended


def _now() -> float:
    return active().now


STAND_INS = {
    "threading": SimpleNamespace(Lock=Lock, Thread=Thread, get_ident=threading.get_ident, local=threading.local),
    "queue": SimpleNamespace(SimpleQueue=SimpleQueue, Empty=queue.Empty),
    "time": SimpleNamespace(
        perf_counter=_now, monotonic=_now, sleep=lambda seconds: active().wait([], lambda: False, seconds)
    ),
}
SIMULATED = ("zenc.runtime.", "zenc.torch.")
REAL = ("zenc.runtime.cpu.kernels",)
"""Modules whose locks guard what all ranks of this process share, and are held over no wait."""


def _modules() -> list[ModuleType]:
    return [of for name, of in list(sys.modules.items()) if name.startswith(SIMULATED) and name not in REAL]


@contextmanager
def simulated(run: Scheduler) -> Iterator[None]:
    """Give the modules of the run time the locks, threads and clocks of ``run``.

    The process's pool of memory, which all ranks here and later tests share, keeps its own.
    """
    block_pool.own_room(1)
    replaced = [
        (module, name, getattr(module, name))
        for module in _modules()
        for name in STAND_INS
        if getattr(module, name, None) is sys.modules.get(name)
    ]
    for module, name, _ in replaced:
        setattr(module, name, STAND_INS[name])
    _runs.append(run)
    try:
        yield
    finally:
        _runs.pop()
        for module, name, real in replaced:
            setattr(module, name, real)
