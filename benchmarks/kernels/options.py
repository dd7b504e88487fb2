"""Options of benchmarks/micro.py, as its command line tells them to the benchmarks that it runs."""

from __future__ import annotations

import os
from dataclasses import dataclass

ROUNDS = "ZENC_MICRO_ROUNDS"
SCALE = "ZENC_MICRO_SCALE"


@dataclass(frozen=True)
class Options:
    """``rounds`` of each benchmark; tensors have ``scale`` times fewer units."""

    rounds: int
    scale: int


def options() -> Options:
    """Return the options of this process."""
    return Options(int(os.environ.get(ROUNDS, "40")), int(os.environ.get(SCALE, "1")))
