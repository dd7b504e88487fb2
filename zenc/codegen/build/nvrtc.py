"""NVRTC, NVIDIA's compiler for kernels as a library, through ctypes: found, loaded and asked, without GPU or driver.

The functions are those of the NVRTC manual (https://docs.nvidia.com/cuda/nvrtc), as far as they are needed.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from zenc.codegen.build.arch import OLDEST, USUAL, Arch, listed
from zenc.codegen.build.build_once import CompileFailure
from zenc.errors import BuildError, Diagnostic

TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
USUAL_TOOLKIT = Path("/usr/local/cuda")


def toolkits() -> tuple[Path, ...]:
    """Return the toolkits that the environment names, and the usual one; none of them need be there."""
    named = (os.environ.get(variable) for variable in TOOLKIT_VARIABLES)
    return (*(Path(name) for name in named if name), USUAL_TOOLKIT)


def wheels() -> tuple[Path, ...]:
    """Return the folders ``lib`` of NVIDIA's wheels, wherever they are installed for this Python."""
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations if spec else None
    return tuple(path for root in roots or () for path in sorted(Path(root).glob("*/lib")))


def candidates(pattern: str) -> Iterator[Path]:
    """Yield files whose names match ``pattern``: those of wheels, then of toolkits, then of this Python's prefix."""
    installed = (folder / name for folder in toolkits() for name in ("lib64", "lib"))
    for folder in (*wheels(), *installed, Path(sys.prefix) / "lib"):
        with suppress(OSError):
            yield from sorted(path for path in folder.glob(pattern) if path.is_file())


_NAME = re.compile(r"libnvrtc\.so\.(\d+)")
_BUILTINS = "libnvrtc-builtins.so.*"
_RELEASE = re.compile(r"release [\d.]+, V([\d.]+)")
_LOADED_BY_NAME = ("libnvrtc.so.13", "libnvrtc.so.12")

_Pointer = c_void_p
_SIGNATURES: dict[str, tuple[object, ...]] = {
    "nvrtcVersion": (POINTER(c_int), POINTER(c_int)),
    "nvrtcGetNumSupportedArchs": (POINTER(c_int),),
    "nvrtcGetSupportedArchs": (POINTER(c_int),),
    "nvrtcCreateProgram": (POINTER(_Pointer), c_char_p, c_char_p, c_int, POINTER(c_char_p), POINTER(c_char_p)),
    "nvrtcDestroyProgram": (POINTER(_Pointer),),
    "nvrtcCompileProgram": (_Pointer, c_int, POINTER(c_char_p)),
    "nvrtcGetProgramLogSize": (_Pointer, POINTER(c_size_t)),
    "nvrtcGetProgramLog": (_Pointer, c_void_p),
    "nvrtcGetPTXSize": (_Pointer, POINTER(c_size_t)),
    "nvrtcGetPTX": (_Pointer, c_void_p),
    "nvrtcGetCUBINSize": (_Pointer, POINTER(c_size_t)),
    "nvrtcGetCUBIN": (_Pointer, c_void_p),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """NVRTC's products of a source; ``log`` has its warnings, and the output of ``--ptxas-options=-v``."""

    cubin: bytes
    ptx: str
    log: str


def libraries() -> Iterator[str]:
    """Yield every possible NVRTC, those of the newest CUDA first: files, then names for the system's loader."""
    files = [(path, found) for path in candidates("libnvrtc.so.*") if (found := _NAME.fullmatch(path.name))]
    yield from (str(path) for path, found in sorted(files, key=lambda file: -int(file[1][1])))
    yield from _LOADED_BY_NAME
    yield from _found_by_cupy()


def _found_by_cupy() -> Iterator[str]:
    """Yield the NVRTC that CuPy's finder of CUDA's libraries knows, if CuPy is here."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return
    try:
        yield load_nvidia_dynamic_lib("nvrtc").abs_path
    except RuntimeError:  # what all its errors are
        return


class Nvrtc:
    """The NVRTC in the shared library ``path``, or of the name that the system's loader knows.

    Raises OSError, AttributeError or CompileFailure for a library that is not NVRTC.
    """

    def __init__(self, path: str) -> None:
        if "/" in path:  # versions before 13.1 do not find the other half of themselves in a wheel
            self._builtins = [ctypes.CDLL(str(file)) for file in sorted(Path(path).parent.glob(_BUILTINS))]
        self._library = ctypes.CDLL(path)
        for name, arguments in _SIGNATURES.items():
            getattr(self._library, name).argtypes = arguments
        self._library.nvrtcGetErrorString.restype = c_char_p
        self.path = path
        major, minor = c_int(), c_int()
        self._call("nvrtcVersion", byref(major), byref(minor))
        self.cuda = major.value
        self.archs = self._archs()
        self.name = f"NVRTC {self._release() or f'{major.value}.{minor.value}'}"

    def _archs(self) -> tuple[Arch, ...]:
        count = c_int()
        self._call("nvrtcGetNumSupportedArchs", byref(count))
        numbers = (c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        return tuple(Arch(*divmod(number, 10)) for number in sorted(numbers))

    def _release(self) -> str | None:
        found = _RELEASE.search(self.compile("", {}, (f"-arch={self.archs[-1]}",)).ptx)
        return found[1] if found else None

    def compile(
        self, source: str, headers: Mapping[str, str], options: Sequence[str], name: str = "kernels.cu"
    ) -> Compiled:
        """Compile ``source``, which includes ``headers`` (name in the include -> text). Raises CompileFailure."""
        with self._program(source, headers, name) as program:
            given = (c_char_p * len(options))(*(option.encode() for option in options))
            status = self._library.nvrtcCompileProgram(program, len(options), given)
            log = self._read(program, "nvrtcGetProgramLog").rstrip(b"\0").decode("utf-8", "replace")
            if status != 0:
                command = " ".join((Path(self.path).name, *options, name))
                raise CompileFailure(command, log if log.strip() else self._words(status))
            ptx = self._read(program, "nvrtcGetPTX").rstrip(b"\0").decode()
            return Compiled(self._read(program, "nvrtcGetCUBIN"), ptx, log)

    @contextmanager
    def _program(self, source: str, headers: Mapping[str, str], name: str) -> Iterator[c_void_p]:
        texts = (c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        names = (c_char_p * len(headers))(*(text.encode() for text in headers))
        program = c_void_p()
        self._call("nvrtcCreateProgram", byref(program), source.encode(), name.encode(), len(headers), texts, names)
        try:
            yield program
        finally:
            self._call("nvrtcDestroyProgram", byref(program))

    def _read(self, program: c_void_p, getter: str) -> bytes:
        size = c_size_t()
        self._call(f"{getter}Size", program, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(getter, program, buffer)
        return buffer.raw

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise CompileFailure(name, self._words(status))

    def _words(self, status: int) -> str:
        words: bytes = self._library.nvrtcGetErrorString(status)
        return words.decode()


CHOICE = "ZENC_CUDA_COMPILER"
_PLACES = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")


def device_compiler(newest_cuda: int | None = None) -> Nvrtc:
    """Return the NVRTC of ``find_compiler``; raises BuildError ``cuda-compiler-missing`` without one."""
    found, reasons = find_compiler(newest_cuda)
    if found is None:
        raise _missing("there is no NVRTC to compile kernels with", reasons)
    return found


def find_compiler(newest_cuda: int | None = None) -> tuple[Nvrtc | None, tuple[str, ...]]:
    """Return the ``libnvrtc.so`` that ``$ZENC_CUDA_COMPILER`` names, otherwise the newest NVRTC, or None.

    With ``newest_cuda`` those of later major versions of CUDA, whose cubins a driver would refuse, are left out. The
    second value are the reasons against others. Raises BuildError ``cuda-compiler-missing`` where the named one can't
    be used.
    """
    choice = os.environ.get(CHOICE, "").strip()
    found, reasons = _found(choice, newest_cuda, tuple(os.environ.get(name, "") for name in _PLACES))
    if choice and found is None:
        raise _missing(f"what {CHOICE} names can't be used", reasons)
    return found, reasons


@cache
def _found(choice: str, newest_cuda: int | None, _places: tuple[str, ...]) -> tuple[Nvrtc | None, tuple[str, ...]]:
    reasons: list[str] = []
    for path in [choice] if choice else libraries():
        try:
            compiler = Nvrtc(path)
        except (OSError, AttributeError, CompileFailure) as problem:
            reasons.append(f"{path}: {problem}")
            continue
        if newest_cuda is None or compiler.cuda <= newest_cuda:
            return compiler, tuple(reasons)
        reasons.append(f"{path}: of CUDA {compiler.cuda}, and the driver is of CUDA {newest_cuda}")
    return None, tuple(reasons)


def _missing(message: str, reasons: tuple[str, ...]) -> BuildError:
    help = (
        f"pip install 'zenc[cuda13]' or 'zenc[cuda12]' (or nvidia-cuda-nvrtc alone), or set {CHOICE} to a "
        "libnvrtc.so; or leave compiling to the machine that loads the scheme, with --arch none"
    )
    return BuildError(Diagnostic("cuda-compiler-missing", message, notes=reasons, help=help))


def usual_archs(compiler: Nvrtc) -> tuple[Arch, ...]:
    """Return the architectures of an artifact by default: the usual ones that ``compiler`` knows."""
    return tuple(arch for arch in USUAL if arch in compiler.archs)


def known_archs(compiler: Nvrtc) -> tuple[Arch, ...]:
    """Return the architectures that ``compiler`` can compile zenc's kernels for."""
    return tuple(arch for arch in compiler.archs if arch >= OLDEST)


def ensure_archs(archs: Iterable[Arch], compiler: Nvrtc) -> None:
    """Raise BuildError ``unknown-arch`` unless ``compiler`` can compile our kernels for all of ``archs``."""
    known = known_archs(compiler)
    unknown = [arch for arch in archs if arch not in known]
    if unknown:
        message = f"{compiler.name} does not compile kernels for {listed(unknown)}; it does for {listed(known)}"
        help = "name one of those, or leave --arch out for all usual ones"
        raise BuildError(Diagnostic("unknown-arch", message, help=help))
