"""Course of a disturbance, beside the calls that suffer it."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from benchmarks.lab.faults.disturbances import AFTER, VICTIM, Disturbance
from zenc.lab.impairment import CLEAN, ImpairedCluster

PERIOD = 0.1
"""Seconds of a period, for a share of which a slowed process is stopped."""


@contextmanager
def happening(cluster: ImpairedCluster, by: Disturbance, process: int) -> Iterator[Callable[[], None]]:
    """Disturb ``cluster``, and the victim's ``process``, while the block runs; the yielded function ends it earlier."""
    over = threading.Event()
    thread = threading.Thread(target=_happen, args=(cluster, by, process, over))
    cluster.impair(by.packets)
    thread.start()

    def end() -> None:
        over.set()
        thread.join()
        cluster.impair(CLEAN)

    try:
        yield end
    finally:
        end()


def _happen(cluster: ImpairedCluster, by: Disturbance, process: int, over: threading.Event) -> None:
    if over.wait(AFTER):
        return
    if by.killed:
        os.kill(process, signal.SIGKILL)
    if by.down:
        cluster.set_link(VICTIM, up=False)
        over.wait(_finite(by.down))
        cluster.set_link(VICTIM, up=True)
    if by.frozen:
        _stop(process, by.frozen, over)
    while by.slowed and not over.wait(PERIOD * (1 - by.slowed)):
        _stop(process, PERIOD * by.slowed, over)


def _stop(process: int, seconds: float, over: threading.Event) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGSTOP)
        over.wait(_finite(seconds))
        os.kill(process, signal.SIGCONT)


def _finite(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds
