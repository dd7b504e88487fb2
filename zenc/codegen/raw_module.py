"""The kernels of a compiled scheme as CuPy has them: ``cupy.RawModule``.

    kernels = artifact.raw_module()                               # for the current device
    rank = kernels.get_function("zenc_rank")

Names and parameters are those of ``docs/reference/cuda.md``.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zenc.codegen.build.arch import Arch, arch_for, listed, parse_archs
from zenc.codegen.build.build_once import BuildUnit, get_or_build
from zenc.codegen.build.gpu_kernels import PRODUCT, Cubin, cubin
from zenc.codegen.build.nvrtc import device_compiler, find_compiler, known_archs
from zenc.errors import BuildError, Diagnostic


def raw_module(sources: Mapping[str, str], cubins: Sequence[Cubin], arch: str | None) -> Any:
    """A ``cupy.RawModule`` of the ``kernels.cu`` in ``sources`` for a GPU ``arch`` (sm_90; None: the current device's).

    Compiled here where there is a compiler, else one of ``cubins``, as when a scheme is loaded. Raises BuildError
    (``cuda-unavailable`` without CuPy, ``cuda-compiler-missing``, ``unknown-arch``) and CacheError.
    """
    cupy = _cupy()
    gpu = parse_archs(arch)[0] if arch else _current(cupy)
    return cupy.RawModule(path=str(_kept(_chosen(sources, cubins, gpu))))


def _cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        help = "pip install 'zenc[cuda13]' or 'zenc[cuda12]', by the CUDA of the driver"
        raise BuildError(Diagnostic("cuda-unavailable", f"CuPy can't be imported: {error}", help=help)) from error


def _current(cupy: Any) -> Arch:
    capability = str(cupy.cuda.Device().compute_capability)  # "90"
    return Arch(int(capability[:-1]), int(capability[-1]))


def _chosen(sources: Mapping[str, str], cubins: Sequence[Cubin], gpu: Arch) -> Cubin:
    compiler, _ = find_compiler()
    arch = arch_for(gpu, known_archs(compiler)) if compiler else None
    if compiler and arch:
        return cubin(sources, arch, compiler)
    fit = [made for made in cubins if made.arch.runs_on(gpu)]
    if fit:
        return max(fit, key=lambda made: made.arch)
    known = known_archs(device_compiler())
    message = f"nothing here compiles kernels for {gpu}: the compiler knows {listed(known)}"
    raise BuildError(Diagnostic("unknown-arch", message, help=f"compile the scheme elsewhere with --arch {gpu}"))


def _kept(made: Cubin) -> Path:
    """The path of ``made`` in the cache, since CuPy reads files, and reads them late."""

    def write(folder: Path, _: float) -> dict[str, str]:
        (folder / PRODUCT).write_bytes(made.image)
        return {"target": f"cuda {made.arch}", "compiler": made.compiler}

    key = hashlib.sha256(b"raw module" + made.image).hexdigest()
    return get_or_build(BuildUnit(key, PRODUCT, made.compiler, write, f"{made.arch} kernels for CuPy"))
