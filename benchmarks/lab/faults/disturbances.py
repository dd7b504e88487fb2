"""Disturbances of a network or of one host, as data.

Disturbance = name  Impairment of all packets, or of the host VICTIM: down, frozen, slowed, killed
"""

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from zenc.lab.impairment import CLEAN, ImpairedCluster, Impairment

RANKS, VICTIM = 4, 1
DEADLINE = 8.0
"""Seconds that any single wait of a rank may take."""
AFTER = 1.0
"""Seconds from the first call to the disturbance of the victim."""
SCHEMES = ("balanced", "holders", "dense_ring")
WAYS = {"zenc": "1", "gloo": "0"}
"""Connections that carry the messages, zenc's own or gloo's, and the value of ZENC_SOCKETS for them."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A disturbance of ``packets``, or of the victim; ``name`` is for the table.

    The victim's link is ``down`` or its process ``frozen`` for seconds, its process is stopped for a share of the time
    (``slowed``), or ``killed``.
    """

    name: str
    packets: Impairment = CLEAN
    down: float = 0.0
    frozen: float = 0.0
    slowed: float = 0.0
    killed: bool = False

    @property
    def is_fatal(self) -> bool:
        """Return whether calls are to fail; a message late but within the deadline is no error."""
        return self.killed or max(self.down, self.frozen) > DEADLINE


DISTURBANCES = (
    Disturbance("nothing"),
    Disturbance("1 % of packets lost", Impairment(lost=0.01)),
    Disturbance("5 % lost", Impairment(lost=0.05)),
    Disturbance("5 % doubled", Impairment(doubled=0.05)),
    Disturbance("10 % overtaken", Impairment(detoured=0.1)),
    Disturbance("2 % lost, 2 % doubled, 5 % overtaken", Impairment(0.02, 0.02, 0.05)),
    Disturbance("a link down for 3 s", down=3.0),
    Disturbance("a host frozen for 3 s", frozen=3.0),
    Disturbance("a host with a tenth of its processor", slowed=0.9),
    Disturbance("a link down for good", down=math.inf),
    Disturbance("a host frozen for good", frozen=math.inf),
    Disturbance("a process killed, 2 % lost", Impairment(lost=0.02), killed=True),
)


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
