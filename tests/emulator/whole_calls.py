"""Whole calls without Python: the program ``all_reduce.cpp`` and its files.

Ranks are threads of a program that g++ made, so that sanitizers watch all of it: kernels, call sequence, and the
libraries.
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tests.emulator.build import HERE, MODES, compiled, kernels, program
from tests.support.shipped import plan_of_shipped
from zenc.codegen.call_program import call_program
from zenc.codegen.render import headers, include_dirs, render, templates_dir
from zenc.plan.ir import Plan
from zenc.rank_ir.lower import lower_all
from zenc.runtime.call.layout import Layout, contribution_of, layout_of, sparse_result
from zenc.runtime.cpu import library
from zenc.runtime.cpu.geometry import Geometry
from zenc.runtime.gpu.library import INTERPRETER
from zenc.scheme.model import HierarchicalHash, Permutation
from zenc.wire.constants import DTYPE_NUMBERS

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
