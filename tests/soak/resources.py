"""Resources of a process, and the rule by which a series of them is flat."""

import ctypes
import gc
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

COUNTED = ("files", "threads", "mappings", "names_in_shm")
TOLERATED_COUNT = 1.5
TOLERATED = {
    "own_mb": (0.05, "pages that malloc keeps for the little that is in use of each; blocks of zenc's last minutes"),
    "shared_mb": (0.05, "blocks of the groups that there are just then"),
    "heap_mb": (0.01, "what malloc has handed out to torch, gloo, Python and zenc"),
    "thousand_blocks": (0.01, "memory of Python's objects"),
}
"""Shares of its median by which memory may rise in the time that is judged, or 1 MB, and other resources too."""
SURE = 3.3
"""Standard deviations of Kendall's S above which a rise is no chance: one in two thousand."""
MALLINFO2 = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
"""Fields of ``mallinfo2``, in glibc's words and order."""


class MallocInfo(ctypes.Structure):
    """Sizes of glibc's malloc in all its arenas, in bytes, as ``mallinfo2`` returns them."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in MALLINFO2)


@cache
def malloc_info() -> Callable[[], Any]:
    """Return the function ``mallinfo2`` of this process's C library, glibc 2.33 or newer."""
    function = ctypes.CDLL(None).mallinfo2
    function.restype = MallocInfo
    return function


def keep_no_free_memory() -> None:
    """Let malloc give back free memory at the end of an arena; to be called before there are threads.

    By default it raises that limit to 64 MB, as large blocks are freed, for each of eight arenas a processor.
    """
    trim_threshold, bytes_ = -1, 128 << 10
    ctypes.CDLL(None).mallopt(trim_threshold, bytes_)


def usage() -> dict[str, float]:
    """Return MB of own and shared memory of this process, and counts, after garbage collection.

    ``own_mb`` is left when malloc has given back whole free pages, ``heap_mb`` what it has handed out. ``mappings`` are
    of memory that processes share; ``names_in_shm`` are the machine's.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    heap = malloc_info()()
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return {
        "own_mb": round(int(lines["RssAnon"].split()[0]) / 1024, 1),
        "heap_mb": round((heap.uordblks + heap.hblkhd) / 2**20, 1),
        "thousand_blocks": round(sys.getallocatedblocks() / 1000, 1),
        "shared_mb": round(int(lines["RssShmem"].split()[0]) / 1024, 1),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(lines["Threads"]),
        "mappings": sum("/memfd:" in line or "/dev/shm/" in line for line in mapped),
        "names_in_shm": len(os.listdir("/dev/shm")),
    }


@dataclass(frozen=True)
class Trend:
    """Trend of a series: its ``median``, how far it ``rises`` (Theil, Sen), and how sure that is (Mann, Kendall)."""

    median: float
    rises: float
    sure: float

    def is_flat(self, name: str) -> bool:
        """Return whether the series rises by no more than is tolerated."""
        tolerated = TOLERATED_COUNT if name in COUNTED else max(1.0, TOLERATED[name][0] * self.median)
        return self.sure < SURE or self.rises < tolerated


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Return the trend of a series without its first quarter, in which caches fill.

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
