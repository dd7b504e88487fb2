"""nvcc, the compiler of NVIDIA's toolkit: for machines that have it, and no NVRTC."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from zenc.codegen.build.arch import Arch
from zenc.codegen.build.build_once import run
from zenc.codegen.build.cuda_paths import toolkits

_RELEASE = re.compile(r"release (\d+)[.\d]+, V([\d.]+)")
_ARCH = re.compile(r"sm_(\d+)(\d)")
PROBE_SECONDS = 60.0


def programs() -> Iterator[str]:
    """Every nvcc that may be there: those of toolkits, then the one on the PATH."""
    yield from (str(path) for folder in toolkits() if (path := folder / "bin" / "nvcc").is_file())
    found = shutil.which("nvcc")
    if found:
        yield found


class Nvcc:
    """The nvcc at ``path``. Raises OSError for a program that is none."""

    def __init__(self, path: str) -> None:
        self.path = path
        found = _RELEASE.search(_ask(path, "--version"))
        if not found:
            raise OSError(f"{path} does not say its version as nvcc does")
        self.cuda = int(found[1])
        self.name = f"nvcc {found[2]}"
        codes = _ARCH.findall(_ask(path, "--list-gpu-code"))
        self.archs = tuple(sorted({Arch(int(major), int(minor)) for major, minor in codes}))

    def cubin(self, source: Path, includes: Sequence[Path], options: Sequence[str], out: Path, deadline: float) -> None:
        """Compile ``source`` to the file ``out``, until ``deadline``.

        Raises CompileFailure, and BuildError ``build-timeout``.
        """
        found = [f"-I{folder}" for folder in includes]
        run((self.path, "-cubin", *options, *found, source.name, "-o", str(out)), source.parent, deadline)


def _ask(path: str, option: str) -> str:
    try:
        done = subprocess.run(
            (path, option), capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL, check=True
        )
    except subprocess.SubprocessError as problem:
        raise OSError(str(problem)) from problem
    return done.stdout.decode("utf-8", "replace")
