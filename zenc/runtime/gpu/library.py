"""The host's side of a GPU: C++ built by g++ through the cache, without a toolkit, and called through ctypes.

It is one unit for all schemes, the interpreter of tables; or the compiled sequences of some ranks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from zenc.codegen.build.build_once import DEADLINE_SECONDS
from zenc.codegen.build.host import build, build_file
from zenc.codegen.call_program import CODE
from zenc.errors import BuildError, Diagnostic, SynchronisationError
from zenc.runtime.cpu.bindings import entry_points
from zenc.runtime.gpu.call_args import CallArgs
from zenc.wire.constants import NCCL_ID_BYTES, CallOutcome

_ERROR_BYTES = 1024
FETCH = ctypes.CFUNCTYPE(c_int64, c_void_p, c_char_p)
"""A function of a handle and the name of a kernel that a call misses, on its thread: 1 once it is added, otherwise 0.
"""
NO_FETCH = FETCH()
INTERPRETER = "interpreter.cpp"


def interpreter(deadline_s: float = DEADLINE_SECONDS) -> CallLibrary:
    """Return the interpreter of tables: compiled once, or found in the cache. Raises BuildError and CacheError."""
    return _open(build_file(f"cuda/host/{INTERPRETER}", deadline_s=deadline_s))


def compiled(code: str, deadline_s: float = DEADLINE_SECONDS, scheme: str = "") -> CallLibrary:
    """Return the sequences of some ranks in C++, as ``zenc.codegen.call_program`` writes them for ``scheme``.

    Raises BuildError and CacheError.
    """
    return _open(build({CODE: code}, target="cuda", deadline_s=deadline_s, scheme=scheme))


@cache
def _open(path: Path) -> CallLibrary:
    return CallLibrary(path)


class KernelLibrary:
    """Compiled C++ that launches kernels; ``bind`` comes before all else.

    Handles are addresses, and hold until they are closed. ctypes releases the GIL while C++ runs.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.functions = path, entry_points(path)

    def bind(self, cuda: str, nccl: str | None) -> None:
        """Find CUDA's driver and NCCL in the libraries at these paths; one rank alone needs no NCCL.

        Raises BuildError ``cuda-unavailable``.
        """
        text = CText()
        if not self.functions["bind"](cuda.encode(), None if nccl is None else nccl.encode(), *text.arguments):
            help = "NVIDIA's driver 525 or newer, and NCCL 2.28 or newer, are needed; PyTorch for CUDA brings an NCCL"
            raise BuildError(Diagnostic("cuda-unavailable", text.value, help=help))

    def load_kernels(self, image: bytes, fetch: Any = NO_FETCH, has_tables: bool = False) -> int:
        """Return a handle of a cubin's kernels, loaded in the current context; raises BuildError ``library-broken``.

        ``fetch``, a FETCH that lives as long as they do, adds those that calls miss. With ``has_tables`` a call without
        tables fails.
        """
        text = CText()
        kernels = self.functions["load_kernels"](image, fetch, has_tables, *text.arguments)
        if not kernels:
            raise _not_loaded(text.value)
        return int(kernels)

    def add_kernels(self, kernels: int, image: bytes) -> None:
        """Load the kernels of one more cubin into the current context. Raises BuildError ``library-broken``."""
        text = CText()
        if not self.functions["add_kernels"](kernels, image, *text.arguments):
            raise _not_loaded(text.value)

    def unload_kernels(self, kernels: int) -> None:
        """Unload ``kernels``; no call may be under way."""
        self.functions["unload_kernels"](kernels)


class CallLibrary(KernelLibrary):
    """The compiled interpreter of calls, alone or with the sequences of some ranks."""

    def load_program(self, words: Sequence[int]) -> int:
        """Return a handle of the program in the table ``words``, made by ``CallProgram.words``: it is not checked."""
        return int(self.functions["load_program"]((c_int64 * len(words))(*words), len(words)))

    def unload_program(self, program: int) -> None:
        """Unload ``program``; no call may be under way."""
        self.functions["unload_program"](program)

    def release_agreed(self, agreed: int) -> None:
        """Release ``agreed``; no call may be under way that goes on from it."""
        self.functions["release_agreed"](agreed)

    def table_words(self, units: int, parts: int) -> int:
        """Return the 64-bit words of the tables of hierarchical hashing; below 0 for too many units."""
        return int(self.functions["table_words"](units, parts))

    def build_tables(self, seed: int, units: int, parts: int, out: int) -> None:
        """Write ``out`` [table_words]: the tables of hierarchical hashing with ``seed``, in memory of the host."""
        self.functions["build_tables"](seed, units, parts, out)

    def unique_id(self) -> bytes:
        """Return a new name for a group, made by one rank for all. Raises SynchronisationError ``group-not-made``."""
        text, made = CText(), ctypes.create_string_buffer(NCCL_ID_BYTES)
        if not self.functions["unique_id"](made, *text.arguments):
            raise _not_made(text.value)
        return made.raw

    def open_communicator(self, id: bytes | None, size: int, rank: int, deadline: float) -> int:
        """Return a handle of a group of ``size`` ranks, which all join it together; ``id`` is None for one rank alone.

        It waits for the others up to ``deadline`` seconds. Raises SynchronisationError ``group-not-made``.
        """
        text = CText()
        group = self.functions["open_communicator"](id, size, rank, int(deadline * 1e6), *text.arguments)
        if not group:
            raise _not_made(text.value)
        return int(group)

    def capture(self, call: CallArgs) -> int:
        """Put ``call``, of a dense tensor that also gets the sum, in a graph; return a handle of what replays it.

        Return 0 where the call has failed, as its outcome says, or where nothing can be captured.
        """
        return int(self.functions["capture"](ctypes.byref(call)) or 0)

    def replay(self, call: CallArgs, captured: int = 0, tensor: int = 0) -> CallOutcome:
        """Replay ``captured`` for the dense ``tensor``, an address, and wait up to the deadline of ``call``.

        With 0 only wait for what others have launched on the stream of ``call``.
        """
        return CallOutcome(self.functions["replay"](ctypes.byref(call), captured, tensor))

    def release_replay(self, captured: int) -> None:
        """Release ``captured``, also after its group; the call may not be under way."""
        self.functions["release_replay"](captured)

    def abort_communicator(self, communicator: int) -> None:
        """End all work under way, also a graph's replays; the group can't be used again.

        NCCL's memory for it is freed when the last graph is destroyed that holds a call.
        """
        self.functions["abort_communicator"](communicator)

    def close_communicator(self, communicator: int) -> None:
        """Close a communicator; no call may be under way, on the host or on its stream."""
        self.functions["close_communicator"](communicator)

    def all_reduce(self, call: CallArgs) -> CallOutcome:
        """Run ``call``, and wait for its result; its outcome is in the call, too."""
        outcome = self.functions["all_reduce"](ctypes.byref(call))
        return CallOutcome(outcome) if outcome else CallOutcome.DONE


class CText:
    """A buffer for the reason of a failure, which C++ writes."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(_ERROR_BYTES)
        self.arguments = self._buffer, _ERROR_BYTES

    @property
    def value(self) -> str:
        """The text that was written, or an empty one."""
        return self._buffer.value.decode("utf-8", "replace")


def _not_loaded(reason: str) -> BuildError:
    help = "ZENC_CACHE_DIR=$(mktemp -d) has them compiled anew; a driver that is older than they are refuses them"
    return BuildError(Diagnostic("library-broken", f"the kernels can't be loaded: {reason}", help=help))


def _not_made(why: str) -> SynchronisationError:
    help = "see whether all ranks are alive, and have a GPU each; NCCL_DEBUG=INFO tells more"
    return SynchronisationError(Diagnostic("group-not-made", f"NCCL has no group of these ranks: {why}", help=help))
