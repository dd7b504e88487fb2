"""CUDA's driver and NCCL, called from Python: failures raise. The emulator's are the default.

    libraries = Libraries()
    libraries.make_current(0)
    stream = libraries.new("cuStreamCreate", 0)
    libraries.call("cuStreamSynchronize", stream)

Arguments are integers (64 bits), arrays and other ctypes objects; handles are integers.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tests.emulator.build import engine

NCCL_IN_PROGRESS = 7
INT64 = 4
"""A type of NCCL."""


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


class Failed(Exception):
    """A function returned ``code``, which is neither 0 nor NCCL's "in progress"."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned {code}")
        self.function, self.code = function, code


class Libraries:
    """The library at ``path``: both stand-ins, which are in one, or CUDA's own driver."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or str(engine())
        self.library = ctypes.CDLL(self.path)
        self.contexts: dict[int, int] = {}
        self.call("cuInit", 0)

    def call(self, function: str, *arguments: Any) -> None:
        """Call ``function``, and raise Failed unless it succeeds."""
        code = getattr(self.library, function)(*(_passed(argument) for argument in arguments))
        if code != 0 and not (function.startswith("nccl") and code == NCCL_IN_PROGRESS):
            raise Failed(function, code)

    def new(self, function: str, *arguments: Any) -> int:
        """Return what ``function`` writes through its first argument, or raise Failed."""
        out = ctypes.c_uint64()
        self.call(function, ctypes.byref(out), *arguments)
        return out.value

    def make_current(self, device: int) -> None:
        """Give this thread the primary context of a device, which is also PyTorch's."""
        if device not in self.contexts:
            self.contexts[device] = self.new("cuDevicePrimaryCtxRetain", self.new("cuDeviceGet", device))
        self.call("cuCtxSetCurrent", self.contexts[device])

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        """Copy between the memory of the host, of any kind, and a device's, and wait for it."""
        if size:
            self.call("cuMemcpyAsync", to, source, size, stream)
            self.call("cuStreamSynchronize", stream)

    def fail_on(self, faults: str) -> None:
        """Have calls fail: ``NAME:K=CODE``, ``NAME@DEVICE:K=CODE``, several with commas; "" for none."""
        assert self.library.emulator_faults(faults.encode()), f"{faults!r} can't be read"

    def limit_messages(self, kernels: int) -> None:
        """Let at most this number of kernels of NCCL be on a device at once, of all communicators; 0: any number."""
        self.library.emulator_places(kernels)

    def messages(self, device: int) -> int:
        """Return how many kernels of NCCL are on a device now."""
        return int(self.library.emulator_messages(device))

    def calls(self, function: str, device: int) -> int:
        """Count calls of ``function`` for a device, or launches of a kernel; "wait": events that a host waited for."""
        self.library.emulator_calls.restype = ctypes.c_int64
        return int(self.library.emulator_calls(function.encode(), device))

    def error(self) -> str:
        """Return what the emulator said of the first kernel that failed, and clear it."""
        text = ctypes.create_string_buffer(4096)
        self.library.emulator_take_error(text, len(text))
        return text.value.decode()

    def last_error(self, communicator: int) -> str:
        function = self.library.ncclGetLastError
        function.restype = ctypes.c_char_p
        return str(function(ctypes.c_uint64(communicator)).decode())

    def asynchronous_error(self, communicator: int) -> int:
        out = ctypes.c_int()
        self.call("ncclCommGetAsyncError", communicator, ctypes.byref(out))
        return out.value


def _passed(argument: Any) -> Any:
    return ctypes.c_uint64(argument & 0xFFFF_FFFF_FFFF_FFFF) if isinstance(argument, int) else argument


def failure(function: Callable[..., Any], *arguments: Any) -> int:
    try:
        function(*arguments)
    except Failed as problem:
        return problem.code
    raise AssertionError(f"{arguments} did not fail")


def launch(libraries: Libraries, function: int, stream: int, words: Sequence[int], threads: int = 32) -> None:
    """Launch one block, whose argument words are freed on return."""
    values = [ctypes.c_uint64(word) for word in words]
    parameters = (ctypes.c_void_p * len(words))(*(ctypes.addressof(value) for value in values))
    libraries.call("cuLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, None)
    for value in values:
        value.value = 0


def on_ranks(size: int, body: Callable[[int], Any]) -> list[Any]:
    """Run ``body(rank)`` on a thread for each rank; return results in rank order, an exception as its own result."""
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = body(rank)
        except Exception as problem:
            results[rank] = problem

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a rank hangs"
    return results
