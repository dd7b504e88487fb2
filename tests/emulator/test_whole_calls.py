"""Whole calls of the CUDA target under sanitizers give the bits of the CPU target."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.emulator.build import HERE, MODES, compiled, kernels, program
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_bits, sparse_tensor
from tests.support.local import collectives, run_all
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from zenc.api import compile
from zenc.codegen.call_program import call_program
from zenc.codegen.render import headers, include_dirs, render, templates_dir
from zenc.plan.ir import Plan
from zenc.plan.requirements import allowed
from zenc.rank_ir.lower import lower_all
from zenc.runtime.call.layout import Layout, contribution_of, layout_of, sparse_result
from zenc.runtime.cpu import library
from zenc.runtime.cpu.geometry import Geometry
from zenc.runtime.gpu.library import INTERPRETER
from zenc.scheme.model import HierarchicalHash, Holders, Permutation
from zenc.wire.constants import DTYPE_NUMBERS, CallOutcome

FLAGS = ("-std=c++17", "-g1", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
UNOPTIMISED = "-O0"
"""Options for call sequences, in any mode: they take little of a call, and most of a compiler's time."""

Shares = tuple[float, float]
"""The capacity of a rank's own gradient, and of the sum."""
EXACT = (0.0, 0.0)


@dataclass(frozen=True)
class Programs:
    """Programs for the calls of a plan: the kernels, the interpreter of sequences, and the program that calls it."""

    plan: Plan
    size: int
    kernels: Path
    interpreter: Path
    program: Path


def programs(scheme: str, size: int, mode: str = "plain") -> Programs:
    """Compile all programs for ``mode``, or find those of earlier runs."""
    plan = plan_of_shipped(scheme)
    sources = render(type(plan.mapping), "cuda")
    with ThreadPoolExecutor() as pool:  # of threads that wait for a compiler each
        made = pool.submit(kernels, sources, mode)
        main = pool.submit(program, HERE / "programs" / "all_reduce.cpp", mode)
        played = pool.submit(_interpreter, mode)
        return Programs(plan, size, made.result(), played.result(), main.result())


def _interpreter(mode: str) -> Path:
    source = (templates_dir() / "cuda" / "host" / INTERPRETER).read_text("utf-8")
    command = [*FLAGS, *MODES[mode], UNOPTIMISED, *(f"-I{path}" for path in include_dirs("cuda")), INTERPRETER]
    return compiled(command, {**headers("cuda"), INTERPRETER: source}, {INTERPRETER: source})


def results(
    of: Programs,
    tensors: list[torch.Tensor],
    op: str,
    folder: Path,
    calls: int = 1,
    shares: Shares = EXACT,
    seconds: float = 120.0,
    **variables: str,
) -> list[torch.Tensor]:
    """Return the results of all ranks in the last of ``calls`` calls; the program must say nothing at all."""
    ran = run(of, tensors, op, folder, calls, seconds, shares, **variables)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr[:6000]
    return _results(np.fromfile(folder / "result", np.int64), of.size, layout_of(tensors[0], of.plan.unit))


def run(
    of: Programs,
    tensors: list[torch.Tensor],
    op: str,
    folder: Path,
    calls: int = 1,
    seconds: float = 120.0,
    shares: Shares = EXACT,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run the program with further ``variables`` of the environment; ``seconds`` bound every wait."""
    case = folder / "case"
    case.write_bytes(_case(of, layout_of(tensors[0], of.plan.unit), tensors, op, shares))
    command = [of.program, of.kernels, of.interpreter, case, folder / "result", str(calls), str(seconds)]
    environment = {**os.environ, "EMULATOR_WORKERS": "1", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=160 + seconds)


def _case(of: Programs, layout: Layout, tensors: list[torch.Tensor], op: str, shares: Shares) -> bytes:
    parts = of.plan.parts(of.size)
    mapping = of.plan.mapping
    geometry = library.load(render(type(mapping)), mapping).geometry(layout.units, layout.width, parts)
    slots = [geometry.slots_of(part) for part in range(parts)]
    divisor, dense = of.size if op == "mean" else 1, not layout.is_sparse
    words = [of.size, layout.units, layout.width, DTYPE_NUMBERS[layout.dtype_name], layout.dtype.itemsize, divisor]
    pieces = [_words([*words, int(dense), parts, *slots]), np.array(shares).tobytes(), *_hashed(of.plan, geometry)]
    for tensor, played in zip(tensors, lower_all(of.plan, of.size), strict=True):
        table = call_program(played).words
        pieces.append(_words([len(table), *table]))
        given = contribution_of(tensor, layout)
        ids = [] if given.unit_ids is None else given.unit_ids.tolist()
        pieces += [_words([layout.units if dense else len(ids), *ids]), _padded(given.values)]
    return b"".join(pieces)


def _hashed(plan: Plan, geometry: Geometry) -> list[bytes]:
    """Return seed and block, and the tables with the number of their words before them."""
    if isinstance(plan.mapping, Permutation):
        return [_words([plan.mapping.seed, geometry.block, 0])]
    if not isinstance(plan.mapping, HierarchicalHash) or geometry.tables is None:
        return [_words([0, 0, 0])]
    tables = bytes(memoryview(geometry.tables.keep))  # type: ignore[arg-type]
    return [_words([plan.mapping.seed, 0, len(tables) // 8]), tables]


def _words(numbers: list[int]) -> bytes:
    return np.array(numbers, np.int64).tobytes()


def _padded(values: torch.Tensor) -> bytes:
    data = values.contiguous().view(torch.uint8).numpy().tobytes() if values.numel() else b""
    return data + bytes(-len(data) % 8)


def _results(words: np.ndarray, size: int, layout: Layout) -> list[torch.Tensor]:
    """Read RESULT, as the program's text lays it out."""
    found, at = [], 0

    def taken(count: int) -> np.ndarray:
        nonlocal at
        at += count
        return words[at - count : at].copy()

    for _ in range(size):
        count = int(taken(1)[0])
        ids = torch.empty(count if layout.is_sparse else 0, dtype=torch.int64)
        ids.numpy()[:] = taken(len(ids))
        length = count * layout.width * layout.dtype.itemsize
        rows = torch.from_numpy(taken(-(-length // 8)).view(np.uint8)[:length]).view(layout.dtype)
        rows = rows.reshape(count, layout.width)
        found.append(sparse_result(ids, rows, layout) if layout.is_sparse else rows.reshape(layout.shape))
    assert at == len(words)
    return found


EVERY = cases(range(1, 9))
"""Shipped schemes with every number of ranks up to 8 that they allow."""
FEW = [(name, allowed(plan_of_shipped(name), (3, 4, 2, 8))[0]) for name in SHIPPED]
"""Shipped schemes once each, among few ranks."""
WITH_ROOM = [case for case in FEW if not isinstance(plan_of_shipped(case[0]).mapping, Holders)]
WATCHED = ("balanced",)
"""Schemes that quick tests watch, each compiled for ten seconds; the others are watched in the slow tests."""
UNITS, WIDTHS = (400, 63, 1500, 1, 130), (3, 1, 64, 5)
SLOW = pytest.mark.slow


def drawn(turn: int, size: int) -> tuple[list[torch.Tensor], str]:
    """Draw the ranks' inputs and the operation; everything that matters varies with ``turn``."""
    kind, units, width, dtype = (row[turn % len(row)] for row in (KINDS, UNITS, WIDTHS, DTYPES))
    make = dense_tensor if turn % 3 == 2 else sparse_tensor
    return [make(kind, rank, size, units, width, dtype, turn) for rank in range(size)], ("sum", "mean")[turn // 2 % 2]


def other_bits(
    case: tuple[str, int], mode: str, turns: list[int], seeds: list[int], folder: Path, shares: Shares = EXACT
) -> list[tuple[int, int]]:
    """Return the turns and seeds whose results differ from those of CPUs, for the last of two calls each."""
    scheme, size = case
    made, hosts = programs(scheme, size, mode), collectives(compile(scheme, ranks=size), size)
    wrong = []
    for turn in turns:
        inputs, op = drawn(turn, size)
        expected = run_all(hosts, [tensor.clone() for tensor in inputs], op)
        for seed in seeds:
            found = results(made, inputs, op, folder, 2, shares, EMULATOR_SEED=str(seed))
            if not all(same_bits(list(pair)) for pair in zip(expected, found, strict=True)):
                wrong.append((turn, seed))
    return wrong


@SLOW
@pytest.mark.parametrize("number", range(len(FEW)), ids=lambda number: "-".join(map(str, FEW[number])))
def test_no_access_is_out_of_bounds(number, tmp_path):
    assert other_bits(FEW[number], "address", [EVERY.index(FEW[number])], [number + 1], tmp_path) == []


@SLOW
@pytest.mark.parametrize("number", range(len(EVERY)), ids=lambda number: "-".join(map(str, EVERY[number])))
def test_no_access_is_out_of_bounds_among_any_number_of_ranks(number, tmp_path):
    assert other_bits(EVERY[number], "address", [number], [number + 1], tmp_path) == []


@pytest.mark.one_in(9)
@pytest.mark.parametrize("number", range(len(FEW)), ids=lambda number: "-".join(map(str, FEW[number])))
def test_results_are_the_same_in_any_order(number, tmp_path):
    seeds = [3 * number + further for further in (1, 2, 3)]
    assert other_bits(FEW[number], "plain", [number + 4], seeds, tmp_path) == []


@SLOW
@pytest.mark.parametrize("number", range(len(FEW)), ids=lambda number: "-".join(map(str, FEW[number])))
def test_no_threads_race(number, tmp_path):
    assert other_bits(FEW[number], "thread", [5 * number], [number + 1], tmp_path) == []


@pytest.mark.parametrize("mode", ["address", pytest.param("thread", marks=SLOW)])
@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=[] if name in WATCHED else SLOW) for number, (name, _) in enumerate(WITH_ROOM)],
    ids=lambda number: "-".join(map(str, WITH_ROOM[number])),
)
def test_capacity_mode_stays_in_its_room(number, mode, tmp_path):
    """Calls stay within capacity where there is room for everything, and where there is not."""
    case = WITH_ROOM[number]
    for turn, shares in enumerate(((1.0, 1.0), (0.3, 0.6), (0.02, 0.05))):
        assert other_bits(case, mode, [3 * number + turn], [number + 1], tmp_path, shares) == []


@pytest.mark.parametrize("scheme", ["balanced", pytest.param("zen", marks=SLOW)])
def test_popular_units_without_room_stay_in_it(scheme, tmp_path):
    """Popular units come hundreds of times, beside too many others for the room."""
    size = 3
    case = (scheme, size)
    inputs = []
    for rank in range(size):
        ids = torch.cat([torch.full((200,), rank), torch.arange(0, 900, 2), torch.full((300,), 777)])
        values = torch.randn(len(ids), 3, generator=torch.Generator().manual_seed(rank))
        inputs.append(torch.sparse_coo_tensor(ids[None], values, (900, 3), check_invariants=False))
    wanted = run_all(collectives(compile(scheme, ranks=size), size), inputs)
    found = results(programs(*case, "address"), inputs, "sum", tmp_path, 2, (0.1, 0.2), EMULATOR_SEED="3")
    for expected, result in zip(wanted, found, strict=True):
        assert same_bits([expected, result])


@SLOW
@pytest.mark.parametrize("mode", ["plain", "address", "thread"])
@pytest.mark.parametrize("number", range(len(EVERY)), ids=lambda number: "-".join(map(str, EVERY[number])))
def test_other_tensors_in_other_orders(number, mode, tmp_path):
    turns = (1,) if mode == "thread" else (1, 2, 3, 7)
    assert other_bits(EVERY[number], mode, [number + further for further in turns], [11, 12], tmp_path) == []


LARGE = [(case, units) for units in ((1 << 20) + 3, 4_000_000, 50_000_000) for case in cases((2, 3))]
"""Schemes among few ranks, and values of a tensor."""


@SLOW
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("case", "units"), LARGE, ids=lambda each: str(each).replace("'", ""))
def test_large_tensors_stay_in_their_memory(case, units, tmp_path):
    """Single values, of which 5 % are something: many blocks of every kernel, and words of bitmaps that are cut."""
    scheme, size = case
    inputs = [torch.nn.functional.dropout(torch.randn(units), 0.95) for _ in range(size)]
    wanted = run_all(collectives(compile(scheme, ranks=size), size), [tensor.clone() for tensor in inputs])
    made = programs(scheme, size, "address")
    found = results(made, inputs, "sum", tmp_path, seconds=7000, EMULATOR_SECONDS="7000")
    assert all(same_bits(list(pair)) for pair in zip(wanted, found, strict=True))


BALANCED = ("balanced", 3)


@pytest.mark.parametrize("mode", ["address", pytest.param("thread", marks=SLOW)])
@pytest.mark.parametrize(
    ("fault", "own"), [("dead", CallOutcome.NCCL_FAILED), ("mute", CallOutcome.DEADLINE_PASSED)], ids=["dead", "mute"]
)
def test_a_dead_peer_ends_calls_in_order(fault, own, mode, tmp_path):
    """Ranks notice a dead peer on the device, or on the host in NCCL; nothing leaks, races or hangs."""
    made = programs(*BALANCED, mode)
    ran = run(made, *drawn(0, made.size), tmp_path, seconds=5, EMULATOR_FAULTS=f"{fault}@1:2=1")
    failed = {rank: int(code) for rank, code in re.findall(r"call 1 of rank (\d) failed with outcome (\d)", ran.stderr)}
    assert ran.returncode == 1
    given_up = {CallOutcome.DEADLINE_PASSED.value} | ({CallOutcome.NCCL_FAILED.value} if fault == "mute" else set())
    assert failed["1"] == own.value and {failed["0"], failed["2"]} <= given_up, ran.stderr
    assert "Sanitizer" not in ran.stderr


FAULTS = (
    "cuMemAlloc@1:5=2", "cuLaunchKernel@1:4=719", "cuMemsetD8Async@1:1=1", "cuEventRecord@1:1=400",
    "cuEventQuery@1:1=719", "ncclSend@1:1=3", "ncclRecv@1:2=3", "ncclGroupEnd@1:1=2",
)  # fmt: skip


@SLOW
@pytest.mark.parametrize("mode", ["thread", "address"])
def test_failures_leave_nothing_behind(mode, tmp_path):
    """A function of one rank fails once: every rank hears of it, and nothing leaks or races."""
    made = programs(*BALANCED, mode)
    for fault in FAULTS:
        ran = run(made, *drawn(0, made.size), tmp_path, seconds=2, EMULATOR_FAULTS=fault)
        assert ran.returncode == 1, (fault, ran.stderr)
        assert "call 1 of rank 1 failed with outcome" in ran.stderr, (fault, ran.stderr)
        assert "Sanitizer" not in ran.stderr, (fault, ran.stderr)
