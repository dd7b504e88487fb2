"""Every kernel, and a call, beside memcpy and PyTorch: ``python benchmarks/micro.py`` runs it and says what it shows.

A round takes the copy, PyTorch and the kernel in turns, each timed by the CPU time of this thread alone.
pytest-benchmark keeps the kernel's times, and ``extra_info`` those of the other two.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch

from benchmarks.kernels.call import RecordedCall, gradient
from benchmarks.kernels.gradients import BLOCK, NOTHING, PARTS, SHAPES, Gradient, Peers, Shape, Sum
from benchmarks.kernels.options import Options, options
from zenc.codegen.render import render
from zenc.runtime.cpu.library import load
from zenc.scheme.model import Format, HierarchicalHash, Permutation

RANKS = 8
CALLS_OF_NOTHING = 200
FORMATS = (Format.COO, Format.BITMAP, Format.ELIAS_FANO, BLOCK)
Work = Callable[[], object]


@dataclass
class Task:
    """The task of a kernel: the bytes whose memcpy it is held against, and PyTorch's way to do it, if there is one."""

    work: Work
    size: int
    torch: Work | None = None


@cache
def made(mapping: str, shape: Shape, core: int) -> tuple[Gradient, Sum, Peers]:
    """Return one set of buffers for each core that works."""
    by = {"permuted": Permutation(0x5EED), "hashed": HierarchicalHash(3, 2.0, 0.2, 0x5EED)}[mapping]
    kernels = load(render(type(by)), by)
    gradients = [Gradient(kernels, shape, 100 * core + seed) for seed in range(RANKS)]
    summed = Sum(gradients)
    return gradients[0], summed, Peers(gradients[0], summed)


def tasks(shape: Shape, core: int, mapping: str = "permuted") -> dict[str, Task]:
    """Return the tasks by name, in the order of a call."""
    g, s, t = made(mapping, shape, core)
    rows, result, words = g.values.nbytes, s.rows.nbytes, 8 * g.g.words
    found = {
        "permute": Task(g.permute, 8 * g.n, t.look_up),
        "permute back": Task(g.permute_back, 8 * g.n, t.look_up),
        "mark": Task(g.mark, 8 * g.n),
        "mark dense": Task(g.mark_dense, g.dense.nbytes, t.nonzero),
        "rank": Task(g.rank, words),
        "place": Task(g.place, rows),
        "place dense": Task(g.place_dense, rows, t.gather),
        "pack": Task(g.pack, rows, t.coalesce),
        "pack dense": Task(g.pack_dense, rows, t.nonzero_and_gather),
        "decode": Task(g.decode, 4 * g.n),
        "merge of 8": Task(s.merge, s.received_bytes, t.index_add),
        "expand to COO": Task(s.expand, result, t.coalesce_sum),
        "expand to dense": Task(s.expand_dense, s.dense.nbytes, t.index_copy),
        "pack, merge, expand": Task(lambda: (g.pack(), s.merge(), s.expand()), rows + s.received_bytes + result),
    }
    for wire in FORMATS:
        found[f"encode {wire.value}"] = Task(lambda wire=wire: g.encode_part(wire), 4 * g.bodies[0][3])
        found[f"decode {wire.value}"] = Task(g.decode_part, 4 * g.bodies[0][3])
    return found


NAMES = (
    *("permute", "permute back", "mark", "mark dense", "rank", "place", "place dense"),
    *(f"{verb} {wire.value}" for wire in FORMATS for verb in ("encode", "decode")),
    *("pack", "pack dense", "decode", "merge of 8", "expand to COO", "expand to dense", "pack, merge, expand"),
)
HASHED = ("mark", "mark dense", "pack", "expand to COO", "expand to dense")


@pytest.fixture
def chosen() -> Options:
    torch.set_num_threads(1)
    return options()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.parametrize("name", NAMES)
def test_kernel(benchmark: Any, chosen: Options, name: str, shape: Shape, cores: int) -> None:
    measure(benchmark, chosen, name, shape, cores)


@pytest.mark.parametrize("shape", SHAPES[:-1], ids=lambda shape: shape.name)
@pytest.mark.parametrize("name", HASHED)
def test_hashed(benchmark: Any, chosen: Options, name: str, shape: Shape) -> None:
    """Test kernels under hierarchical hashing, beside the same kernel of the permutation."""
    shape = shape.smaller(chosen.scale)
    hashed, permuted = tasks(shape, 0, "hashed")[name], tasks(shape, 0)[name]
    between(benchmark, chosen, f"hashed {name}", shape, 1, Task(hashed.work, permuted.size, permuted.work))


@pytest.mark.parametrize("shape", SHAPES[:-1], ids=lambda shape: shape.name)
def test_hashed_tables(benchmark: Any, chosen: Options, shape: Shape) -> None:
    """Test the tables that hashing builds once for a shape, 8 bytes a unit, beside a whole pack by the permutation."""
    shape = shape.smaller(chosen.scale)
    kernels, pack = made("hashed", shape, 0)[0].kernels, tasks(shape, 0)["pack"].work
    tables = Task(lambda: kernels.geometry(shape.units, shape.width, PARTS + 1), 8 * shape.units, pack)
    between(benchmark, chosen, "hashed tables", shape, 1, tables)


def measure(benchmark: Any, chosen: Options, name: str, shape: Shape, cores: int) -> None:
    shape = shape.smaller(chosen.scale)
    mine = tasks(shape, 0)[name]
    prepare = name.removeprefix("decode ")
    if prepare in {wire.value for wire in FORMATS}:
        for core in range(cores):
            made("permuted", shape, core)[0].encode_part(Format(prepare))
    other = tasks(shape, 1)[name].work if cores == 2 else None
    with busy(other):
        between(benchmark, chosen, name, shape, cores, mine)


@contextmanager
def busy(work: Work | None) -> Iterator[None]:
    """Run a second thread that does ``work`` over and over."""
    if work is None:
        yield
        return
    over = threading.Event()

    def again() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def between(benchmark: Any, chosen: Options, name: str, shape: Shape, cores: int, task: Task) -> None:
    """Time ``task``, and before each of its rounds a memcpy of as many bytes and what PyTorch does."""
    nothing = shape.name == NOTHING.name
    many = CALLS_OF_NOTHING if nothing else 1
    source, target = (ctypes.create_string_buffer(task.size + 1) for _ in range(2))
    ctypes.memset(source, 1, task.size)
    copies: list[float] = []
    torches: list[float] = []

    def others() -> None:
        copies.append(seconds(lambda: ctypes.memmove(target, source, task.size), many))
        if task.torch is not None:
            torches.append(seconds(task.torch, many))

    def run() -> None:
        for _ in range(many):
            task.work()

    benchmark.extra_info |= {"kernel": name, "shape": shape.name, "cores": cores, "bytes": task.size, "calls": many}
    benchmark.pedantic(run, setup=others, rounds=chosen.rounds, iterations=1, warmup_rounds=2)
    benchmark.extra_info |= {"memcpy": spread(copies[2:]), "torch": spread(torches[2:])}


def seconds(work: Work, many: int) -> float:
    """Return the CPU seconds of this thread, of all ``many`` calls."""
    started = time.thread_time()
    for _ in range(many):
        work()
    return time.thread_time() - started


def spread(times: list[float]) -> dict[str, float] | None:
    return {"min": min(times), "median": statistics.median(times)} if times else None


@pytest.mark.parametrize("shape", SHAPES[:-1], ids=lambda shape: shape.name)
def test_call(benchmark: Any, chosen: Options, shape: Shape) -> None:
    """Test a call of 8 ranks without its wire, beside PyTorch's time to find and gather the gradient alone."""
    shape = shape.smaller(chosen.scale)
    call, peers = RecordedCall([gradient(shape, seed) for seed in range(RANKS)]), made("permuted", shape, 0)[2]
    find = peers.coalesce if shape.width > 1 else peers.nonzero_and_gather
    own: list[float] = []
    torches: list[float] = []

    def others() -> tuple[tuple[torch.Tensor], dict[str, Any]]:
        torches.append(seconds(find, 1))
        return (call.fresh(),), {}

    def run(tensor: torch.Tensor) -> None:
        took = seconds(lambda: call.all_reduce(tensor), 1)
        own.append(took - call.wire)

    benchmark.extra_info |= {"kernel": "whole call", "shape": shape.name, "cores": 1, "bytes": 0, "calls": 1}
    benchmark.pedantic(run, setup=others, rounds=chosen.rounds, iterations=1, warmup_rounds=3)
    benchmark.extra_info |= {"own": spread(own[3:]), "memcpy": None, "torch": spread(torches[3:])}
