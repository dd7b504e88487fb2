"""GPU architectures: ``sm_90`` is compute capability 9.0.

A cubin for sm_XY runs on GPUs of compute capability X.Z with Z >= Y, and on no others (CUDA C++ Programming Guide,
"Binary Compatibility").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zenc.errors import BuildError, Diagnostic

_WRITTEN = re.compile(r"sm_([1-9][0-9]?)([0-9])")


@dataclass(frozen=True, slots=True, order=True)
class Arch:
    """A compute capability, of a GPU or of code for it."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}"

    def runs_on(self, gpu: Arch) -> bool:
        """Return whether a cubin for this architecture runs on ``gpu``."""
        return self.major == gpu.major and self.minor <= gpu.minor


OLDEST = Arch(7, 5)
"""Turing: the oldest architecture that kernels are written for, and that CUDA 13 compiles for."""

USUAL = (OLDEST, Arch(8, 0), Arch(9, 0), Arch(10, 0), Arch(12, 0))
"""The first of each generation: their cubins run on every GPU for desktops and data centres of compute capability
7.5, 8, 9, 10 and 12."""


def parse_archs(texts: str | Iterable[str]) -> tuple[Arch, ...]:
    """Return the architectures in ``texts``, which may list several with commas; in ascending order, each once.

    ``none`` stands for no architecture. Raises BuildError ``unknown-arch``.
    """
    joined = texts if isinstance(texts, str) else ",".join(texts)
    names = [name.strip() for name in joined.split(",") if name.strip()]
    return tuple(sorted({_parse(name) for name in names if name != "none"}))


def named(name: str) -> Arch | None:
    """Return the architecture called ``name``; None where it is no such name."""
    found = _WRITTEN.fullmatch(name)
    return Arch(int(found[1]), int(found[2])) if found else None


def _parse(name: str) -> Arch:
    arch = named(name)
    if arch is None:
        message = f"{name!r} is no architecture: they are written like sm_90, which is compute capability 9.0"
        raise BuildError(Diagnostic("unknown-arch", message, help="leave --arch out for all usual ones"))
    return arch


def arch_for(gpu: Arch, known: Sequence[Arch]) -> Arch | None:
    """Return the newest of ``known`` whose code runs on ``gpu``; None without any."""
    return max((arch for arch in known if arch.runs_on(gpu)), default=None)


def listed(archs: Iterable[Arch]) -> str:
    """Return ``sm_80, sm_90``; or ``none``."""
    return ", ".join(str(arch) for arch in archs) or "none"
