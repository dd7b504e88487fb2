"""A call of emulated GPUs with one fault of one rank before one of its statements.

The interpreter of call tables tells of each statement before it plays it: ``watched.cpp``.
"""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int64, c_void_p
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import zenc
from tests.emulator.libraries import Libraries
from tests.faults.statements import Point
from tests.support import emulated_gpu
from tests.support.emulated import compiled_host
from tests.support.emulated_gpu import EmulatedRank, emulated_ranks
from tests.support.shipped import LOSSY, plan_of_shipped
from zenc.codegen.artifact import Artifact
from zenc.codegen.build.own_files import open_library
from zenc.codegen.call_program import CallStatement, call_program
from zenc.codegen.render import templates_dir
from zenc.plan.requirements import allowed
from zenc.rank_ir.lower import lower
from zenc.runtime.gpu import sequence
from zenc.runtime.gpu.call_args import CallArgs
from zenc.runtime.gpu.library import INTERPRETER, CallLibrary
from zenc.wire.constants import CallOutcome

SOURCE = Path(__file__).with_name("watched.cpp")
TOLD = CFUNCTYPE(None, c_int64, c_int64)
Look = Callable[[CallArgs, int, int], None]
"""Callback with the call of a rank, the rank, and the number of the next statement."""
SIZES = (4, 8)
UNITS, WIDTH = 60, 4
KINDS = ("kills", "freezes", "raises")
NOTES = ("begin", "code", "send", "receive")
"""Statements that only announce the next ones: a fault before them is a fault before what follows."""
MOST_SECONDS = 60.0
"""Seconds of the longest wait: more is a hang."""
ENDING_SECONDS = 5.0
_THREADS = ThreadPoolExecutor(max_workers=8)


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


@dataclass
class End:
    """The end of a rank's call: ``outcome`` is "sum" or the id of an error; ``again`` is that of the next call."""

    outcome: str
    text: str
    seconds: float
    result: torch.Tensor | None = None
    again: str = ""


@dataclass
class Played:
    """A finished call, with the end of each rank. ``left``: messages still under way on devices."""

    ends: list[End]
    seconds: float
    left: list[int]
    happened: bool = False
    statements: dict[int, int] = field(default_factory=dict)


@cache
def artifact_of(scheme: str) -> Artifact:
    """Compile a shipped scheme for as few GPUs as it allows, but at least 4."""
    size = next(iter(allowed(plan_of_shipped(scheme), SIZES)))
    return zenc.compile(scheme, ranks=size, target="cuda", arch=[])


def statements_of(scheme: str, rank: int) -> tuple[CallStatement, ...]:
    plan = artifact_of(scheme).plan
    return call_program(lower(plan, plan.size or 0, rank)).statements


def gradient(scheme: str, rank: int) -> torch.Tensor:
    """Return small whole numbers, whose sums are exact: sparse rows, or dense for lossy schemes."""
    generator = torch.Generator().manual_seed(rank)
    ids = torch.randint(0, UNITS, (1, UNITS // 3), generator=generator)
    values = torch.randint(-9, 10, (ids.shape[1], WIDTH), generator=generator).to(torch.float32)
    sparse = torch.sparse_coo_tensor(ids, values, (UNITS, WIDTH), check_invariants=False)
    return sparse.to_dense() if scheme in LOSSY else sparse


class Faulty:
    """A fault at a ``point``, or none: the rank waits there until all others have ended."""

    def __init__(self, point: Point | None, size: int) -> None:
        self.point, self.happened = point, False
        self.statements = dict.fromkeys(range(size), 0)
        self.others_ended = threading.Event()

    def look(self, call: CallArgs, rank: int, statement: int) -> None:
        """Act before a statement."""
        self.statements[rank] = statement + 1
        point = self.point
        if point is None or self.happened or (rank, statement) != (point.rank, point.statement):
            return
        self.happened = True
        if point.kind == "raises":
            return fail(call)
        if point.kind == "kills":  # NCCL tells the peers, as it does where connections end
            watched_library().abort_communicator(call.communicator)
        self.others_ended.wait(MOST_SECONDS)
        if point.kind == "kills":
            fail(call)


def fail(call: CallArgs) -> None:
    """Let the next statement of a call fail."""
    call.outcome, call.message = CallOutcome.CUDA_FAILED, b"a statement failed, on demand"


def play(scheme: str, point: Point | None, deadline: float) -> Played:
    """Play a call of ``scheme`` with the fault at ``point``; failed ranks call once more."""
    artifact = artifact_of(scheme)
    size = artifact.plan.size or 0
    faulty = Faulty(point, size)
    with watched(faulty.look):
        ranks = _made(artifact, size, deadline)
        began = time.monotonic()
        calls = [_THREADS.submit(_called, rank, scheme, number) for number, rank in enumerate(ranks)]
        _await([call for rank, call in enumerate(calls) if point is None or rank != point.rank])
        faulty.others_ended.set()
        _await(calls)
        seconds = time.monotonic() - began
        left = [Libraries().messages(rank) for rank in range(size)]
        for rank in ranks:
            rank.collective.communicator.close(MOST_SECONDS)
    return Played([call.result() for call in calls], seconds, left, faulty.happened, faulty.statements)


def _made(artifact: Artifact, size: int, deadline: float, attempts: int = 9) -> list[EmulatedRank]:
    """Make the ranks of a call, whose ``deadline`` may be too short to make a group on a busy machine."""
    try:
        return emulated_ranks(artifact, size, deadline)
    except zenc.ZencError as error:
        if attempts == 0 or error.diagnostics[0].id != "group-not-made":
            raise
    return _made(artifact, size, deadline, attempts - 1)


def _await(calls: Sequence[Future[End]]) -> None:
    until = time.monotonic() + MOST_SECONDS
    for call in calls:
        call.result(max(0.0, until - time.monotonic()))


def _called(rank: EmulatedRank, scheme: str, number: int) -> End:
    began, again = time.monotonic(), ""
    rank.gpu.make_current()
    try:
        result = rank.collective.all_reduce(gradient(scheme, number), name="w")
        return End("sum", "", time.monotonic() - began, result)
    except zenc.ZencError as error:
        seconds = time.monotonic() - began
        try:
            rank.collective.all_reduce(gradient(scheme, number), name="w")
        except zenc.ZencError as other:
            again = other.diagnostics[0].id
        return End(error.diagnostics[0].id, error.diagnostics[0].message, seconds, again=again)


def threads_and_files() -> tuple[int, int]:
    """Return the threads and open files of this process, after garbage collection."""
    gc.collect()
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def left_since(before: tuple[int, int]) -> tuple[int, int]:
    """Return the threads and files beyond those ``before``, after some seconds for those that are just ending."""
    until = time.monotonic() + ENDING_SECONDS
    while True:
        threads, files = (max(0, now - then) for now, then in zip(threads_and_files(), before, strict=True))
        if not (threads or files) or time.monotonic() > until:
            return threads, files
        time.sleep(0.05)
