"""CPU kernels of zenc, and a whole call without its wire, beside memcpy and PyTorch.

    OMP_NUM_THREADS=1 python -m benchmarks.micro [--rounds 40] [--json FILE]
    python -m benchmarks.micro -k merge               those with this word in their name or shape
    python -m benchmarks.micro --scale 1000           tensors so many times smaller, to see whether all runs

A round runs the memcpy, PyTorch and the kernel one after the other, so that whatever else the machine does meets all
three; a time is the CPU time of the one thread, the least of all rounds and the median. "/ memcpy" is the kernel's time
over that of a memcpy of as many bytes, "torch /" is PyTorch's time over the kernel's: above 1 the kernel is faster.

    units x width float32, a share of the units occupied, cut in 8 parts      pack -> wire -> decode -> merge -> expand

Bytes: values for what moves values (those received for a merge, those written for an expansion), the dense tensor for
what writes all of it. Buffers are kept, also PyTorch's inputs; PyTorch's results are made anew.
PyTorch's way: coalesce (pack, expand to COO, a call of rows), nonzero and index_select (pack dense, a call of
elements), index_add_ to a cleared part (merge), index_copy_ to a cleared tensor (expand to dense).
"""

import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.pages import parser_of, save_json
from benchmarks.recorded import RANKS, RecordedCall
from zenc.codegen.render import render
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.cpu.library import load
from zenc.scheme.model import Format, Permutation
from zenc.wire.formats import wire_layout

PARTS, DTYPE, WARM = 8, "f32", 2
Work = Callable[[], object]


@dataclass(frozen=True)
class Shape:
    """The shape of a gradient; ``density`` is the share of the units that a rank has."""

    name: str
    units: int
    width: int
    density: float


SHAPES = (
    Shape("rows 200k x 64, 2 %", 200_000, 64, 0.02),
    Shape("elements 4M, 1 %", 4_000_000, 1, 0.01),
    Shape("elements 4M, 5 %", 4_000_000, 1, 0.05),
)


@dataclass
class Task:
    """The task of a kernel: the bytes whose memcpy it is held against, and PyTorch's way to do it, if there is one."""

    work: Work
    size: int
    torch: Work | None = None


def at(array: np.ndarray) -> int:
    return array.ctypes.data


def zeros(*shape: int) -> np.ndarray:
    """Return float32 zeros in memory as PyTorch makes it, and so as the run time has it: from a cache line on."""
    return torch.zeros(*shape).numpy()


class Gradient:
    """The gradient of one rank: ids [n] int64, values [n, width], dense [units, width], and the kernels' results."""

    def __init__(self, kernels: Kernels, shape: Shape, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.kernels, self.units, self.width = kernels, shape.units, shape.width
        self.g = kernels.geometry(self.units, shape.width, PARTS, dense=True)
        self.n, self.unit_bytes = round(self.units * shape.density), 4 * shape.width
        self.ids = rng.permutation(self.units)[: self.n].astype(np.int64)
        self.values = rng.standard_normal((self.n, self.width)).astype(np.float32)
        self.dense = zeros(self.units, self.width)
        self.dense[self.ids] = self.values
        words = self.g.words
        self.bitmap, self.before, self.decoded = (np.zeros(words, np.uint64) for _ in range(3))
        self.slots = np.zeros(self.n, np.int64)
        self.wire = np.zeros(self.values.nbytes // 8 + 2 * words + self.n + 64, np.uint64)
        self.pack()

    def pack(self) -> None:
        """Pack COO rows to the bodies of all parts, one after the other."""
        self.kernels.mark_units(self.g, at(self.ids), self.n, at(self.bitmap), at(self.slots))
        self.kernels.rank(at(self.bitmap), self.g.words, at(self.before))
        where = (at(self.bitmap), at(self.before), self.n, 1, self.lay_out())
        self.kernels.place_units(DTYPE, self.g, at(self.slots), self.n, at(self.values), *where)
        self.encode()

    def pack_dense(self) -> None:
        """Pack a dense tensor to the bodies of all parts, one after the other."""
        self.kernels.mark_dense(DTYPE, self.g, at(self.dense), at(self.bitmap))
        self.kernels.rank(at(self.bitmap), self.g.words, at(self.before))
        outs = self.lay_out()
        self.kernels.place_dense(DTYPE, self.g, at(self.dense), at(self.bitmap), 1, outs)
        self.encode()

    def lay_out(self) -> list[int]:
        """Return the places of each part's values: bodies and their formats follow from the counts alone."""
        self.bodies, self.part_values, place = [], [], at(self.wire)
        starts = [*self.before[:: self.g.part_words].tolist(), self.n]
        for part in range(PARTS):
            slots, count = self.g.slots_of(part), starts[part + 1] - starts[part]
            wire, index, body = wire_layout(Format.AUTO, slots, count, self.unit_bytes)
            self.bodies.append((wire, place, slots, count))
            self.part_values.append(place + index)
            place += body
        return self.part_values

    def encode(self) -> None:
        """Encode the indices in the smallest formats; the values are in their places."""
        for part, (wire, body, slots, count) in enumerate(self.bodies):
            self.kernels.encode_index(wire, at(self.bitmap) + 8 * part * self.g.part_words, slots, count, body)

    def decode(self) -> None:
        """Decode the bitmaps of all parts; the values stay where they are."""
        for part, (wire, body, slots, count) in enumerate(self.bodies):
            self.kernels.decode_index(wire, body, slots, count, at(self.decoded) + 8 * part * self.g.part_words)


class Sum:
    """The sum of ``ranks`` gradients: part 0 merged, and the whole sum expanded."""

    def __init__(self, gradients: list[Gradient]) -> None:
        first, self.gradients = gradients[0], gradients
        self.kernels, self.g, self.width = first.kernels, first.g, first.width
        for each in gradients:
            each.decode()
        self.bitmaps = [at(each.decoded) for each in gradients]
        self.values = [each.part_values[0] for each in gradients]
        self.union = np.zeros(self.g.part_words, np.uint64)
        self.out = zeros(self.kernels.union(self.bitmaps, self.g.part_words, at(self.union)), self.width)
        self.received_bytes = sum(each.bodies[0][3] for each in gradients) * first.unit_bytes
        self.whole, self.nothing = np.zeros(self.g.words, np.uint64), np.zeros(self.g.words, np.uint64)
        self.count = self.kernels.union(self.bitmaps, self.g.words, at(self.whole))
        self.sums = np.ones((self.count, self.width), np.float32)
        before = np.zeros(self.g.words + 1, np.uint64)
        self.kernels.rank(at(self.whole), self.g.words, at(before))
        starts = before[: self.g.words : self.g.part_words].tolist()
        self.parts = [at(self.sums) + start * first.unit_bytes for start in starts]
        self.ids, self.rows = np.zeros(self.count, np.int64), zeros(self.count, self.width)
        self.dense = zeros(first.units, self.width)

    def merge(self) -> None:
        self.kernels.union(self.bitmaps, self.g.part_words, at(self.union))
        self.kernels.merge(DTYPE, self.bitmaps, self.values, self.g.part_words, self.width, at(self.out))

    def expand(self) -> None:
        self.kernels.expand_units(DTYPE, self.g, at(self.whole), self.parts, at(self.ids), at(self.rows))

    def whole_call(self) -> None:
        self.gradients[0].pack()
        self.merge()
        self.expand()

    def expand_dense(self) -> None:
        self.kernels.expand_dense(DTYPE, self.g, at(self.whole), self.parts, at(self.nothing), at(self.dense))


def made(shape: Shape) -> tuple[Gradient, Sum]:
    mapping = Permutation(0x5EED)
    kernels = load(render(type(mapping)), mapping)
    gradients = [Gradient(kernels, shape, seed) for seed in range(RANKS)]
    return gradients[0], Sum(gradients)


def tasks(shape: Shape) -> Iterator[tuple[str, Task]]:
    g, s = made(shape)
    peers = Peers(g, s)
    rows, result = g.values.nbytes, s.rows.nbytes
    yield "pack", Task(g.pack, rows, peers.coalesce)
    yield "pack dense", Task(g.pack_dense, rows, peers.gather)
    yield "expand to COO", Task(s.expand, result, peers.coalesce_sum)
    yield "expand to dense", Task(s.expand_dense, s.dense.nbytes, peers.index_copy)
    yield "merge of 8", Task(s.merge, s.received_bytes, peers.index_add)
    yield "pack, merge, expand", Task(s.whole_call, rows + s.received_bytes + result)


class Peers:
    """PyTorch's ways to do the same on the same numbers. It makes the memory of its results anew, and keeps it."""

    def __init__(self, gradient: Gradient, summed: Sum) -> None:
        self.shape, self.summed = (gradient.units, gradient.width), summed
        self.dense, self.values = torch.from_numpy(gradient.dense), torch.from_numpy(gradient.values)
        self.ids, self.rows = torch.from_numpy(gradient.ids), torch.zeros(self.shape)
        self.union = torch.from_numpy(np.random.default_rng(0).permutation(gradient.units)[: summed.count])
        self.sums, slots, words = torch.from_numpy(summed.sums), gradient.g.slots_of(0), gradient.g.part_words
        self.part = torch.zeros(slots, gradient.width)
        self.pieces = [torch.from_numpy(_slots(bitmap, words)[:slots].nonzero()[0]) for bitmap in summed.bitmaps]
        self.piece_values = [torch.ones(ids.numel(), gradient.width) for ids in self.pieces]

    def coalesce(self) -> torch.Tensor:
        return torch.sparse_coo_tensor(self.ids[None], self.values, self.shape, check_invariants=False).coalesce()

    def coalesce_sum(self) -> torch.Tensor:
        return torch.sparse_coo_tensor(self.union[None], self.sums, self.shape, check_invariants=False).coalesce()

    def gather(self) -> torch.Tensor:
        flat = self.dense.view(-1) if self.shape[1] == 1 else self.dense
        found = (flat if self.shape[1] == 1 else flat.any(1)).nonzero()[:, 0]
        return flat.index_select(0, found)

    def index_add(self) -> torch.Tensor:
        """Add the pieces of part 0 in a dense part."""
        self.part.zero_()
        for ids, values in zip(self.pieces, self.piece_values, strict=True):
            self.part.index_add_(0, ids, values)
        return self.part

    def index_copy(self) -> torch.Tensor:
        return self.rows.zero_().index_copy_(0, self.union, self.sums)


def _slots(address: int, words: int) -> np.ndarray:
    bitmap = np.ctypeslib.as_array((ctypes.c_uint64 * words).from_address(address))
    return np.unpackbits(bitmap.view(np.uint8), bitorder="little")


def timed(task: Task, rounds: int) -> dict[str, Any]:
    """Return the least and the median CPU seconds of ``task``, and the least of a memcpy and of what PyTorch does."""
    source, target = (ctypes.create_string_buffer(task.size + 1) for _ in range(2))
    ctypes.memset(source, 1, task.size)
    works = {"own": task.work, "memcpy": lambda: ctypes.memmove(target, source, task.size)}
    return least(works | ({"torch": task.torch} if task.torch else {}), rounds, lambda: 0.0)


def timed_call(shape: Shape, rounds: int) -> dict[str, Any]:
    """Return the seconds of a call of 8 ranks without its wire, and of PyTorch to find and gather a gradient alone."""
    peers = Peers(*made(shape))
    call = RecordedCall([tensor_of(each, shape) for each in peers.summed.gradients])
    fresh = [call.fresh() for _ in range(rounds + WARM)]
    by_torch = peers.coalesce if shape.width > 1 else peers.gather
    works: dict[str, Work] = {"own": lambda: call.all_reduce(fresh.pop()), "torch": by_torch}
    return least(works, rounds, lambda: call.wire)


def tensor_of(gradient: Gradient, shape: Shape) -> torch.Tensor:
    """Return rows as a sparse tensor, single elements as a dense one."""
    if shape.width == 1:
        return torch.from_numpy(gradient.dense).view(-1)
    ids, values = torch.from_numpy(gradient.ids)[None], torch.from_numpy(gradient.values)
    return torch.sparse_coo_tensor(ids, values, (shape.units, shape.width), check_invariants=False)


def least(works: dict[str, Work], rounds: int, wire: Callable[[], float]) -> dict[str, Any]:
    """Return the least CPU seconds of all ``works``, which take turns, and the median of the first, less its wire."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + WARM):
        for name, work in reversed(works.items()):
            started = time.thread_time()
            work()
            times[name].append(time.thread_time() - started - (wire() if name == "own" else 0.0))
    kept = {name: each[WARM:] for name, each in times.items()}
    return {**{name: min(each) for name, each in kept.items()}, "median": statistics.median(kept["own"])}


def measured(rounds: int, scale: int, word: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each kernel of each shape whose name has ``word`` in it."""
    for shape in (replace(shape, units=shape.units // scale) for shape in SHAPES):
        for name, task in tasks(shape):
            if word in f"{name} {shape.name}":
                yield {"shape": shape.name, "kernel": name, **timed(task, rounds)}
        if word in f"whole call {shape.name}":
            yield {"shape": shape.name, "kernel": "whole call", **timed_call(shape, rounds)}


def line(row: dict[str, Any]) -> str:
    copied = f"{row['own'] / row['memcpy']:.2f}" if "memcpy" in row else ""
    peer = f"{row['torch'] / row['own']:.2f}" if "torch" in row else ""
    return f"{row['kernel']:28}{row['own'] * 1e6:10.1f}{row['median'] * 1e6:10.1f}{copied:>10}{peer:>10}"


def main() -> None:
    parser = parser_of(__doc__, rounds=40, scale=1)
    parser.add_argument("-k", metavar="WORD", default="", help="only kernels and shapes with this word")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for row in measured(options.rounds, options.scale, options.k):
        if not rows or rows[-1]["shape"] != row["shape"]:
            print(f"\n{row['shape']}\n{'':28}{'us':>10}{'median':>10}{'/ memcpy':>10}{'torch /':>10}")
        print(line(row), flush=True)
        rows.append(row)
    save_json(options.json, rows)


if __name__ == "__main__":
    main()
