"""How fast the CPU kernels are, as ratios to a memcpy of the same bytes taken in the same run.

    python benchmarks/kernels.py [--json] [--repeat N]

A case is one rank's gradient of V units x width float32 values, cut in 4 parts by a permutation:
encode = from COO rows (or a dense tensor) to the bytes on the wire, decode = from them to a segment that merges can
use. The base is a memcpy of the values on the wire plus one pass over the bitmap.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable

import numpy as np

from zenc.codegen.render import UnitInputs, render
from zenc.plan.formats import index_bytes, padded, wire_format
from zenc.scheme.model import Format
from zenc.targets.cpu import load
from zenc.targets.cpu.kernels import Kernels
from zenc.targets.geometry import Geometry

PARTS = 4
DTYPE = "f32"


def at(array: np.ndarray) -> int:
    return array.ctypes.data


def best(work: Callable[[], object], repeat: int) -> float:
    """The shortest of ``repeat`` runs, in microseconds."""
    shortest = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest * 1e6


class Case:
    """One gradient and all buffers of its way: units [n] int64, values [n, width], ``dense`` [units, width]."""

    def __init__(self, kernels: Kernels, units: int, width: int, density: float, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.kernels = kernels
        self.geometry = Geometry(units, width, PARTS)
        self.n = round(units * density)
        self.units = rng.permutation(units)[: self.n].astype(np.int64)
        self.values = rng.standard_normal((self.n, width)).astype(np.float32)
        self.dense = np.zeros((units, width), np.float32)
        self.dense[self.units] = self.values
        self.bitmap = np.zeros(self.geometry.words, np.uint64)
        self.before = np.zeros(self.geometry.words, np.uint64)
        self.placed = np.zeros((self.n, width), np.float32)
        self.decoded = np.zeros(self.geometry.words, np.uint64)
        self.wire = np.zeros(self.values.nbytes // 8 + 2 * self.geometry.words + self.n + 64, np.uint64)
        self.out = np.zeros((units, width), np.float32)
        self.pack()
        self.pack_dense()
        self.encode()
        self.decode()

    def pack(self) -> None:
        k, g = self.kernels, self.geometry
        k.mark_units(g, at(self.units), self.n, at(self.bitmap))
        distinct = k.rank(at(self.bitmap), g.words, at(self.before))
        bitmap, before = at(self.bitmap), at(self.before)
        k.place_units(DTYPE, g, at(self.units), self.n, at(self.values), bitmap, before, distinct, 1, at(self.placed))

    def pack_dense(self) -> None:
        k, g = self.kernels, self.geometry
        k.mark_dense(DTYPE, g, at(self.dense), at(self.bitmap))
        k.rank(at(self.bitmap), g.words, at(self.before))
        k.place_dense(DTYPE, g, at(self.dense), at(self.bitmap), at(self.before), 1, at(self.placed))

    def encode(self) -> None:
        """The bodies of all parts, one after the other."""
        g, place, self.bodies = self.geometry, at(self.wire), []
        firsts = [int(self.before[p * g.part_words]) for p in range(PARTS)] + [self.n]
        for part in range(PARTS):
            slots, count = g.slots_of(part), firsts[part + 1] - firsts[part]
            wire = wire_format(Format.AUTO, slots, count)
            values, size = at(self.placed) + firsts[part] * g.width * 4, count * g.width * 4
            bitmap = at(self.bitmap) + part * g.part_words * 8
            self.bodies.append((wire, place, slots, count))
            place += self.kernels.encode(wire, bitmap, slots, count, values, size, place)
        assert place - at(self.wire) == sum(
            index_bytes(wire, slots, count) + padded(count * g.width * 4) for wire, _, slots, count in self.bodies
        )

    def decode(self) -> None:
        """The bitmaps of all parts; the values stay where they are."""
        self.part_values = []
        for part, (wire, body, slots, count) in enumerate(self.bodies):
            bitmap = at(self.decoded) + part * self.geometry.part_words * 8
            self.kernels.decode_index(wire, body, slots, count, bitmap)
            self.part_values.append(body + index_bytes(wire, slots, count))

    def expand_dense(self) -> None:
        self.kernels.expand_dense(DTYPE, self.geometry, at(self.decoded), self.part_values, at(self.out))

    def expand_units(self) -> None:
        ids = at(self.out)
        values = ids + 8 * self.n
        self.kernels.expand_units(DTYPE, self.geometry, at(self.decoded), self.part_values, ids, values)


def merge_of(cases: list[Case]) -> Callable[[], object]:
    """A merge of part 0 of several gradients."""
    kernels, geometry = cases[0].kernels, cases[0].geometry
    words = geometry.part_words
    bitmaps = [at(case.decoded) for case in cases]
    values = [case.part_values[0] for case in cases]
    union = np.zeros(words, np.uint64)
    count = kernels.union(bitmaps, words, at(union))
    out = np.zeros((count, geometry.width), np.float32)

    def work() -> None:
        kernels.union(bitmaps, words, at(union))
        kernels.merge(DTYPE, bitmaps, values, words, geometry.width, at(out))

    return work


def measure(kernels: Kernels, units: int, width: int, density: float, repeat: int) -> dict[str, float]:
    case = Case(kernels, units, width, density)
    four = [Case(kernels, units, width, density, seed) for seed in range(2, 6)]
    copy, words = np.zeros_like(case.values), np.zeros_like(case.bitmap)
    received = sum(four_case.bodies[0][3] for four_case in four) * width * 4
    source, target = np.zeros(received, np.uint8), np.zeros(received, np.uint8)

    def base() -> None:
        ctypes.memmove(at(copy), at(case.values), case.values.nbytes)
        kernels.rank(at(case.bitmap), len(case.bitmap), at(words))

    times = {
        "base": best(base, repeat),
        "pack": best(case.pack, repeat),
        "encode": best(case.encode, repeat),
        "decode": best(case.decode, repeat),
        "pack dense": best(case.pack_dense, repeat),
        "read dense": best(lambda: case.dense.view(np.uint32).max(), repeat),
        "merge of 4": best(merge_of(four), repeat),
        "copy of 4": best(lambda: ctypes.memmove(at(target), at(source), received), repeat),
        "expand units": best(case.expand_units, repeat),
        "expand dense": best(case.expand_dense, repeat),
        "clear dense": best(lambda: ctypes.memset(at(case.out), 0, case.out.nbytes), repeat),
    }
    times["(pack + encode + decode) / base"] = (times["pack"] + times["encode"] + times["decode"]) / times["base"]
    times["pack dense / read dense"] = times["pack dense"] / times["read dense"]
    times["merge / copy"] = times["merge of 4"] / times["copy of 4"]
    times["expand units / base"] = times["expand units"] / times["base"]
    times["expand dense / (clear + base)"] = times["expand dense"] / (times["clear dense"] + times["base"])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeat", type=int, default=15, help="runs of which the shortest counts")
    options = parser.parse_args()
    kernels = load(render(UnitInputs("permutation", 0x5EED)))
    cases = {
        "200,000 x 64, 2 %": (200_000, 64, 0.02),
        "4,000,000 x 1, 1 %": (4_000_000, 1, 0.01),
        "4,000,000 x 1, 5 %": (4_000_000, 1, 0.05),
    }
    results = {name: measure(kernels, *shape, options.repeat) for name, shape in cases.items()}
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'microseconds, or a ratio':34}" + "".join(f"{name:>22}" for name in results))
    for row in next(iter(results.values())):
        print(f"{row:34}" + "".join(f"{result[row]:22.2f}" for result in results.values()))


if __name__ == "__main__":
    main()
