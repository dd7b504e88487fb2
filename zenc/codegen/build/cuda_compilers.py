"""CUDA compilers: NVRTC or nvcc, whichever is found, and the architectures that it compiles for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from zenc.codegen.build import nvcc, nvrtc
from zenc.codegen.build.arch import OLDEST, USUAL, Arch, listed
from zenc.codegen.build.build_once import CompileFailure
from zenc.codegen.build.nvcc import Nvcc
from zenc.codegen.build.nvrtc import Nvrtc
from zenc.errors import BuildError, Diagnostic

CHOICE = "ZENC_CUDA_COMPILER"
_PLACES = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")

DeviceCompiler = Nvrtc | Nvcc


def device_compiler(newest_cuda: int | None = None) -> DeviceCompiler:
    """``find_compiler``, where there has to be one. Raises BuildError ``cuda-compiler-missing``."""
    found, reasons = find_compiler(newest_cuda)
    if found is None:
        raise _missing("there is no NVRTC and no nvcc to compile kernels with", reasons)
    return found


def find_compiler(newest_cuda: int | None = None) -> tuple[DeviceCompiler | None, tuple[str, ...]]:
    """The compiler that ``$ZENC_CUDA_COMPILER`` names (a libnvrtc.so, or an nvcc); else the newest NVRTC; nvcc; None.

    With ``newest_cuda`` those of later major versions of CUDA, whose cubins a driver would refuse, are left out. Also
    why others were passed over. Raises BuildError ``cuda-compiler-missing`` where what is named can't be used.
    """
    choice = os.environ.get(CHOICE, "").strip()
    found, reasons = _found(choice, newest_cuda, tuple(os.environ.get(name, "") for name in _PLACES))
    if choice and found is None:
        raise _missing(f"what {CHOICE} names can't be used", reasons)
    return found, reasons


@cache
def _found(
    choice: str, newest_cuda: int | None, _places: tuple[str, ...]
) -> tuple[DeviceCompiler | None, tuple[str, ...]]:
    reasons: list[str] = []
    for path, kind in _choices(choice):
        try:
            compiler = kind(path)
        except (OSError, AttributeError, CompileFailure) as problem:
            reasons.append(f"{path}: {problem}")
            continue
        if newest_cuda is None or compiler.cuda <= newest_cuda:
            return compiler, tuple(reasons)
        reasons.append(f"{path}: of CUDA {compiler.cuda}, and the driver is of CUDA {newest_cuda}")
    return None, tuple(reasons)


def _choices(choice: str) -> Iterable[tuple[str, Callable[[str], DeviceCompiler]]]:
    if choice:
        yield choice, Nvrtc if Path(choice).name.startswith("libnvrtc") else Nvcc
        return
    yield from ((path, Nvrtc) for path in nvrtc.libraries())
    yield from ((path, Nvcc) for path in nvcc.programs())


def _missing(message: str, reasons: tuple[str, ...]) -> BuildError:
    help = (
        f"pip install 'zenc[cuda13]' or 'zenc[cuda12]' (or nvidia-cuda-nvrtc alone), or set {CHOICE} to a "
        "libnvrtc.so or an nvcc; or leave compiling to the machine that loads the scheme, with --arch none"
    )
    return BuildError(Diagnostic("cuda-compiler-missing", message, notes=reasons, help=help))


def usual_archs(compiler: DeviceCompiler) -> tuple[Arch, ...]:
    """The architectures of an artifact by default: the usual ones that ``compiler`` knows."""
    return tuple(arch for arch in USUAL if arch in compiler.archs)


def known_archs(compiler: DeviceCompiler) -> tuple[Arch, ...]:
    """The architectures that ``compiler`` can compile zenc's kernels for."""
    return tuple(arch for arch in compiler.archs if arch >= OLDEST)


def ensure_archs(archs: Iterable[Arch], compiler: DeviceCompiler) -> None:
    """Raise BuildError ``unknown-arch`` unless ``compiler`` can compile our kernels for all of ``archs``."""
    known = known_archs(compiler)
    unknown = [arch for arch in archs if arch not in known]
    if unknown:
        message = f"{compiler.name} does not compile kernels for {listed(unknown)}; it does for {listed(known)}"
        help = "name one of those, or leave --arch out for all usual ones"
        raise BuildError(Diagnostic("unknown-arch", message, help=help))
