"""Paths of NVIDIA's shared libraries: in wheels beside torch, in a toolkit, or on the loader's path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
USUAL_TOOLKIT = Path("/usr/local/cuda")


def toolkits() -> tuple[Path, ...]:
    """The toolkits that the environment names, and the usual one; none of them need be there."""
    named = (os.environ.get(variable) for variable in TOOLKIT_VARIABLES)
    return (*(Path(name) for name in named if name), USUAL_TOOLKIT)


def wheels() -> tuple[Path, ...]:
    """The folders ``lib`` of NVIDIA's wheels, wherever they are installed for this Python."""
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations if spec else None
    return tuple(path for root in roots or () for path in sorted(Path(root).glob("*/lib")))


def candidates(pattern: str) -> Iterator[Path]:
    """Files whose names match ``pattern``: those of wheels, then those of toolkits, then of this Python's prefix."""
    installed = (folder / name for folder in toolkits() for name in ("lib64", "lib"))
    for folder in (*wheels(), *installed, Path(sys.prefix) / "lib"):
        with suppress(OSError):
            yield from sorted(path for path in folder.glob(pattern) if path.is_file())
