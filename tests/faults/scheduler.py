"""Scheduler of simulated threads: one runs at a time, and a seed alone says which; time jumps to the next event.

    Process = rank  Fiber*        Fiber = an operating system's thread, which runs while it has the baton

A fiber gives the baton on where it would block, and at points where the seed wants that. Whoever gives it on picks the
next fiber that is ready; where none is, the clock jumps to the next timer, and runs it. Nothing else is asynchronous,
so that the same seed plays the same run, to the bit.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
from collections.abc import Callable
from typing import ClassVar

REAL_SECONDS = 60.0
"""Seconds of real time that a run may take, where a fiber computes without end."""
MOST_SWITCHES = 300_000
"""Most handovers of a run; more are a livelock."""


class Killed(BaseException):
    """The end of a fiber whose process has died, or whose run is over."""


class Livelock(Exception):
    """A run that does not end."""


def _nothing() -> None:
    """Do nothing."""


class Process:
    """The fibers of one rank, which die and freeze together. ``slowness``: seconds of each handover to one of them."""

    def __init__(self, rank: int) -> None:
        self.rank, self.slowness = rank, 0.0
        self.dead = self.frozen = False
        self.parked: list[Fiber] = []


class Fiber:
    """A simulated thread. ``blocked``: it has given the baton on, and nothing has woken it yet."""

    def __init__(self, process: Process, function: Callable[[], None], carrier: Carrier, name: str) -> None:
        self.process, self.function, self.carrier, self.name = process, function, carrier, name
        self.blocked, self.killed, self.ended = False, False, False
        self.joiners: list[Fiber] = []


class Carrier:
    """A thread of the operating system that carries one fiber after another, of all runs."""

    idle: ClassVar[list[Carrier]] = []

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.work: Callable[[], None] = _nothing
        threading.Thread(target=self._loop, name="simulated", daemon=True).start()

    @classmethod
    def get(cls) -> Carrier:
        """Return an idle carrier."""
        return cls.idle.pop() if cls.idle else cls()

    def _loop(self) -> None:
        while True:
            self.baton.acquire()
            self.work()


class Scheduler:
    """The order of all events of a run. ``eager``: the share of points where another fiber may go on."""

    def __init__(self, seed: int, eager: float = 0.0) -> None:
        self.random, self.eager, self.now = random.Random(seed), eager, 0.0
        self.switches, self.digest = 0, 0
        self.fibers: list[Fiber] = []
        self.trouble: BaseException | None = None
        self._ready: list[Fiber] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._driver = threading.Lock()
        self._driver.acquire()
        self.current: Fiber | None = None

    def spawn(self, process: Process, function: Callable[[], None], name: str) -> Fiber:
        carrier = Carrier.get()
        fiber = Fiber(process, function, carrier, name)
        carrier.work = lambda: self._carry(fiber)
        self.fibers.append(fiber)
        fiber.blocked = True
        self.wake(fiber)
        return fiber

    def _carry(self, fiber: Fiber) -> None:
        function, fiber.function = fiber.function, _nothing  # what it refers to ends with it
        if not fiber.killed:
            try:
                function()
            except Killed:
                pass
            except BaseException as trouble:
                self.trouble = self.trouble or trouble
        del function
        fiber.ended, fiber.carrier.work = True, _nothing
        for joiner in fiber.joiners:
            self.wake(joiner)
        Carrier.idle.append(fiber.carrier)
        self._hand_on(None)

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Run ``event`` at ``time``, in seconds; never if infinite."""
        if time < math.inf:
            heapq.heappush(self._timers, (max(time, self.now), next(self._numbers), event))

    def wake(self, fiber: Fiber) -> None:
        """Let ``fiber`` check again whether it can go on, if its process can run."""
        process = fiber.process
        if not fiber.blocked or process.dead:
            return
        fiber.blocked = False
        if process.frozen:
            process.parked.append(fiber)
        elif process.slowness:
            self.at(self.now + process.slowness * self.random.random(), lambda: self._ready.append(fiber))
        else:
            self._ready.append(fiber)

    def thaw(self, process: Process) -> None:
        process.frozen, parked = False, process.parked
        process.parked = []
        self._ready += parked

    def block(self) -> None:
        """Give the baton on until this fiber is woken, for whatever reason."""
        fiber = self._own()
        fiber.blocked = True
        self._hand_on(fiber)
        if fiber.killed:
            raise Killed

    def pause(self) -> None:
        """Let another fiber go on if the seed says so; stay while the own process is frozen, or for ever if dead."""
        fiber = self._own()
        process = fiber.process
        if process.dead or process.frozen or (self.eager and self.random.random() < self.eager):
            fiber.blocked = True
            self.wake(fiber)
            self._hand_on(fiber)
            if fiber.killed:
                raise Killed

    def wait(self, waiting: list[Fiber], ready: Callable[[], bool], seconds: float) -> bool:
        """Wait in ``waiting`` until it is ``ready``, for at most ``seconds``; return whether it is."""
        if ready():
            return True
        fiber, end = self._own(), self.now + seconds
        self.at(end, lambda: self.wake(fiber))
        while not ready():
            if self.now >= end:
                return False
            waiting.append(fiber)
            try:
                self.block()
            finally:
                if fiber in waiting:
                    waiting.remove(fiber)
        return True

    def _own(self) -> Fiber:
        fiber = self.current
        assert fiber is not None, "only fibers block"
        if fiber.killed:
            raise Killed
        return fiber

    def _hand_on(self, fiber: Fiber | None) -> None:
        """Give the baton to the next fiber, or to the driver; return when ``fiber`` has it again."""
        following = self._picked()
        self.current = following
        if following is fiber and fiber is not None:
            return
        (following.carrier.baton if following else self._driver).release()
        if fiber is not None:
            fiber.carrier.baton.acquire()

    def _picked(self) -> Fiber | None:
        try:
            return self._next()
        except BaseException as trouble:  # of an event: a bug of the simulator
            self.trouble = self.trouble or trouble
            return None

    def _next(self) -> Fiber | None:
        self.switches += 1
        if self.switches > MOST_SWITCHES:
            raise Livelock(f"{MOST_SWITCHES} handovers, at {self.now:.3f} s")
        while True:
            while self._ready:
                place = int(self.random.random() * len(self._ready)) if len(self._ready) > 1 else 0
                fiber = self._ready.pop(place)
                if fiber.process.frozen:
                    fiber.process.parked.append(fiber)
                elif not fiber.process.dead:
                    self.digest = hash((self.digest, place, self.now))
                    return fiber
            if not self._timers:
                return None
            self.now, _, event = heapq.heappop(self._timers)
            event()

    def run(self) -> None:
        self._pass_baton()

    def _pass_baton(self) -> None:
        following = self._picked()
        self.current = following
        if following is not None:
            following.carrier.baton.release()
            if not self._driver.acquire(timeout=REAL_SECONDS):
                raise Livelock(f"{following.name} computes for {REAL_SECONDS:g} s")

    def unwind(self) -> list[Fiber]:
        """End the fibers that have not ended, one by one, and return them."""
        left = [fiber for fiber in self.fibers if not fiber.ended]
        self._timers.clear()
        self._ready.clear()
        for fiber in left:
            fiber.killed, fiber.blocked, self.current = True, False, fiber
            fiber.carrier.baton.release()
            if not self._driver.acquire(timeout=REAL_SECONDS):
                raise Livelock(f"{fiber.name} does not end when it is killed")
        return left
