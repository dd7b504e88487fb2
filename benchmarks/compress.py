"""Seconds of the kernels of compression on one core, and how many copies of the tensor that is.

python -m benchmarks.compress [--values 4194304] [--rounds 15] [--json benchmarks/results/compress.json]

Float32 with a residual, in memory as tensors have it. Before each kernel memcpy copies a tensor of as many values, from
memory to memory, both written before; seconds are of the processor, and the least of all rounds. Targets: exact top 1 %
at most 5 copies, codes with residual at most 4.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.pages import new_parser, save_json
from zenc.runtime.lossy.kernels import Threshold, compression_kernels, shared_exponent
from zenc.runtime.lossy.parameters import AT_RANDOM, BISECTED, FROM, OF_BLOCKS, SAMPLED, TOP, UnitChoice
from zenc.scheme.compression import Code, Fixed, Integers, OneBit, RandomLevels, Rounded, Sign, Ternary, Vote
from zenc.wire.codes import most_encoded_bytes

CODES: dict[str, Code] = {
    "f16": Rounded("f16"),
    "bf16": Rounded("bf16"),
    "int(8)": Integers(8),
    "int(4)": Integers(4),
    "sign": Sign(),
    "vote": Vote(),
    "onebit": OneBit(),
    "levels(64), at random": RandomLevels(64),
    "ternary, at random": Ternary(),
}
FIXED: dict[str, Code] = {"fixed(8)": Fixed(8), "fixed(8) by asc": Fixed(8, "asc")}
SKETCH_ROWS, SKETCH_SHARE = 3, 0.02


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--values", type=int, default=1 << 22)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels whose names have TEXT")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    bench = Bench(options.values)
    every = {**bench.selections(), **bench.codes(), **bench.linear()}
    kernels = {name: kernel for name, kernel in every.items() if options.only in name}
    rows = [row(name, pairs, bench) for name, pairs in measured(kernels, bench, options.rounds).items()]
    print(f"{options.values:,} float32, one core; memcpys: the median of seconds over those of a copy right before")
    print(f"{'':38}{'ms':>8}{'memcpys':>9}{'MB/s':>9}{'bytes/value':>13}")
    for each in rows:
        size = f"{each['bytes_per_value']:13.3f}" if "bytes_per_value" in each else ""
        print(f"{each['kernel']:38}{each['ms']:8.2f}{each['memcpys']:9.2f}{each['mb_per_second']:9.0f}{size}")
    save_json(options.json, {"values": options.values, "kernels": rows})


Seconds = list[tuple[float, float]]
"""Seconds of each round: the kernel's, and those of the copy right before it."""


def measured(kernels: dict[str, Callable[[], object]], bench: Bench, rounds: int) -> dict[str, Seconds]:
    found: dict[str, Seconds] = {name: [] for name in kernels}
    for _ in range(rounds):
        for name, kernel in kernels.items():
            bench.prepare()
            copied = seconds(bench.copy)
            found[name].append((seconds(kernel), copied))
    return found


def seconds(run: Callable[[], object]) -> float:
    started = time.thread_time()
    run()
    return time.thread_time() - started


def row(name: str, pairs: Seconds, bench: Bench) -> dict[str, float | str]:
    least = min(taken for taken, _ in pairs)
    found: dict[str, float | str] = {
        "kernel": name,
        "ms": least * 1e3,
        "memcpys": median(taken / copied for taken, copied in pairs),
        "mb_per_second": 4e-6 * bench.n / least,
    }
    return found | ({"bytes_per_value": bench.sizes[name] / bench.n} if name in bench.sizes else {})


def tensor(values: np.ndarray) -> np.ndarray:
    """Return ``values`` as float32, in memory as tensors have it: aligned, in small pages, written."""
    return torch.empty(len(values)).copy_(torch.from_numpy(values)).numpy()


class Bench:
    """The tensors of all kernels, and the kernels on them by name. ``sizes``: encoded bytes, as kernels run."""

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(0)
        spread = np.exp(rng.standard_normal(n))
        self.n, self.k, self.kernels = n, max(1, n // 100), compression_kernels()
        self.gradient = tensor(rng.standard_normal(n) * spread)
        self.residual = tensor(rng.standard_normal(n) / 2)
        self.greatest = abs(self.gradient).max()
        self.given, self.left, self.out, self.decoded, self.loss = (tensor(self.gradient) for _ in range(5))
        self.bytes = np.zeros(5 * n + 4096, np.uint8)
        self.sizes: dict[str, int] = {}
        self.places = [tensor(self.residual) for _ in range(8)]  # pages that nobody wrote would all be one
        self.copies = 0
        self.memcpy = ctypes.CDLL(None).memcpy
        self.memcpy.argtypes, self.memcpy.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p

    def copy(self) -> None:
        self.copies += 2
        to, source = (self.places[(self.copies + i) % len(self.places)].ctypes.data for i in (0, 1))
        self.memcpy(to, source, 4 * self.n)

    def selections(self) -> dict[str, Callable[[], object]]:
        """Return the selections of a gradient in place, as calls make them."""
        n, k = self.n, self.k
        at = n, self.given.ctypes.data, self.residual.ctypes.data, self.left.ctypes.data

        def cut(*choice: int) -> Callable[[], object]:
            return lambda: self.kernels.contribute("f32", *at, UnitChoice(*choice))

        return {
            "accumulate": lambda: self.kernels.accumulate("f32", *at),
            "top 1 %, exact": cut(TOP, k),
            "top 1 % by sampled(0.01)": cut(SAMPLED, k, n // 100 or 1, 1),
            "top 1 % by bisection(20)": cut(BISECTED, k, 20),
            "top 1 % by reused(10), 9 of 10": cut(FROM, Threshold.of(5.0).magnitude),
            "top 10 of blocks of 1024": cut(OF_BLOCKS, 10, 1024),
            "random_each(1 %)": cut(AT_RANDOM, round(0.01 * 2**31), 0, 1),
            "is_finite": lambda: self.kernels.is_finite("f32", n, self.gradient.ctypes.data),
        }

    def prepare(self) -> None:
        """Undo the changes of selections to the given gradient."""
        np.copyto(self.given, self.gradient)

    def codes(self) -> dict[str, Callable[[], object]]:
        kernels: dict[str, Callable[[], object]] = {}
        for name, code in CODES.items():
            kernels[f"{name}, with residual"] = self.encoder(f"{name}, with residual", code)
            kernels[f"{name}, decoded"] = self.decoder(f"{name}, with residual", code)
        kernels["fixed(8): made of values"] = self.quantise
        for name, code in FIXED.items():
            kernels[name] = self.encoder(name, code)
            kernels[f"{name}, decoded"] = self.decoder(name, code)
        return kernels

    def encoder(self, name: str, code: Code) -> Callable[[], object]:
        assert most_encoded_bytes(code, self.n) <= len(self.bytes)
        values = self.out if isinstance(code, Fixed) else tensor(self.gradient)
        source = values.ctypes.data
        into = self.bytes.ctypes.data, source, self.loss.ctypes.data  # in place, as calls do it

        def encode() -> None:
            assert values.size == self.n
            self.sizes[name] = self.kernels.encode(code, "f32", self.n, source, *into, key=1)

        return encode

    def decoder(self, name: str, code: Code) -> Callable[[], object]:
        def decode() -> None:
            at = self.bytes.ctypes.data, self.sizes[name], self.decoded.ctypes.data
            self.kernels.decode(code, "f32", self.n, *at)

        return decode

    def quantise(self) -> None:
        code = Fixed(8)
        exponent = shared_exponent(code, float(self.greatest))
        self.kernels.quantise_fixed(code, "f32", self.n, self.left.ctypes.data, exponent, self.out.ctypes.data)

    def linear(self) -> dict[str, Callable[[], object]]:
        cells = max(1, int(SKETCH_SHARE * self.n / SKETCH_ROWS))
        sums = np.zeros((SKETCH_ROWS, cells), np.float32)
        units, values = np.zeros(self.k, np.int64), np.zeros(self.k, np.float32)
        k, n, shape = self.kernels, self.n, (SKETCH_ROWS, cells, 1)
        source, out = self.gradient.ctypes.data, self.out.ctypes.data

        def drawn() -> None:
            k.draw_units(n, self.k, 1, units.ctypes.data)
            k.take_units("f32", units.ctypes.data, self.k, self.left.ctypes.data, values.ctypes.data)

        return {
            "random(1 %): drawn and taken": drawn,
            "sketch(3, 0.02)": lambda: k.sketch(source, n, *shape, sums.ctypes.data),
            "sketch(3, 0.02), medians": lambda: k.query_sketch("f32", n, sums.ctypes.data, *shape, out),
            "probable: history": lambda: k.remember("f32", n, source, 0.9, self.decoded.ctypes.data),
        }


if __name__ == "__main__":
    main()
