"""From a rendered ``kernels.cu`` to a cubin for a GPU architecture: by NVRTC, or by nvcc where that is missing.

No GPU and no driver are needed. Compiled kernels are kept in the cache, as libraries for the host are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache as cached
from pathlib import Path

from zenc._version import __version__
from zenc.codegen import nvcc, nvrtc
from zenc.codegen.arch import OLDEST, USUAL, Arch, listed, parse_archs
from zenc.codegen.nvcc import Nvcc
from zenc.codegen.nvrtc import Nvrtc
from zenc.codegen.once import DEADLINE_SECONDS, CompileFailure, Unit, made
from zenc.codegen.templates import headers, include_dirs
from zenc.errors import BuildError, Diagnostic

TARGET = "cuda"
SOURCE = "kernels.cu"
PRODUCT = "kernels.cubin"
HOST_HEADERS = f"{TARGET}/zenc_host/"
CHOICE = "ZENC_CUDA_COMPILER"

# -fmad=false: a fused multiply-add rounds otherwise than the sum it replaces, and results are the bits of the CPU.
FLAGS = ("-std=c++17", "-fmad=false")

DeviceCompiler = Nvrtc | Nvcc


@dataclass(frozen=True, slots=True)
class Cubin:
    """Kernels for the architecture ``arch``, as ``compiler`` made them.

    ``cuda`` is the major version of its CUDA: drivers of that version and of later ones load them (CUDA Compatibility,
    "Minor Version Compatibility").
    """

    arch: Arch
    image: bytes = field(repr=False)
    compiler: str
    cuda: int


def device_compiler(newest_cuda: int | None = None) -> DeviceCompiler:
    """What ``$ZENC_CUDA_COMPILER`` names (a libnvrtc.so, or an nvcc); else the newest NVRTC; else nvcc.

    With ``newest_cuda`` those of later major versions of CUDA, whose cubins a driver would refuse, are left out.
    Raises BuildError ``cuda-compiler-missing``.
    """
    places = (os.environ.get(name, "") for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"))
    return _found(os.environ.get(CHOICE, "").strip(), newest_cuda, tuple(places))


@cached
def _found(choice: str, newest_cuda: int | None, _places: tuple[str, ...]) -> DeviceCompiler:
    reasons: list[str] = []
    for path, kind in _choices(choice):
        try:
            compiler = kind(path)
        except (OSError, AttributeError, CompileFailure) as problem:
            reasons.append(f"{path}: {problem}")
            continue
        if newest_cuda is None or compiler.cuda <= newest_cuda:
            return compiler
        reasons.append(f"{path}: of CUDA {compiler.cuda}, and the driver is of CUDA {newest_cuda}")
    raise _missing(choice, reasons)


def _choices(choice: str) -> Iterable[tuple[str, Callable[[str], DeviceCompiler]]]:
    if choice:
        yield choice, Nvrtc if Path(choice).name.startswith("libnvrtc") else Nvcc
        return
    yield from ((path, Nvrtc) for path in nvrtc.libraries())
    yield from ((path, Nvcc) for path in nvcc.programs())


def _missing(choice: str, reasons: list[str]) -> BuildError:
    message = (
        f"what {CHOICE} names can't compile" if choice else "there is no NVRTC and no nvcc to compile kernels with"
    )
    help = (
        f"pip install 'zenc[cuda13]' or 'zenc[cuda12]' (or nvidia-cuda-nvrtc alone), or set {CHOICE} to a "
        "libnvrtc.so or an nvcc; or leave compiling to the machine that loads the scheme, with --arch none"
    )
    return BuildError(Diagnostic("cuda-compiler-missing", message, notes=tuple(reasons), help=help))


def usual_archs(compiler: DeviceCompiler) -> tuple[Arch, ...]:
    """What to compile for where nobody says: the usual architectures that ``compiler`` knows."""
    return tuple(arch for arch in USUAL if arch in compiler.archs)


def known_archs(compiler: DeviceCompiler) -> tuple[Arch, ...]:
    """What ``compiler`` can compile our kernels for."""
    return tuple(arch for arch in compiler.archs if arch >= OLDEST)


def demand_archs(archs: Iterable[Arch], compiler: DeviceCompiler) -> None:
    """Raise BuildError ``unknown-arch`` unless ``compiler`` can compile our kernels for all of ``archs``."""
    known = known_archs(compiler)
    unknown = [arch for arch in archs if arch not in known]
    if unknown:
        message = f"{compiler.name} does not compile kernels for {listed(unknown)}; it does for {listed(known)}"
        help = "name one of those, or leave --arch out for all usual ones"
        raise BuildError(Diagnostic("unknown-arch", message, help=help))


def cubins(sources: Mapping[str, str], archs: str | Iterable[str] | None) -> tuple[Cubin, ...]:
    """The ``kernels.cu`` of ``sources`` for each of ``archs``, as ``parse_archs`` reads them; None: the usual ones.

    Nothing is compiled unless all can be. Raises BuildError (also ``cuda-compiler-missing``) and CacheError.
    """
    chosen = None if archs is None else parse_archs(archs)
    if chosen == ():
        return ()
    compiler = device_compiler()
    chosen = chosen or usual_archs(compiler)
    demand_archs(chosen, compiler)
    return tuple(cubin(sources, arch, compiler) for arch in chosen)


def cubin(
    sources: Mapping[str, str], arch: Arch, compiler: DeviceCompiler, deadline_s: float = DEADLINE_SECONDS
) -> Cubin:
    """The ``kernels.cu`` of ``sources`` for ``arch``, from the cache if it was compiled before.

    Raises BuildError (``unknown-arch``, ``compile-failed``, ``build-timeout``) and CacheError.
    """
    demand_archs((arch,), compiler)
    source, options = sources[SOURCE], (f"-arch={arch}", *FLAGS)

    def make(folder: Path, deadline: float) -> dict[str, str]:
        (folder / SOURCE).write_text(source, "utf-8")
        if isinstance(compiler, Nvrtc):
            compiled = compiler.compile(source, device_headers(), options)
            (folder / PRODUCT).write_bytes(compiled.cubin)
            (folder / "kernels.ptx").write_text(compiled.ptx, "utf-8")
        else:
            compiler.cubin(folder / SOURCE, include_dirs(TARGET), options, folder / PRODUCT, deadline)
        return {"zenc": __version__, "compiler": compiler.name, "command": " ".join(options)}

    unit = Unit(cache_key(source, arch, compiler.name), PRODUCT, compiler.name, make, f"{arch} kernels")
    return Cubin(arch, made(unit, deadline_s).read_bytes(), compiler.name, compiler.cuda)


def cache_key(source: str, arch: Arch, compiler: str) -> str:
    """The sha256, in hexadecimal, of everything that decides about the compiled bytes."""
    everything = {
        "source": source,
        "headers": device_headers(),
        "flags": FLAGS,
        "arch": str(arch),
        "compiler": compiler,
        "zenc": __version__,
        "target": TARGET,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def device_headers() -> dict[str, str]:
    """The headers of kernels, by the names that they are included by. Those of the host's call sequence are not."""
    found = headers(TARGET).items()
    return {path.partition("/")[2]: text for path, text in found if not path.startswith(HOST_HEADERS)}
