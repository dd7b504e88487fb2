"""Resources of a process, and the rule by which a series of them is flat."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

COUNTED = ("files", "threads", "mappings", "names_in_shm")
TOLERATED = 0.05
"""Share of its median by which memory may rise in the time that is judged."""
TOLERATED_COUNT = 1.5
SURE = 3.3
"""Standard deviations of Kendall's S from which a rise is none of chance: one in two thousand."""


def usage() -> dict[str, float]:
    """Of this process, after a collection of garbage: MB of its own and shared memory, and counts.

    ``mappings`` are of memory that processes share; ``names_in_shm`` are those of the machine.
    """
    gc.collect()
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return {
        "own_mb": round(int(lines["RssAnon"].split()[0]) / 1024, 1),
        "shared_mb": round(int(lines["RssShmem"].split()[0]) / 1024, 1),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(lines["Threads"]),
        "mappings": sum("/memfd:" in line or "/dev/shm/" in line for line in mapped),
        "names_in_shm": len(os.listdir("/dev/shm")),
    }


@dataclass(frozen=True)
class Trend:
    """Of a series: its ``median``, how far it ``rises`` by Theil and Sen, and how sure that is by Mann and Kendall."""

    median: float
    rises: float
    sure: float

    def is_flat(self, name: str) -> bool:
        """Whether the series does not rise, or not by more than is tolerated."""
        tolerated = TOLERATED_COUNT if name in COUNTED else max(1.0, TOLERATED * self.median)
        return self.sure < SURE or self.rises < tolerated


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Of all but the first quarter of a series, in which caches fill.

    The rise is the median slope between any two samples (Theil, Sen) times the time; how sure it is: the samples that
    are above an earlier one less those below, in standard deviations of a series in a random order (Mann, Kendall).
    """
    kept = len(values) // 4
    t, v = np.asarray(times[kept:], dtype=float), np.asarray(values[kept:], dtype=float)
    if len(v) < 3:
        return Trend(float(np.median(values)) if values else 0.0, 0.0, 0.0)
    later, earlier = np.triu_indices(len(v), 1)[::-1]
    rise, n = v[later] - v[earlier], len(v)
    slope = float(np.median(rise / (t[later] - t[earlier])))
    _, ties = np.unique(v, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    sure = float(np.sign(rise).sum()) / math.sqrt(variance) if variance else 0.0
    return Trend(float(np.median(v)), slope * float(t[-1] - t[0]), sure)
