"""CUDA's driver in this process, its GPUs, and NCCL; missing or old ones are reported before their use.

The functions are those of CUDA's driver API and of NCCL, as far as they are needed here;
``templates/cuda/zenc_host/driver.h`` has those that call sequences bind.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_int
from dataclasses import dataclass
from functools import cache

from zenc.codegen.build.arch import Arch
from zenc.codegen.build.nvrtc import candidates
from zenc.errors import BuildError, Diagnostic
from zenc.wire.constants import OLDEST_DRIVER, OLDEST_NCCL

DRIVER = "libcuda.so.1"
NCCL = "libnccl.so.2"

_NOT_INITIALISED, _NO_DEVICE = 3, 100
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_NAME_BYTES = 256


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """A GPU of this process: ``ordinal`` as CUDA and torch count them, ``arch`` its compute capability."""

    ordinal: int
    name: str
    arch: Arch


class Driver:
    """CUDA's driver, started in this process.

    Raises BuildError: ``cuda-unavailable`` where it is missing, too old or finds no GPU; ``forked`` in a process whose
    parent has started it.
    """

    def __init__(self, path: str = DRIVER) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(path)
            self._library.cuGetErrorName.argtypes = (c_int, ctypes.POINTER(c_char_p))
        except (OSError, AttributeError) as problem:
            raise _unavailable(f"there is no CUDA driver: {problem}", _DRIVER_HELP) from problem
        self._start()
        self._process = os.getpid()
        version = c_int()
        self._call("cuDriverGetVersion", byref(version))
        if version.value < OLDEST_DRIVER:
            message = f"the driver {path} is of CUDA {_of_cuda(version.value)}; zenc needs {_of_cuda(OLDEST_DRIVER)}"
            raise _unavailable(message, _DRIVER_HELP)
        self.cuda = version.value // 1000
        """The major version of CUDA whose cubins the driver loads, with those of older ones."""

    def gpu(self, ordinal: int) -> GpuInfo:
        """Return the GPU that CUDA counts as ``ordinal``; raises BuildError ``no-such-gpu``, and ``forked``."""
        self.ensure_own_process()
        count, device = c_int(), c_int()
        self._call("cuDeviceGetCount", byref(count))
        if not 0 <= ordinal < count.value:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            shown = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
            message = f"there is no GPU {ordinal}: this process sees {count.value}, counted from 0{shown}"
            raise BuildError(Diagnostic("no-such-gpu", message, help="torch.cuda.set_device(local_rank)"))
        self._call("cuDeviceGet", byref(device), ordinal)
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGetName", name, _NAME_BYTES, device)
        return GpuInfo(ordinal, name.value.decode("utf-8", "replace"), Arch(*(self._of(device, _MAJOR, _MINOR))))

    def ensure_own_process(self) -> None:
        """Raise BuildError ``forked`` in a process that was forked from the one that started the driver."""
        if os.getpid() != self._process:
            raise _forked()

    def _of(self, device: c_int, *attributes: int) -> list[int]:
        values = [c_int() for _ in attributes]
        for value, attribute in zip(values, attributes, strict=True):
            self._call("cuDeviceGetAttribute", byref(value), attribute, device)
        return [value.value for value in values]

    def _start(self) -> None:
        status = self._library.cuInit(0)
        if status == _NOT_INITIALISED:
            raise _forked()
        if status == _NO_DEVICE:
            raise _unavailable("the CUDA driver finds no GPU", "see what nvidia-smi and CUDA_VISIBLE_DEVICES say")
        self._ensure("cuInit", status)

    def _call(self, name: str, *arguments: object) -> None:
        self._ensure(name, getattr(self._library, name)(*arguments))

    def _ensure(self, name: str, status: int) -> None:
        if status != 0:
            words = c_char_p()
            self._library.cuGetErrorName(status, byref(words))
            text = words.value.decode() if words.value else f"error {status}"
            raise _unavailable(f"{name} of the CUDA driver failed: {text}", "see whether nvidia-smi works")


def driver() -> Driver:
    """Return the driver of this process, started once. Raises as ``Driver`` does."""
    found = _started()
    found.ensure_own_process()
    return found


@cache
def _started() -> Driver:
    return Driver()


@dataclass(frozen=True, slots=True)
class Nccl:
    """A libnccl: its path, or the name that the system's loader knows, and its version as NCCL writes it."""

    path: str
    version: int


def find_nccl() -> Nccl:
    """Return the NCCL of this process: a loaded one (torch's, or preloaded), otherwise that of a wheel, otherwise any.

    Raises BuildError ``cuda-unavailable`` without one, or with one that is too old.
    """
    path = NCCL if _is_loaded(NCCL) else next((str(path) for path in candidates(NCCL)), NCCL)
    try:
        library = ctypes.CDLL(path)
        version = c_int()
        status = library.ncclGetVersion(byref(version))
    except (OSError, AttributeError) as problem:
        raise _unavailable(f"there is no NCCL: {problem}", _NCCL_HELP) from problem
    if status != 0 or version.value < OLDEST_NCCL:
        message = f"{path} is NCCL {_of_nccl(version.value)}; zenc needs {_of_nccl(OLDEST_NCCL)} or a newer one"
        raise _unavailable(message, _NCCL_HELP)
    return Nccl(path, version.value)


def _is_loaded(name: str) -> bool:
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return True


_DRIVER_HELP = "install NVIDIA's driver, 525 or newer; in a container, run it with the GPUs (docker run --gpus all)"
_NCCL_HELP = "install a PyTorch for CUDA that comes with NCCL 2.28, or preload one: LD_PRELOAD=/path/to/libnccl.so.2"


def _unavailable(message: str, help: str) -> BuildError:
    return BuildError(Diagnostic("cuda-unavailable", message, help=help))


def _forked() -> BuildError:
    message = "CUDA was started before this process was forked, and can't be used in it"
    help = 'start processes by torchrun or with multiprocessing.set_start_method("spawn"), or use CUDA in them alone'
    return BuildError(Diagnostic("forked", message, help=help))


def _of_cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _of_nccl(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
