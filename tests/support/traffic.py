"""Traffic of a call's kernels, counted in the emulator: sectors of 32 bytes that a kernel loads and stores, each once.

python -m tests.support.traffic     prints it; docs/internals/performance.md has the sums

Each kernel is counted as if a cache held everything that it loads again, and nothing of the kernel before it.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.emulator.build import counter, engine, kernels
from tests.emulator.device import Device
from tests.support.packing import Marked, Packer
from tests.support.pieces import Piece, decoded, ranks_of, rubbish, table, words_of
from zenc.codegen.render import render
from zenc.runtime.cpu.geometry import Geometry
from zenc.scheme.model import Format, Mapping, Permutation
from zenc.wire.constants import DTYPE_NUMBERS, WIRE_NUMBERS
from zenc.wire.formats import index_bytes

RANKS, UNITS, DENSITY, UNION = 8, 1 << 18, 0.052, 0.1
VALUE_BYTES, SECTOR = 4, 32
BANDWIDTH = 3.0e12
"""Bytes a second of an H100: an assumption."""
LAUNCH = 3e-6
"""Seconds from one kernel to the next: an assumption."""
LARGE = 214e6
"""Values of the tensor that is predicted."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of one kernel of the call of a tensor of ``units`` values."""

    kernel: str
    loaded: int
    stored: int
    units: int = UNITS

    @property
    def reads(self) -> float:
        """Loads and stores, in reads of the tensor."""
        return (self.loaded + self.stored) / (VALUE_BYTES * self.units)

    @property
    def milliseconds(self) -> float:
        """Predicted time for LARGE values."""
        return 1e3 * (self.reads * VALUE_BYTES * LARGE / BANDWIDTH + LAUNCH)


class CountingDevice(Device):
    """Kernels of mappings of a ``kind``, and the ``traffic`` of all launches."""

    def __init__(self, kind: type[Mapping]) -> None:
        self._engine = ctypes.CDLL(str(engine()))
        self._counter = ctypes.CDLL(str(counter()))
        self._counter.count_memory.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
        self._library = ctypes.CDLL(str(kernels(render(kind, "cuda"), "counted")))
        self.traffic: list[Traffic] = []

    def launch(self, name: str, grid: tuple[int, ...], arguments: Sequence[Any], *rest: Any, **more: Any) -> None:
        arrays = [each for each in arguments if isinstance(each, np.ndarray)]
        arrays += [array for each in arguments for array in getattr(each, "arrays", ())]
        for start, size in {(array.ctypes.data, array.nbytes) for array in arrays}:
            self._counter.count_memory(start, size)
        super().launch(name, grid, arguments, *rest, **more)
        bytes_of = (ctypes.c_uint64 * 2)()
        self._counter.take_traffic(bytes_of)
        self.traffic.append(Traffic(name.removeprefix("zenc_"), *bytes_of))


@dataclass
class _Tensors:
    """The tensors that ``Packer`` asks for."""

    geometry: Geometry
    name: str = "f32"

    @property
    def dtype(self) -> Any:
        return self

    def values(self, rows: int) -> np.ndarray:
        return rubbish(4 * rows + 4).view(np.float32)[:rows].reshape(rows, 1)


def traffic_of_a_call(units: int = UNITS) -> list[Traffic]:
    """Return the traffic of rank 0 in a dense call of ``balanced``: packed, summed, expanded; nothing is sent."""
    device = CountingDevice(Permutation)
    packer = Packer(device, _Tensors(Geometry(units, 1, RANKS, block=64)), blocks=4)
    generator = np.random.default_rng(1)
    hot = generator.random(units) < UNION
    gradients = [np.where(hot & (generator.random(units) < DENSITY / UNION), 1, 0) for _ in range(RANKS)]
    tensor = gradients[0].astype(np.float32)[:, None]
    packed = packer.pack_values(tensor, int(1.25 * DENSITY * units / RANKS))
    _encode(device, packed)
    counted = len(device.traffic)
    own, *others = (packer.mark_dense(gradient.astype(np.float32)[:, None]) for gradient in gradients)
    pieces = [each.parts[0] for each in (own, *others)]
    sums = [_union(packer, [own, *others], part) for part in range(RANKS)]
    for piece in (*pieces, *sums):
        if piece.index is None:
            _encode(device, [piece])
    del device.traffic[counted:]
    _decode(device, packer, pieces[1:])
    most = sum(piece.count for piece in pieces)
    room = np.zeros((most, 1), np.float32)
    target = Piece(sums[0].slots, rubbish(words_of(sums[0].slots)), sums[0].ranks, values=room, count=most)
    marks = table([replace(target, values=None)])
    of, tiles = np.array([[0, RANKS]], np.uint64), 1 + words_of(units) // 64
    work = np.zeros(tiles, np.uint64)
    of_these, dtype = [1, of, table(pieces)], DTYPE_NUMBERS["f32"]
    device.launch("zenc_sum_32", (4, 1), [marks, *of_these, 1, dtype, work, tiles])
    device.launch("zenc_sum_values_32", (4, 1), [table([target]), *of_these, dtype])
    _encode(device, [sums[0]])
    _decode(device, packer, sums[1:])
    out = _aligned(units)
    device.launch("zenc_expand_values_32", (4, 1), [*packer.cut, table(sums), None, 1, out])
    assert np.array_equal(out[:, 0] != 0, np.any(gradients, axis=0))
    return [replace(each, units=units) for each in device.traffic]


def _aligned(values: int) -> np.ndarray:
    """Return zeros [values, 1] at a multiple of a sector, as devices allocate them."""
    memory = np.zeros(values + SECTOR // VALUE_BYTES, np.float32)
    first = -memory.ctypes.data % SECTOR // VALUE_BYTES
    return memory[first : first + values, None]


def _union(packer: Packer, marked: Sequence[Marked], part: int) -> Piece:
    bitmap = np.bitwise_or.reduce([each.parts[part].bitmap for each in marked])
    made = Piece(marked[0].parts[part].slots, bitmap, part=part).ranked()
    made.values = np.ones((made.count, 1), np.float32)
    return made


def _encode(device: Device, pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        piece.format = WIRE_NUMBERS[Format.ELIAS_FANO]
        piece.index = rubbish(index_bytes(Format.ELIAS_FANO, piece.slots, piece.count) // 8)
    device.launch("zenc_clear_index", (4, len(pieces)), [table(pieces), len(pieces)])
    device.launch("zenc_encode_index", (4, len(pieces)), [table(pieces), len(pieces), VALUE_BYTES])


def _decode(device: Device, packer: Packer, pieces: Sequence[Piece]) -> None:
    came = [replace(each, bitmap=rubbish(words_of(each.slots)), ranks=rubbish(ranks_of(each.slots))) for each in pieces]
    assert not any(decoded(device, (2, len(came)), came))


def markdown(found: Sequence[Traffic]) -> str:
    lines = ["| kernel | reads of the tensor | predicted, ms |", "| --- | --: | --: |"]
    lines += [f"| `{each.kernel}` | {each.reads:.2f} | {each.milliseconds:.3f} |" for each in found]
    whole = sum(each.reads for each in found), sum(each.milliseconds for each in found)
    return "\n".join([*lines, f"| in all | {whole[0]:.2f} | {whole[1]:.2f} |"])


if __name__ == "__main__":
    print(markdown(traffic_of_a_call()))
