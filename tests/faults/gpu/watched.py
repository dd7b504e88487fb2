"""The interpreter of call tables, with a callback before each statement: ``watched.cpp``."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support import emulated_gpu
from tests.support.emulated import compiled_host
from zenc.codegen.build.own_files import open_library
from zenc.codegen.render import templates_dir
from zenc.runtime.gpu import sequence
from zenc.runtime.gpu.call_args import CallArgs
from zenc.runtime.gpu.library import INTERPRETER, CallLibrary
from zenc.wire.constants import CallOutcome

SOURCE = Path(__file__).with_name("watched.cpp")
TOLD = CFUNCTYPE(None, c_int64, c_int64)
Look = Callable[[CallArgs, int, int], None]
"""Callback with the call of a rank, the rank, and the number of the next statement."""


class WatchedLibrary(CallLibrary):
    """The interpreter; ``look`` is called before each statement, by the thread of the rank."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._library = open_library(path)
        self._library.watched_tell.argtypes, self._library.watched_program.argtypes = (TOLD,), (c_void_p,)
        self.look: Look | None = None
        self._calls: dict[int, CallArgs] = {}
        self._told = TOLD(self._tell)
        self._library.watched_tell(self._told)

    def load_program(self, words: Sequence[int]) -> int:
        program = super().load_program(words)
        self._library.watched_program(program)
        return program

    def all_reduce(self, call: CallArgs) -> CallOutcome:
        self._calls[threading.get_ident()] = call
        return super().all_reduce(call)

    def _tell(self, rank: int, statement: int) -> None:
        if self.look is not None:
            self.look(self._calls[threading.get_ident()], rank, statement)


@cache
def watched_library() -> WatchedLibrary:
    """Return this process's interpreter, compiled or found in the cache."""
    texts = [path.read_text("utf-8") for path in (templates_dir() / "cuda" / "host" / INTERPRETER, SOURCE)]
    return WatchedLibrary(compiled_host({SOURCE.name: "\n".join(texts)}))


@contextmanager
def watched(look: Look) -> Iterator[None]:
    """Let the watched interpreter play collectives on emulated GPUs that are made within."""
    before: Any = sequence.library
    assert before is not None and emulated_gpu.sequence is sequence
    library = watched_library()
    made: Any = SimpleNamespace(interpreter=lambda _: library)
    sequence.library, library.look = made, look  # type: ignore[assignment]
    try:
        yield
    finally:
        sequence.library, library.look = before, None
