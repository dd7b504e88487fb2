"""Disturbances of a network or of one host, as data.

Disturbance = name  Impairment of all packets, or of the host VICTIM: down, frozen, slowed, killed
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from zenc.lab.impairment import CLEAN, Impairment

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
