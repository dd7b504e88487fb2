"""How fast the CPU kernels are, as ratios to a memcpy of the same bytes taken in the same run.

    python benchmarks/kernels.py [--json] [--repeat N]

A case is one rank's gradient of V units x width float32 values, cut in 4 parts by a permutation. "COO to wire" (mark,
rank, place, encode_index) goes from its rows to the bytes of all messages, "wire to segment" (decode_index) from them
to segments that merges can use. The base is a memcpy of the values plus one pass over the bitmap. As peers, torch sorts
and adds up the same rows (coalesce) and only gathers them (index_select), with one thread.

"hashed" is the same way under hierarchical hashing with Zen's k = 3, r1 = 2.0, r2 = 0.2, and "tables" what it builds
once for a shape of tensor: 8 bytes a unit.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable

import numpy as np
import torch

from zenc.codegen.render import UnitInputs, render
from zenc.plan.formats import wire_layout
from zenc.scheme.model import Format
from zenc.targets.cpu import load
from zenc.targets.cpu.kernels import Kernels

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
        self.geometry = kernels.geometry(units, width, PARTS)
        self.part_slots = [self.geometry.slots_of(part) for part in range(PARTS)]
        self.part_words = self.geometry.part_words
        self.n = round(units * density)
        self.units = rng.permutation(units)[: self.n].astype(np.int64)
        self.values = rng.standard_normal((self.n, width)).astype(np.float32)
        self.dense = np.zeros((units, width), np.float32)
        self.dense[self.units] = self.values
        self.bitmap = np.zeros(self.geometry.words, np.uint64)
        self.before = np.zeros(self.geometry.words, np.uint64)
        self.slots = np.zeros(self.n, np.int64)
        self.decoded = np.zeros(self.geometry.words, np.uint64)
        self.wire = np.zeros(self.values.nbytes // 8 + 2 * self.geometry.words + self.n + 64, np.uint64)
        self.out = np.zeros((units, width), np.float32)
        self.pack_dense()
        self.pack()
        self.decode()

    def pack(self) -> None:
        """From COO rows to the bodies of all parts, one after the other."""
        k, g, bitmap, before, slots = self.kernels, self.geometry, at(self.bitmap), at(self.before), at(self.slots)
        k.mark_units(g, at(self.units), self.n, bitmap, slots)
        distinct = k.rank(bitmap, g.words, before)
        outs = self.lay_out(distinct)
        k.place_units(DTYPE, g, slots, self.n, at(self.values), bitmap, before, distinct, 1, outs)
        self.encode()

    def pack_dense(self) -> None:
        """The same from a dense tensor."""
        k, g, bitmap, before = self.kernels, self.geometry, at(self.bitmap), at(self.before)
        k.mark_dense(DTYPE, g, at(self.dense), bitmap)
        outs = self.lay_out(k.rank(bitmap, g.words, before))
        k.place_dense(DTYPE, g, at(self.dense), bitmap, before, 1, outs)
        self.encode()

    def lay_out(self, distinct: int) -> list[int]:
        """Where the values of each part go: bodies and their formats follow from the counts alone."""
        g, place = self.geometry, at(self.wire)
        self.bodies, self.part_values = [], []
        starts = [*self.before[:: self.part_words].tolist(), distinct]
        for part in range(PARTS):
            slots, count = self.part_slots[part], starts[part + 1] - starts[part]
            wire, index, body = wire_layout(Format.AUTO, slots, count, g.width * 4)
            self.bodies.append((wire, place, slots, count))
            self.part_values.append(place + index)
            place += body
        return self.part_values

    def encode(self) -> None:
        """The indices; the values are in their places."""
        bitmap = at(self.bitmap)
        for wire, body, slots, count in self.bodies:
            self.kernels.encode_index(wire, bitmap, slots, count, body)
            bitmap += self.part_words * 8

    def decode(self) -> None:
        """The bitmaps of all parts; the values stay where they are."""
        bitmap = at(self.decoded)
        for wire, body, slots, count in self.bodies:
            self.kernels.decode_index(wire, body, slots, count, bitmap)
            bitmap += self.part_words * 8

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


def tables_of(hashing: Kernels, units: int, width: int) -> Callable[[], object]:
    """Tables that are freed at once, so that they are built every time."""
    return lambda: hashing.geometry(units, width, PARTS + 1)


def measure(
    kernels: Kernels, hashing: Kernels, units: int, width: int, density: float, repeat: int
) -> dict[str, float]:
    case, hashed = Case(kernels, units, width, density), Case(hashing, units, width, density)
    four = [Case(kernels, units, width, density, seed) for seed in range(2, 6)]
    copy, words = np.zeros_like(case.values), np.zeros_like(case.bitmap)
    received = sum(four_case.bodies[0][3] for four_case in four) * width * 4
    source, target = np.zeros(received, np.uint8), np.zeros(received, np.uint8)

    def base() -> None:
        ctypes.memmove(at(copy), at(case.values), case.values.nbytes)
        kernels.rank(at(case.bitmap), len(case.bitmap), at(words))

    rows, order = torch.from_numpy(case.values), torch.from_numpy(np.argsort(case.slots))
    sparse = torch.sparse_coo_tensor(torch.from_numpy(case.units)[None], rows, case.dense.shape, check_invariants=False)
    times = {
        "base": best(base, repeat),
        "COO to wire": best(case.pack, repeat),
        "wire to segment": best(case.decode, repeat),
        "torch coalesce": best(sparse.coalesce, repeat),
        "torch index_select": best(lambda: rows.index_select(0, order), repeat),
        "dense to wire": best(case.pack_dense, repeat),
        "read dense": best(lambda: case.dense.view(np.uint32).max(), repeat),
        "merge of 4": best(merge_of(four), repeat),
        "copy of 4": best(lambda: ctypes.memmove(at(target), at(source), received), repeat),
        "expand units": best(case.expand_units, repeat),
        "expand dense": best(case.expand_dense, repeat),
        "hashed COO to wire": best(hashed.pack, repeat),
        "hashed dense to wire": best(hashed.pack_dense, repeat),
        "hashed expand units": best(hashed.expand_units, repeat),
        "hashed expand dense": best(hashed.expand_dense, repeat),
        "tables": best(tables_of(hashing, units, width), min(repeat, 3)),
        "clear dense": best(lambda: ctypes.memset(at(case.out), 0, case.out.nbytes), repeat),
    }
    times["(to wire + to segment) / base"] = (times["COO to wire"] + times["wire to segment"]) / times["base"]
    times["coalesce / to wire"] = times["torch coalesce"] / times["COO to wire"]
    times["dense to wire / read dense"] = times["dense to wire"] / times["read dense"]
    times["merge / copy"] = times["merge of 4"] / times["copy of 4"]
    times["expand units / base"] = times["expand units"] / times["base"]
    times["expand dense / (clear + base)"] = times["expand dense"] / (times["clear dense"] + times["base"])
    for way in ("COO to wire", "dense to wire", "expand units", "expand dense"):
        times[f"hashed / permuted: {way}"] = times[f"hashed {way}"] / times[way]
    times["tables / COO to wire"] = times["tables"] / times["COO to wire"]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeat", type=int, default=15, help="runs of which the shortest counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kernels = load(render(UnitInputs("permutation", 0x5EED)))
    hashing = load(render(UnitInputs("hierarchical_hash", 0x5EED, 3, 2.0, 0.2)))
    cases = {
        "200,000 x 64, 2 %": (200_000, 64, 0.02),
        "4,000,000 x 1, 1 %": (4_000_000, 1, 0.01),
        "4,000,000 x 1, 5 %": (4_000_000, 1, 0.05),
    }
    results = {name: measure(kernels, hashing, *shape, options.repeat) for name, shape in cases.items()}
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'microseconds, or a ratio':34}" + "".join(f"{name:>22}" for name in results))
    for row in next(iter(results.values())):
        print(f"{row:34}" + "".join(f"{result[row]:22.2f}" for result in results.values()))


if __name__ == "__main__":
    main()
