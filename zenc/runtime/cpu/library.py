"""The CPU target: C++ compiled on first use and called through ctypes. It runs everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from zenc.codegen.build.build_once import DEADLINE_SECONDS
from zenc.codegen.build.host import build
from zenc.runtime.cpu.kernels import Kernels
from zenc.scheme.model import Mapping as SlotMapping


def load(
    sources: Mapping[str, str], mapping: SlotMapping, *, deadline_s: float = DEADLINE_SECONDS, scheme: str = ""
) -> Kernels:
    """Compile ``sources`` of ``scheme`` or find them in the cache, and open them, for ``mapping``: once a process.

    Raises BuildError and CacheError; BuildError ``wrong-abi`` for a library of another version of zenc.
    """
    return _open(build(sources, deadline_s=deadline_s, scheme=scheme), mapping)


@cache
def _open(path: Path, mapping: SlotMapping) -> Kernels:
    return Kernels(path, mapping)
