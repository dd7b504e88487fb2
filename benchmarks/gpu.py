"""What packing a gradient costs on a GPU, beside a device-to-device copy in the same run; timed by events.

    python benchmarks/gpu.py [--json] [--repeat N] [--parts N] [--dense-units N] [--row-units N]

Packing is what a rank does with its own gradient before it can send: find the units and permute them, rank them (both
are "mark"), place their values part by part, and encode their indices; between mark and place the counts cross to the
host, so that bodies have exactly their size ("counts"). The launchers are those of call sequences.

* dense: 214 million float32 values of which 5.2 % are not 0, the largest tensor of Zen's evaluation (DeepFM). The floor
  is to read it once, half of what copying it takes. Zen hashes it in about 6 ms on a V100, 6.3 times that floor.
* rows: 1 % of the rows of 2,000,000 x 128, as an uncoalesced gradient has them. The floor is a copy of their values.

Medians of some runs. Small sizes are timed over several sets of tensors in a row, that no cache holds. Without a GPU it
prints "not measured".
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
from ctypes import c_char_p, c_float, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zenc.codegen.build.host import build
from zenc.codegen.render import UnitInputs, render
from zenc.errors import BuildError
from zenc.runtime.gpu.call_args import ALLOCATE, CallArgs
from zenc.runtime.gpu.driver import driver
from zenc.runtime.gpu.kernel_image import kernels_for
from zenc.wire.formats import slots_of

SOURCE = Path(__file__).with_suffix(".cpp")
MAPPING = UnitInputs("permutation", 0x5EED)
FLOORS = {"(mark + place + encode) / read": "at most 2 is wanted", "copy / place": "at least 0.7 is wanted"}
STAGES = ("mark", "counts", "place", "encode")
CACHED = 1 << 28
"""Bytes that no GPU keeps in its caches."""
VALUE_BYTES = 4
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bench_failure": (c_char_p, ()),
    "bench_open": (None, (c_char_p, c_int64)),
    "bench_allocate": (c_uint64, (c_uint64,)),
    "bench_free": (None, (c_uint64,)),
    "bench_upload": (None, (c_uint64, c_void_p, c_uint64)),
    "bench_copy": (c_float, (c_uint64, c_uint64, c_int64)),
    "bench_pack": (None, (c_void_p, c_int64, c_int64, c_uint64, c_void_p, c_void_p)),
    "zenc_load_kernels": (c_void_p, (c_char_p, c_char_p, c_uint64)),
}


class Bench:
    """The library of ``gpu.cpp`` on one device, with the kernels in ``image``. Raises RuntimeError for what fails."""

    def __init__(self, cuda: str, image: bytes) -> None:
        self._library = ctypes.CDLL(str(build({SOURCE.name: SOURCE.read_text("utf-8")}, target="cuda")))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self.call("open", cuda.encode(), 0)
        text = ctypes.create_string_buffer(512)
        self.kernels = self._library.zenc_load_kernels(image, text, len(text))
        if not self.kernels:
            raise RuntimeError(text.value.decode())

    def call(self, name: str, *arguments: Any) -> Any:
        found = getattr(self._library, f"bench_{name}")(*arguments)
        if problem := self._library.bench_failure():
            raise RuntimeError(problem.decode())
        return found

    def uploaded(self, *arrays: np.ndarray) -> int:
        """The address of a copy of arrays, one after another."""
        memory = int(self.call("allocate", sum(array.nbytes for array in arrays) or 1))
        at = memory
        for array in arrays:
            self.call("upload", at, array.ctypes.data, array.nbytes)
            at += array.nbytes
        return memory


@dataclass
class Gradient:
    """``values`` [n, width] float32 of units ``ids`` [n] int64, or all of a dense tensor where these are None."""

    units: int
    width: int
    ids: np.ndarray | None
    values: np.ndarray
    occupied: int

    @property
    def sets(self) -> int:
        """How many of them no cache holds."""
        return max(1, min(16, -(-CACHED // (2 * max(self.values.nbytes, 1)))))


def dense_gradient(units: int, density: float) -> Gradient:
    rng = np.random.default_rng(1)
    values = np.zeros((units, 1), np.float32)
    here = np.flatnonzero(rng.random(units, np.float32) < density)
    values[here, 0] = rng.random(len(here), np.float32) + 1
    return Gradient(units, 1, None, values, len(here))


def row_gradient(units: int, width: int, density: float) -> Gradient:
    rng = np.random.default_rng(2)
    ids = rng.permutation(units)[: round(units * density)].astype(np.int64)
    return Gradient(units, width, ids, rng.standard_normal((len(ids), width), np.float32), len(ids))


def measure(bench: Bench, gradient: Gradient, parts: int, repeat: int) -> dict[str, float]:
    """Milliseconds of the stages, of all of them, and of copying the values: medians. The first run is not counted.

    Raises RuntimeError where the GPU finds another number of occupied units.
    """
    sets, size = gradient.sets, gradient.values.nbytes
    both = bench.call("allocate", 2 * sets * size)
    copies = [bench.call("copy", both, size, sets) for _ in range(repeat + 1)]
    bench.call("free", both)
    runs = packed(bench, gradient, parts, repeat + 1)
    stages = {stage: statistics.median(times[1:]) for stage, times in zip(STAGES, zip(*runs, strict=True), strict=True)}
    whole = statistics.median(sum(run) for run in runs[1:])
    return {**stages, "pack": whole, "copy": statistics.median(copies[1:])}


def packed(bench: Bench, gradient: Gradient, parts: int, repeat: int) -> list[list[float]]:
    """The times of each run, by stage."""
    slots = (c_int64 * parts)(*(slots_of(gradient.units, parts, part) for part in range(parts)))
    arena_bytes = gradient.sets * arena_of(gradient, parts)
    memory = [bench.uploaded(*[gradient.values] * gradient.sets), bench.call("allocate", arena_bytes)]
    call = CallArgs(
        units=gradient.units, width=gradient.width, part_slots=ctypes.addressof(slots), values=memory[0], divisor=1,
        kernels=bench.kernels, arena=memory[1], arena_bytes=arena_bytes, allocate=ALLOCATE(lambda _, size: 0),
    )  # fmt: skip
    if gradient.ids is not None:
        memory.append(bench.uploaded(gradient.ids))
        call.ids, call.n = memory[-1], len(gradient.ids)
    runs = []
    for _ in range(repeat):
        times, counts = (c_float * len(STAGES))(), (c_int64 * parts)()
        bench.call("pack", ctypes.addressof(call), parts, gradient.sets, gradient.values.nbytes, times, counts)
        if sum(counts) != gradient.occupied:
            raise RuntimeError(f"the GPU counts {sum(counts)} units, and there are {gradient.occupied}")
        runs.append(list(times))
    for address in memory:
        bench.call("free", address)
    return runs


def arena_of(gradient: Gradient, parts: int) -> int:
    """Bytes that one gradient takes at most: bitmap and ranks, slots, bodies, tables, and what a scan needs."""
    words = -(-gradient.units // 64) + parts
    n = 0 if gradient.ids is None else len(gradient.ids)
    bodies = gradient.occupied * (gradient.width * VALUE_BYTES + 8) + 8 * words
    return 20 * words + 8 * n + bodies + parts * 1024 + (1 << 16)


def ratios(times: dict[str, float], dense: bool) -> dict[str, float]:
    """What is held against a floor; of rows it is the share of the bandwidth of a copy."""
    work = times["mark"] + times["place"] + times["encode"]
    if dense:
        read = times["copy"] / 2
        return {"(mark + place + encode) / read": work / read, "pack / read": times["pack"] / read}
    return {"copy / place": times["copy"] / times["place"], "copy / (mark + place + encode)": times["copy"] / work}


def results(bench: Bench, gradients: dict[str, Gradient], parts: int, repeat: int) -> dict[str, dict[str, float]]:
    found = {}
    for name, gradient in gradients.items():
        times = measure(bench, gradient, parts, repeat)
        found[name] = {**times, **ratios(times, gradient.ids is None)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeat", type=int, default=20, help="runs of which the median counts")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--dense-units", type=int, default=214_000_000, help="values of the dense tensor")
    parser.add_argument("--row-units", type=int, default=2_000_000, help="rows of the table")
    options = parser.parse_args()
    try:
        started = driver()
        gpu = started.gpu(0)
    except BuildError:
        print(json.dumps("not measured") if options.json else "not measured")
        return
    bench = Bench(started.path, kernels_for(gpu, started, render(MAPPING, "cuda")).image)
    gradients = {
        f"dense, {options.dense_units:,}, 5.2 %": dense_gradient(options.dense_units, 0.052),
        f"rows, {options.row_units:,} x 128, 1 %": row_gradient(options.row_units, 128, 0.01),
    }
    show(f"{gpu.name}, CUDA {started.cuda}", results(bench, gradients, options.parts, options.repeat), options.json)


def show(machine: str, found: dict[str, dict[str, float]], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"machine": machine, "milliseconds and ratios": found}, indent=2))
        return
    print(machine)
    for name, rows in found.items():
        print(name)
        for row, value in rows.items():
            print(f"  {row:32}{value:10.4f}  {FLOORS.get(row, '')}".rstrip())


if __name__ == "__main__":
    main()
