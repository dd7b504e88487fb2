"""The compiled kernels of one mapping: typed methods over the C entry points of ``templates/cpu/kernels.cpp.j2``.

Addresses are integers (``tensor.data_ptr()``), arrays of them sequences of integers; a dtype is one of f32, f64, f16,
bf16. Bitmaps and ranks are uint64, units int64. ctypes releases the GIL while a kernel runs. Nothing here checks
sizes: that is the caller's care.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from array import array
from collections.abc import Sequence
from ctypes import c_int64
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TypeAlias
from weakref import WeakValueDictionary

from zenc.errors import Diagnostic, InternalError, SynchronisationError, TensorError
from zenc.runtime.cpu.bindings import entry_points
from zenc.runtime.cpu.geometry import Geometry, Tables
from zenc.scheme.model import Format, Mapping
from zenc.wire.constants import WIRE_NUMBERS, KernelStatus
from zenc.wire.formats import block_of

Outgoing: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""A message to seal: its frame and bitmap; slots, count, bytes of the values, part, origin; the format's place in
WIRE_FORMATS; and 1 if the index is there already."""
Opened: TypeAlias = tuple[int, int, int, int, int]
"""An opened message: its bytes; its segment's count, origin and format (its place in WIRE_FORMATS); and where the
values begin in it."""


NO_PART = -1
"""The part of a message with several segments, which the kernel never opens."""


class Expected:
    """Messages of one segment each: their addresses, senders, parts with their slots, and present bytes.

    Kept from call to call.
    """

    __slots__ = ("_rows", "count", "found", "found_at", "messages", "rows_at")

    def __init__(self, messages: Sequence[tuple[int, int, int, int, int]]) -> None:
        self.messages, self.count = messages, len(messages)
        self._rows = array("q", list(itertools.chain.from_iterable(messages)))
        self.found = array("q", bytes(8 * 5 * self.count))
        self.rows_at, self.found_at = self._rows.buffer_info()[0], self.found.buffer_info()[0]

    def place(self, number: int, address: int, size: int) -> None:
        """Set the address of message ``number``, where ``size`` bytes are."""
        self._rows[5 * number], self._rows[5 * number + 4] = address, size


class Kernels:
    """The kernels in the shared library ``path``, which serves any mapping of the kind of ``mapping``.

    Raises BuildError: ``library-broken`` if it can't be opened, ``wrong-abi`` if it is of another version of zenc.
    """

    def __init__(self, path: str | os.PathLike[str], mapping: Mapping) -> None:
        self.path, self.mapping = Path(path), mapping
        self._functions = entry_points(self.path)
        self._tables: WeakValueDictionary[tuple[int, int], Tables] = WeakValueDictionary()
        self._building = threading.Lock()

    def geometry(self, units: int, width: int, parts: int, dense: bool = False) -> Geometry:
        """Return the geometry of a tensor under these kernels' mapping; methods need one that was made here.

        ``dense``: for the methods that take a dense tensor, too. Raises TensorError: ``tensor-too-large``, and
        ``out-of-memory`` for tables, which hashing always has and single elements that are permuted if ``dense``.
        """
        block = block_of(self.mapping, units, width, parts)
        plain = Geometry(units, width, parts, block=block, mapping=self.mapping)
        words = self._functions["table_words"](plain.cut, dense)
        if words < 0:
            raise _too_large(plain)
        return replace(plain, tables=self._tables_of(plain, words)) if words else plain

    def _tables_of(self, geometry: Geometry, words: int) -> Tables:
        """Return the tables for ``geometry``, which all in use with the same units and parts share."""
        key = geometry.units, geometry.parts
        with self._building:
            known = self._tables.get(key)
            if known is None:
                known = self._tables[key] = self._made_tables(geometry, words)
            return known

    def _made_tables(self, geometry: Geometry, words: int) -> Tables:
        try:
            data = (ctypes.c_uint64 * words)()
        except MemoryError:
            message = f"there is no memory left for the tables of {geometry.units} units, {8 * words:,} bytes"
            raise TensorError(Diagnostic("out-of-memory", message)) from None
        made = Tables(ctypes.addressof(data), (), data)
        self._functions["build_tables"](replace(geometry, tables=made).cut)
        return replace(made, sizes=tuple(data[1 : 1 + geometry.parts])) if geometry.block == 1 else made

    def cut_at(self, geometry: Geometry, ends: Sequence[int]) -> Geometry:
        """Return ``geometry``, of ranges, cut where parts end at the units ``ends`` instead."""
        firsts = (0, *ends[:-1])
        sizes = tuple([end - first for first, end in zip(firsts, ends, strict=True)])
        words = array("Q", (max(sizes), *sizes, *firsts))
        return replace(geometry, tables=Tables(words.buffer_info()[0], sizes, words, firsts))

    def slots_of_units(self, geometry: Geometry, units: int, n: int, out: int) -> None:
        """Write ``out`` [n] int64 = the slots of ``units`` [n]. Raises TensorError ``unit-out-of-range``."""
        self._on_ids("slots_of_units", geometry, units, n, out)

    def units_of_slots(self, geometry: Geometry, slots: int, n: int, out: int) -> None:
        """Write ``out`` [n] int64 = the units of ``slots`` [n]. Raises TensorError ``unit-out-of-range``."""
        self._on_ids("units_of_slots", geometry, slots, n, out)

    def mark_units(self, geometry: Geometry, units: int, n: int, bitmap: int, slots_out: int) -> None:
        """Define ``bitmap`` [geometry.words]: the slots of ``units`` [n], in which a unit may come several times.

        Writes ``slots_out`` [n] int64, the slot of each. Raises TensorError ``unit-out-of-range``.
        """
        self._on_ids("mark_units", geometry, units, n, bitmap, slots_out)

    def _on_ids(self, name: str, geometry: Geometry, ids: int, *arguments: int) -> None:
        """Run a kernel whose status is below 0 where one of ``ids``, units or slots, is out of range."""
        if status := self._functions[name](geometry.cut, ids, *arguments):
            _count(KernelStatus.NO_MEMORY if status == KernelStatus.NO_MEMORY_FOR_IDS else 0)
            _unit_out_of_range(geometry, ids, -1 - status)

    def mark_dense(self, dtype: str, geometry: Geometry, tensor: int, bitmap: int) -> int:
        """Define ``bitmap`` [geometry.words]: units of ``tensor`` [units, width] with any bits but those of +0 and -0.

        Returns their number. All other units become +0.
        """
        return _count(self._functions[f"mark_dense_{dtype}"](geometry.cut, tensor, bitmap))

    def rank(self, bitmap: int, words: int, before: int) -> int:
        """Write ``before`` [words] uint64 = bits set in the words below each. Returns all bits set."""
        return int(self._functions["rank"](bitmap, words, before))

    def place_units(
        self,
        dtype: str,
        geometry: Geometry,
        slots: int,
        n: int,
        values: int,
        bitmap: int,
        before: int,
        distinct: int,
        divisor: int,
        part_outs: Sequence[int],
    ) -> None:
        """Write each part's rows, in the order of their slots: ``values`` [n, width] of the units in ``slots`` [n].

        ``part_outs`` has the address of each part's rows, aligned to a value; for parts without any it is not used.
        Values of one unit are summed in the order of the input; each is divided by ``divisor`` first. ``slots`` and
        ``bitmap`` are from ``mark_units``, ``before`` and ``distinct`` from ``rank``.
        """
        place, outs = self._functions[f"place_units_{dtype}"], array("Q", part_outs)
        at = outs.buffer_info()[0]
        _count(place(geometry.cut, slots, n, values, bitmap, before, distinct, divisor, at))

    def place_dense(
        self, dtype: str, geometry: Geometry, tensor: int, bitmap: int, divisor: int, part_outs: Sequence[int]
    ) -> None:
        """Write each part's rows, as ``place_units`` does: the marked rows of ``tensor`` [units, width]."""
        outs = array("Q", part_outs)
        at = outs.buffer_info()[0]
        self._functions[f"place_dense_{dtype}"](geometry.cut, tensor, bitmap, divisor, at)

    def fill_bitmap(self, bitmap: int, slots: int) -> int:
        """Define ceil(slots / 64) words: all slots occupied. Returns ``slots``."""
        self._functions["fill_bitmap"](bitmap, slots)
        return slots

    def fill_blocks(self, bitmap: int, slots: int, block: int, out: int) -> int:
        """Define ceil(slots / 64) words of ``out``: every block of ``block`` slots in which any is occupied.

        ``block`` is a power of two from 2 on; the last block may be short. Returns the slots of all of them.
        """
        return _count(self._functions["fill_blocks"](bitmap, slots, block.bit_length() - 1, out))

    def spread(self, dtype: str, bitmap: int, filled: int, slots: int, width: int, values: int, out: int) -> None:
        """Write ``out`` [count of ``filled``, width]: the values of ``bitmap``, a subset of ``filled``, else +0."""
        self._functions[f"spread_{dtype}"](bitmap, filled, slots, width, values, out)

    def encode_index(self, wire: Format, bitmap: int, slots: int, count: int, out: int) -> int:
        """Write the index part of a segment's body, padded, to ``out``, aligned to 8 bytes. Returns its bytes.

        The values belong right behind it, and zeros behind them up to a multiple of 8 bytes. ``wire`` is dense (only
        if count == slots), coo, bitmap, elias_fano or block(k) (only of whole blocks).
        """
        return _count(self._functions["encode_index"](WIRE_NUMBERS[wire], bitmap, slots, count, out))

    def encode(self, wire: Format, bitmap: int, slots: int, count: int, values: int, value_bytes: int, out: int) -> int:
        """Write a segment's body to ``out``, aligned to 8 bytes: see ``zenc.wire.formats.wire_layout`` for its size.

        ``wire`` is as in ``encode_index``. Returns the bytes written.
        """
        return _count(self._functions["encode"](WIRE_NUMBERS[wire], bitmap, slots, count, values, value_bytes, out))

    def decode_index(self, wire: Format, index: int, slots: int, count: int, bitmap: int) -> None:
        """Define ceil(slots / 64) words of ``bitmap`` from the index part at ``index``, aligned to 8 bytes.

        The values follow at ``index + index_bytes(wire, slots, count)`` and are used in place. Raises
        SynchronisationError ``corrupt-segment`` unless the bytes are the index of exactly ``count`` of ``slots``.
        """
        status = self._functions["decode_index"](WIRE_NUMBERS[wire], index, slots, count, bitmap)
        if status:
            segment = f"a segment of {count} out of {slots} slots, format {wire.value}"
            message = f"{segment}, can't be read: {_reason(status)}"
            raise SynchronisationError(Diagnostic("corrupt-segment", message))

    def seal(self, head: bytes, messages: Sequence[Outgoing]) -> None:
        """Complete messages of one segment each, whose values are in their frames already: headers, index, padding.

        ``head`` is a message header (``zenc.runtime.cpu.channel``) of the call.
        """
        rows = array("q", list(itertools.chain.from_iterable(messages)))
        _count(self._functions["seal"](head, rows.buffer_info()[0], len(messages)))

    def open(self, head: bytes, messages: Expected, unit_bytes: int, bitmaps: int, words: int) -> list[Opened]:
        """Open the messages of a step that carry one segment each and are all there.

        Defines ``words`` words for each at ``bitmaps``. Zeros stand for another message, longer or wrong.
        """
        found = messages.found
        self._functions["open"](head, messages.rows_at, messages.count, unit_bytes, bitmaps, words, messages.found_at)
        return list(zip(*[iter(found.tolist())] * 5, strict=True))

    def mark_nonzero(
        self, dtype: str, bitmap: int, words: int, width: int, values: int, kept: int, marked: bool = False
    ) -> int:
        """Write ``kept`` [words] = the slots of ``bitmap`` whose rows of ``values`` [count, width] are not all zero.

        Zeros of either sign are zero, of ``marked`` rows only -0, and NaN is not. Returns their number.
        """
        name = f"{'mark_present' if marked else 'mark_nonzero'}_{dtype}"
        return int(self._functions[name](bitmap, words, width, values, kept))

    def mark_absent(self, dtype: str, bitmap: int, filled: int, slots: int, width: int, values: int) -> None:
        """Change the zeros of ``values`` [bits of ``filled``, width]: -0 in slots not in ``bitmap``, +0 in others."""
        self._functions[f"mark_absent_{dtype}"](bitmap, filled, slots, width, values)

    def copy_kept(self, dtype: str, bitmap: int, kept: int, words: int, width: int, values: int, out: int) -> None:
        """Write ``out`` [bits of ``kept``, width]: those rows of ``values`` [bits of ``bitmap``, width]."""
        self._functions[f"copy_kept_{dtype}"](bitmap, kept, words, width, values, out)

    def union(self, bitmaps: Sequence[int], words: int, out: int) -> int:
        """Write ``out`` [words] = the union of ``bitmaps``, which it must not overlap. Returns its bits."""
        pointers = array("Q", bitmaps)
        return int(self._functions["union"](len(bitmaps), pointers.buffer_info()[0], words, out))

    def merge(self, dtype: str, bitmaps: Sequence[int], values: Sequence[int], words: int, width: int, out: int) -> int:
        """Write ``out`` [count of the union, width]: the segments of one part, added in the order of the list.

        A unit that one segment has is copied bit by bit. 16-bit sums are made in float32 and rounded once. Returns
        the count.
        """
        marks, rows = array("Q", bitmaps), array("Q", values)
        at = marks.buffer_info()[0], rows.buffer_info()[0]
        return _count(self._functions[f"merge_{dtype}"](len(bitmaps), *at, words, width, out))

    def expand_dense(
        self, dtype: str, geometry: Geometry, bitmap: int, part_values: Sequence[int], own: int, tensor: int
    ) -> None:
        """Turn ``tensor`` [units, width], in which ``mark_dense`` found the units ``own``, into the sum.

        ``bitmap`` and ``part_values`` are the segments of all parts; absent units are +0.
        """
        pointers = array("Q", part_values)
        at = pointers.buffer_info()[0]
        _count(self._functions[f"expand_dense_{dtype}"](geometry.cut, bitmap, at, own, tensor))

    def expand_units(
        self, dtype: str, geometry: Geometry, bitmap: int, part_values: Sequence[int], units_out: int, values_out: int
    ) -> int:
        """Write the occupied units, ascending, and their rows: a coalesced COO tensor. Returns their number."""
        pointers = array("Q", part_values)
        at = pointers.buffer_info()[0]
        return _count(self._functions[f"expand_units_{dtype}"](geometry.cut, bitmap, at, units_out, values_out))


def _count(status: int) -> int:
    """Return ``status``, or raise the error that it stands for; only wrong calls and a full memory end here."""
    if status >= 0:
        return status
    if status == KernelStatus.NO_MEMORY:
        raise TensorError(Diagnostic("out-of-memory", "there is no memory left for a kernel's work space"))
    message = f"a kernel was called with arrays that contradict each other: {_reason(status)}"
    raise InternalError(Diagnostic("internal", message))


def _too_large(geometry: Geometry) -> TensorError:
    units, block = geometry.units, geometry.block
    if block == 1:
        message = f"a tensor of {units} units is too large for hierarchical_hash, which takes up to 2^32 - 1"
        return TensorError(Diagnostic("tensor-too-large", message, help="use 'balanced by permutation'"))
    message = f"a dense tensor of {units} elements has more than 2^32 - 1 blocks of {block}"
    return TensorError(Diagnostic("tensor-too-large", message, help="make blocks larger, or 'unit: row'"))


def _reason(status: int) -> str:
    return KernelStatus(status).reason if status in KernelStatus.__members__.values() else f"status {status}"


def _unit_out_of_range(geometry: Geometry, units: int, position: int) -> NoReturn:
    unit = c_int64.from_address(units + 8 * position).value
    message = f"unit {unit}, at position {position}, is not one of the tensor's {geometry.units} units"
    raise TensorError(Diagnostic("unit-out-of-range", message))
