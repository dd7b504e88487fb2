"""Index sets: the units that each rank holds, without values; drawn at random or recorded from a run; their figures.

    Gradients = units width dtype (unit id*)*           # one ascending list of ids a rank

A recorded file is JSON, ``{"units": 1000, "width": 64, "dtype": "f32", "ranks": [[3, 17], [4, 17]]}``, or a .npz of
numpy with the same names, where the lists are the arrays ``rank0``, ``rank1``, ... Nothing in it is unpickled.

Densification and skewness are those of Zen (OSDI 2025), section 2. The bandwidth bound: a unit that c of n ranks hold
takes c - 1 one-way messages to be summed and n - 1 more to be known everywhere, evenly over the ranks; indices and
headers are left out. It is proven for c = n, and reached by owners among the holders for any c.
"""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from zenc.common.untrusted import open_file, read_json
from zenc.common.wording import size_text
from zenc.errors import Diagnostic, SchemeError, first_line
from zenc.gradients.spec import GradientSpec
from zenc.plan.expressions import Ints
from zenc.plan.lower import LARGEST_SIZE
from zenc.wire.constants import DTYPE_BYTES
from zenc.wire.formats import slots_of
from zenc.wire.mix import Words
from zenc.wire.partitioning import UnitPartition

MOST_UNITS = 1 << 27
"""Most units that can be cut and drawn from: a gigabyte a number of each."""
MOST_VALUES = 1 << 46
"""Most values of a tensor: the bytes of all ranks together are counted in 64 bits."""
MOST_BYTES = 1 << 28
"""Most bytes of a file, and of its unpacked contents."""
MOST_UNPACKED = 64
"""Most bytes that a byte of a .npz may stand for; ascending numbers are packed to an eighth at best."""
MOST_SLOTS = 1 << 32
"""Most units of all ranks together that can be played: half a gigabyte of bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """Units of each rank: ``held[rank]`` [n] int64, ascending, of ``units`` of ``width`` values of ``dtype``."""

    units: int
    width: int
    dtype: str
    held: tuple[Ints, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.held)

    @property
    def unit_bytes(self) -> int:
        """The bytes of one unit's values."""
        return self.width * DTYPE_BYTES[self.dtype]

    @property
    def density(self) -> float:
        """The share of the units that a rank holds, on average."""
        return sum(len(ids) for ids in self.held) / max(1, self.units * self.size)

    def holders(self) -> Ints:
        """Return the number of ranks that hold each unit, [units]."""
        counts = np.zeros(self.units, dtype=np.int64)
        for ids in self.held:
            counts[ids] += 1
        return counts


def gradients(units: int, width: int, dtype: str, held: list[Any]) -> Gradients:
    """Return the gradients of ranks that hold the unit ids ``held[rank]``, in any order, also several times.

    Raises SchemeError (``bad-load``) for impossible ones.
    """
    size = len(held)
    ensure([*unsound_tensor(units, width, dtype), *too_large(units, size), (not size, "there is no rank")])
    given = [np.asarray(ids, dtype=np.int64).reshape(-1) for ids in held]
    sets = tuple(ids if (ids[1:] > ids[:-1]).all() else np.unique(ids) for ids in given)
    beyond = [(rank, ids) for rank, ids in enumerate(sets) if ids.size and not 0 <= ids[0] <= ids[-1] < units]
    ensure([(True, f"rank {rank} holds units {ids[0]} to {ids[-1]}, out of {units}") for rank, ids in beyond[:3]])
    return Gradients(units, width, dtype, sets)


def unsound_density(density: float) -> tuple[bool, str]:
    """Return a diagnostic of an impossible density, for ``ensure``."""
    return not 0 <= density <= 1, f"a density is between 0 and 1, not {density}"


def unsound_tensor(units: int, width: int, dtype: str) -> list[tuple[bool, str]]:
    """Return diagnostics of impossible numbers of a tensor, for ``ensure``."""
    return [
        (units < 0 or width < 1, f"{units} units of {width} values make no tensor"),
        (units * width > MOST_VALUES, f"{units:,} units of {width:,} values are more than {MOST_VALUES:,} values"),
        (dtype not in DTYPE_BYTES, f"unknown dtype {dtype!r}; one of {', '.join(DTYPE_BYTES)}"),
    ]


def too_large(units: int, size: int) -> list[tuple[bool, str]]:
    """Return a diagnostic of a tensor too large to be played on ``size`` ranks, for ``ensure``."""
    fewer = "take fewer: bytes grow in proportion, and zenc simulate, which draws none, takes any number"
    return [
        (units > MOST_UNITS, f"{units:,} units are more than {MOST_UNITS:,}; {fewer}"),
        (units * size > MOST_SLOTS, f"{units:,} units on {size:,} ranks are more than {MOST_SLOTS:,} bits; {fewer}"),
    ]


def ensure(problems: list[tuple[bool, str]]) -> None:
    """Raise SchemeError (``bad-load``) with all messages whose condition holds."""
    found = [Diagnostic("bad-load", message) for wrong, message in problems if wrong]
    if found:
        raise SchemeError(found)


_TOLD = ("units", "width", "dtype")
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile)


def read_gradients(path: str | os.PathLike[str]) -> Gradients:
    """Return the gradients in a recorded file; raises SchemeError (``bad-load``) for anything else."""
    try:
        data = _read_npz(path) if Path(path).suffix == ".npz" else read_json(path, MOST_BYTES)
        units, width, dtype = data["units"], data.get("width", 1), data.get("dtype", "f32")
        if not all(type(number) is int for number in (units, width)) or not isinstance(dtype, str):
            raise ValueError("units and width are integers, dtype is a word")
        if not isinstance(data["ranks"], list) or len(data["ranks"]) > LARGEST_SIZE:
            raise ValueError(f"it has no list of ranks, or more than {LARGEST_SIZE:,}")
        held = [_ids(ids) for ids in data["ranks"]]
    except _UNREADABLE as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        message = f"{path} holds no index sets: {why}"
        help = 'write JSON such as {"units": 1000, "width": 64, "ranks": [[3, 17], [4, 17]]}'
        raise SchemeError(Diagnostic("bad-load", message, help=help)) from error
    return gradients(units, width, dtype, held)


def _ids(given: Any) -> Ints:
    """Return the units [n] of a rank, from an array or a list; numpy would make much of a single text."""
    if not isinstance(given, np.ndarray) and not (isinstance(given, list) and all(type(each) is int for each in given)):
        raise ValueError("the units of a rank are a list of integers")
    found = np.asarray(given)
    if found.size and found.dtype.kind not in "iu":
        raise ValueError("the units of a rank are a list of integers")
    return found


def _read_npz(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file of ``np.savez``, without unpickling, and unpack no more than a file of its length may hold."""
    with open_file(path) as file, zipfile.ZipFile(file) as archive:
        members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        size = sum(name.startswith("rank") for name in members)
        if len(members) > LARGEST_SIZE or any(entry.compress_type not in _PACKED for entry in members.values()):
            raise ValueError("it has more arrays than ranks, or they are packed in another way than numpy's")
        holds, bytes = sum(entry.file_size for entry in members.values()), os.fstat(file.fileno()).st_size
        if holds > min(MOST_BYTES, MOST_UNPACKED * max(bytes, 1 << 14)):
            raise ValueError(f"it has {size_text(bytes)}, and would be unpacked to {size_text(holds)}")
        told = {name: _array(archive, members[name]).item() for name in _TOLD if name in members}
        return {**told, "ranks": [_array(archive, members[f"rank{rank}"]) for rank in range(size)]}


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the array in an ``entry``; unlike ``np.load`` it takes no more memory than the bytes that are there."""
    try:
        file = io.BytesIO(archive.read(entry))
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
        return np.frombuffer(file.read(), dtype).reshape(shape) if 0 not in shape else np.zeros(0, np.int64)
    except Exception as error:  # of many kinds, by what they stumble over
        raise ValueError(f"{entry.filename} is no array: {first_line(error)}") from error


def occupancy(of: Gradients, by: UnitPartition) -> Words:
    """Return the bitmaps of ranks and parts, [ranks, parts, words]: bit b of word w of a part is its slot 64 w + b."""
    parts, words = len(by.sizes), -(-int(by.sizes.max(initial=0)) // 64)
    packed = np.zeros((of.size, parts, words), dtype=np.uint64)
    if not words:
        return packed
    bits = np.zeros(parts * words * 64, dtype=np.uint8)
    place = by.part * (words * 64) + by.slot
    for rank, ids in enumerate(of.held):
        bits[:] = 0
        bits[place[ids]] = 1
        packed[rank] = np.packbits(bits, bitorder="little").view(np.uint64).reshape(parts, words)
    return packed


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of gradients.

    ``density`` of a rank on average, ``density_out`` of the sum, ``densification`` their ratio.

    ``skewness``: with a range of units for each rank, the density of the fullest over that of all, averaged over the
    ranks. ``overlap``: the share of one rank's units that another one holds, on average. Without any unit these are 1.
    """

    density: float
    density_out: float
    densification: float
    skewness: float
    overlap: float
    dense_ring_bytes: int
    bound_bytes: int


def figures(of: Gradients) -> Figures:
    """Return the figures of the gradients of ``of.size`` ranks; bytes are those that each rank sends."""
    size, holders = of.size, of.holders()
    total, union = int(holders.sum()), int(np.count_nonzero(holders))
    pairs = int((holders * (holders - 1)).sum())
    width = slots_of(of.units, size, 0)
    fullest = [np.bincount(ids // width).max() * of.units / (width * len(ids)) for ids in of.held if len(ids)]
    bound = int((holders[holders > 0] + (size - 2)).sum()) if size > 1 else 0
    return Figures(
        density=of.density,
        density_out=union / max(1, of.units),
        densification=union * size / total if total else 1.0,
        skewness=float(np.mean(fullest)) if fullest else 1.0,
        overlap=pairs / (total * (size - 1)) if total and size > 1 else 1.0,
        dense_ring_bytes=2 * (size - 1) * of.units * of.unit_bytes // size,
        bound_bytes=bound * of.unit_bytes // size,
    )


def drawn(load: GradientSpec, size: int) -> Gradients:
    """Draw gradients of ``size`` ranks; raises SchemeError (``bad-load``) for impossible numbers."""
    ensure([*_unsound(load), *too_large(load.units, size)])
    count = round(load.units * load.density)
    pool = min(round(count / load.overlap), load.units) if load.overlap else load.units
    held = [_units(pool, count, load.zipf, np.random.default_rng([load.seed, rank])) for rank in range(size)]
    return gradients(load.units, load.width, load.dtype, held)


def _unsound(load: GradientSpec) -> list[tuple[bool, str]]:
    density, zipf, overlap = load.density, load.zipf, load.overlap
    return [
        unsound_density(density),
        (zipf is not None and not 0 <= zipf <= 100, f"an exponent of Zipf's law is between 0 and 100, not {zipf}"),
        (overlap is not None and not 0 < overlap <= 1, f"an overlap is above 0 and at most 1, not {overlap}"),
        (zipf is not None and overlap is not None, "zipf decides how far ranks overlap: give one of the two"),
        (
            overlap is not None and isfinite(density) and 0 < overlap < density <= 1,
            f"ranks that hold {density:.4g} of the units share that much at least, and can't overlap by {overlap}",
        ),
        (not 0 <= load.seed < 1 << 64, f"a seed is 0 to 2^64 - 1, not {load.seed}"),
        *unsound_tensor(load.units, load.width, load.dtype),
    ]


def _units(pool: int, count: int, zipf: float | None, random: np.random.Generator) -> Ints:
    """Draw ``count`` of ``pool`` units; weighted ones by the greatest log(weight) + Gumbel noise (Yellott, 1977)."""
    if not 0 < count < pool:
        return np.arange(min(count, pool))
    if not zipf:
        return random.choice(pool, count, replace=False, shuffle=False)
    keys = random.gumbel(size=pool) - zipf * np.log(np.arange(1, pool + 1))
    return np.argpartition(keys, pool - count)[pool - count :]
