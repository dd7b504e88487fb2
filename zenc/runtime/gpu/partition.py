"""Partitions on a GPU: the slots of each part, and the mapping's tables in the GPU's memory.

cuts = Cuts(plan.mapping, parts, library, upload)
cut = cuts.of(layout.units, layout.width)      # at ``prepare``, on the host's thread
cut.fill(call)                   # for each call
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias
from weakref import WeakValueDictionary

from zenc.errors import Diagnostic, TensorError
from zenc.runtime.gpu.call_args import CallArgs
from zenc.runtime.gpu.library import CallLibrary
from zenc.scheme.model import Encoded, HierarchicalHash, Mapping, Permutation
from zenc.wire.cuts import Ends, even_ends
from zenc.wire.formats import block_of, slots_of

Words: TypeAlias = "ctypes.Array[ctypes.c_uint64]"
Upload: TypeAlias = Callable[[Words], tuple[int, object]]
"""A function that copies words to the GPU and returns when they are there: (the address, aligned to 8; its owner)."""


@dataclass(frozen=True, eq=False)
class DevicePartition:
    """A cut of a number of units into parts; calls that were filled from it need it until they end.

    ``part_slots`` [parts] are the slots of each part; ``tables`` is an address on the GPU, or None; ``keep`` owns
    the memory of the tables. ``seed`` is that of a permutation or of hashes; by a permutation ``block`` units move
    together; 0: there is no such block.
    ``part_bytes`` [parts]: for ranges of any lengths, the bytes of their encoded sums when the call has ended.
    """

    part_slots: ctypes.Array[ctypes.c_int64]
    tables: int | None = None
    keep: object = None
    seed: int = 0
    block: int = 0
    part_bytes: ctypes.Array[ctypes.c_int64] | None = None

    def fill(self, call: CallArgs) -> None:
        """Fill in the cut of ``call``'s units."""
        call.part_slots = ctypes.addressof(self.part_slots)
        call.tables, call.seed, call.block = self.tables, self.seed, self.block
        call.part_bytes = None if self.part_bytes is None else ctypes.addressof(self.part_bytes)


def cut_at(ends: Ends) -> DevicePartition:
    """Return the cut of one call, in ranges that end at the units ``ends``."""
    numbers = ctypes.c_int64 * len(ends)
    return DevicePartition(numbers(*[end - first for first, end in pairwise((0, *ends))]), part_bytes=numbers())


def has_tables(mapping: Mapping) -> bool:
    """Return whether kernels of ``mapping`` read tables of the GPU's memory, without which no call may launch them."""
    return isinstance(mapping, Encoded | HierarchicalHash)


class DevicePartitions:
    """The cuts of units into ``parts`` by ``mapping``; those in use are shared, by any threads."""

    def __init__(self, mapping: Mapping, parts: int, library: CallLibrary, upload: Upload) -> None:
        self.mapping, self.parts = mapping, parts
        self._library, self._upload = library, upload
        self._known: WeakValueDictionary[tuple[int, int], DevicePartition] = WeakValueDictionary()
        self._making = threading.Lock()

    def of(self, units: int, width: int) -> DevicePartition:
        """Return the cut of ``units`` x ``width`` values; tables are made and uploaded unless such a cut is in use.

        Raises TensorError: ``tensor-too-large``, and ``out-of-memory`` for the tables of a hashed mapping.
        """
        with self._making:
            key = (units, block_of(self.mapping, units, width, self.parts))
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = self._made(*key)
            return known

    def _made(self, units: int, block: int) -> DevicePartition:
        if isinstance(self.mapping, Encoded):  # a call that loses nothing has no sizes to cut by
            return cut_at(even_ends(units, self.parts))
        if not isinstance(self.mapping, HierarchicalHash):
            slots = self._slots([slots_of(units, self.parts, part, block) for part in range(self.parts)])
            if isinstance(self.mapping, Permutation):
                return DevicePartition(slots, seed=self.mapping.seed, block=block)
            return DevicePartition(slots)
        words = self._tables(self.mapping.seed, units)
        address, keep = self._upload(words)
        slots = self._slots(words[1 : 1 + self.parts])
        return DevicePartition(slots, address, keep, self.mapping.seed)

    def _tables(self, seed: int, units: int) -> Words:
        """Return the words of ``HashTables`` in ``templates/shared/zenc/hash.h``: the largest size, all sizes, ..."""
        count = self._library.table_words(units, self.parts)
        if count < 0:
            message = f"a tensor of {units} units is too large for hierarchical_hash, which takes up to 2^32 - 1"
            raise TensorError(Diagnostic("tensor-too-large", message, help="use 'balanced by permutation'"))
        try:
            words = (ctypes.c_uint64 * count)()
        except MemoryError:
            message = f"there is no memory left for the tables of {units} units, {8 * count:,} bytes"
            raise TensorError(Diagnostic("out-of-memory", message)) from None
        self._library.build_tables(seed, units, self.parts, ctypes.addressof(words))
        return words

    def _slots(self, sizes: list[int]) -> ctypes.Array[ctypes.c_int64]:
        return (ctypes.c_int64 * self.parts)(*sizes)
