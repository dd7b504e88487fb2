"""Build of rendered kernels to a cubin for a GPU architecture, by NVRTC.

No GPU and no driver are needed. Compiled kernels are kept in the cache, as libraries for the host are.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zenc._version import __version__
from zenc.codegen.build.arch import Arch, arch_for, listed, parse_archs
from zenc.codegen.build.build_once import DEADLINE_SECONDS, BuildUnit, get_or_build
from zenc.codegen.build.cache import lookup, open_cache
from zenc.codegen.build.nvrtc import Nvrtc, device_compiler, ensure_archs, find_compiler, known_archs, usual_archs
from zenc.codegen.build.own_files import read_own
from zenc.codegen.render import COMPRESSION, headers
from zenc.errors import BuildError, Diagnostic, first_line

TARGET = "cuda"
SOURCE = "kernels.cu"
PRODUCT = "kernels.cubin"
HOST_HEADERS = f"{TARGET}/zenc_host/"

# -fmad=false: a fused multiply-add rounds otherwise than the sum it replaces, and results are the bits of the CPU.
# -default-device: lambdas of any type, which NVRTC takes for the host's elsewhere, are the device's.
FLAGS = ("-std=c++17", "-fmad=false", "-default-device")

SPLIT = "--split-compile=2"
"""The option for two threads, for NVRTC of CUDA 13: older ones may lack it. It is the same on every machine, since the
compiled bytes depend on it."""


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


def cubins(sources: Mapping[str, str], archs: str | Iterable[str] | None) -> tuple[Cubin, ...]:
    """Return the kernels of ``sources`` for each of ``archs``, as ``parse_archs`` reads them; None: the usual ones.

    Nothing is compiled unless all can be. Raises BuildError (also ``cuda-compiler-missing``) and CacheError.
    """
    chosen = None if archs is None else parse_archs(archs)
    if chosen == ():
        return ()
    compiler = device_compiler()
    chosen = chosen or usual_archs(compiler)
    ensure_archs(chosen, compiler)
    return tuple(cubin(sources, arch, compiler) for arch in chosen)


def cubin(
    sources: Mapping[str, str], arch: Arch, compiler: Nvrtc, deadline_s: float = DEADLINE_SECONDS, module: str = ""
) -> Cubin:
    """Return all of ``sources`` for ``arch``, or a ``module`` of their one file; from the cache if compiled before.

    Raises BuildError (``unknown-arch``, ``compile-failed``, ``build-timeout``) and CacheError.
    """
    unit = unit_of(sources, arch, compiler, module)
    return Cubin(arch, read_own(get_or_build(unit, deadline_s)), compiler.name, compiler.cuda)


def kept(sources: Mapping[str, str], arch: Arch, compiler: Nvrtc) -> Cubin | None:
    """Return all of ``sources`` for ``arch``, where the cache has it, as ``zenc compile`` leaves it there.

    Raises BuildError ``unknown-arch`` and CacheError.
    """
    unit = unit_of(sources, arch, compiler)
    product = lookup(open_cache(), unit.key, unit.product)
    return Cubin(arch, read_own(product), compiler.name, compiler.cuda) if product else None


def unit_of(sources: Mapping[str, str], arch: Arch, compiler: Nvrtc, module: str = "") -> BuildUnit:
    """Return the build of ``sources`` for ``arch``, as the cache stores it. Raises BuildError ``unknown-arch``."""
    ensure_archs((arch,), compiler)
    source, chosen = text_of(sources), ("-DZENC_ONLY", f"-DZENC_{module}") if module else ()
    options = (f"-arch={arch}", *FLAGS, *([SPLIT] if compiler.cuda >= 13 else []), *chosen)

    def make(folder: Path, _: float) -> dict[str, str]:
        (folder / SOURCE).write_text(source, "utf-8")
        compiled = compiler.compile(source, device_headers(), options)
        (folder / PRODUCT).write_bytes(compiled.cubin)
        (folder / "kernels.ptx").write_text(compiled.ptx, "utf-8")
        return {
            "zenc": __version__,
            "target": f"{TARGET} {arch}",
            "compiler": compiler.name,
            "command": " ".join(options),
        }

    return BuildUnit(cache_key(source, options, compiler.name), PRODUCT, compiler.name, make, f"{arch} kernels")


def cache_key(source: str, options: Sequence[str], compiler: str) -> str:
    """Return the sha256, in hexadecimal, of everything that decides about the compiled bytes."""
    everything = {
        "source": source,
        "headers": device_headers(),
        "options": list(options),
        "compiler": compiler,
        "zenc": __version__,
        "target": TARGET,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def text_of(sources: Mapping[str, str]) -> str:
    """Return the kernels of ``sources`` as one text for the compiler, those of compression last."""
    return "\n".join(sources[name] for name in (SOURCE, COMPRESSION) if name in sources)


def modules_of(sources: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each kernel in ``sources``, by its name."""
    found = re.finditer(r"^(?:#if ZENC_HAS\((\w+)\)|ZENC_KERNEL\((\w+))", text_of(sources), re.MULTILINE)
    module, modules = "", {}
    for each in found:
        module = each[1] or module
        if each[2]:
            modules[each[2]] = module
    return modules


def device_headers() -> dict[str, str]:
    """Return the headers of kernels by the names in their includes, without those of the host's call sequence."""
    found = headers(TARGET).items()
    return {path.partition("/")[2]: text for path, text in found if not path.startswith(HOST_HEADERS)}


def raw_module(sources: Mapping[str, str], cubins: Sequence[Cubin], arch: str | None) -> Any:
    """Return a ``cupy.RawModule`` of ``kernels.cu`` in ``sources`` for a GPU ``arch`` (sm_90; None: the current one's).

    The module is compiled here where there is a compiler, and otherwise one of ``cubins``, as when a scheme is loaded.
    Raises BuildError (``cuda-unavailable`` without CuPy or a GPU, ``cuda-compiler-missing``, ``unknown-arch``) and
    CacheError.
    """
    cupy = _cupy()
    with _on_gpu():
        gpu = parse_archs(arch)[0] if arch else _current(cupy)
    path = str(_kept(_chosen(sources, cubins, gpu)))
    with _on_gpu():
        return cupy.RawModule(path=path)


@contextmanager
def _on_gpu() -> Iterator[None]:
    """Turn CuPy's errors, which are RuntimeErrors, into BuildError (``cuda-unavailable``)."""
    try:
        yield
    except RuntimeError as error:
        message = f"CuPy has no GPU here that it can load kernels on: {first_line(error)}"
        help = "run it where nvidia-smi shows a GPU and CUDA's driver; zenc compile --arch needs neither"
        raise BuildError(Diagnostic("cuda-unavailable", message, help=help)) from error


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
    """Return the path of ``made`` in the cache, since CuPy reads files, and reads them late."""

    def write(folder: Path, _: float) -> dict[str, str]:
        (folder / PRODUCT).write_bytes(made.image)
        return {"target": f"cuda {made.arch}", "compiler": made.compiler}

    key = hashlib.sha256(b"raw module" + made.image).hexdigest()
    return get_or_build(BuildUnit(key, PRODUCT, made.compiler, write, f"{made.arch} kernels for CuPy"))
