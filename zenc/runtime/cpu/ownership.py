"""Ownership under ``balanced by holders``: a deterministic unit -> owner map, computed alike on all ranks.

Part p are the units that rank p owns, ascending: its slots. The holders of each slot are known everywhere, and so the
number of values in any message before it comes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from zenc.errors import Diagnostic, SynchronisationError, TensorError
from zenc.runtime.cpu.bindings import broken, entry_points
from zenc.runtime.cpu.geometry import words_of
from zenc.runtime.cpu.kernels import Kernels
from zenc.wire.constants import KernelStatus
from zenc.wire.partitioning import dealt_in_turns


class HolderKernels:
    """The entry points in the shared library ``path``. Raises BuildError (``library-broken``) if it lacks them.

    Addresses are integers, tables of them addresses of int64 arrays of addresses; bitmaps are uint64 over all units,
    owners uint16. Rows are bytes. Nothing here checks sizes: that is the caller's care.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._functions = entry_points(Path(path))
        if "choose_owners" not in self._functions:
            raise broken(Path(path), "it has no kernels for 'balanced by holders'")

    def choose_owners(self, ranks: int, bitmaps: int, words: int, owners: int, counts: int) -> int:
        """Write ``owners`` [units of the union] and ``counts`` [ranks, ranks] uint64, or 0: each rank's of each owner.

        ``bitmaps`` is a table [ranks]. The same input gives the same owners everywhere. Returns 64 bits that ranks
        share only if they chose alike.
        """
        digest = ctypes.c_uint64()
        _count(self._functions["choose_owners"](ranks, bitmaps, words, owners, counts, ctypes.byref(digest)))
        return digest.value

    def mark_parts(self, ranks: int, bitmaps: int, words: int, owners: int, outs: int) -> None:
        """Write, for rank k and part p, its slots to the bitmap at ``outs`` [k, p] (cleared; or 0: not wanted)."""
        _count(self._functions["mark_parts"](ranks, bitmaps, words, owners, outs))

    def split_rows(
        self, any: int, own: int, words: int, owners: int, parts: int, values: int, row_bytes: int, outs: int
    ) -> None:
        """Move the rows of the units in ``own``, ascending, to ``outs`` [parts], each part's in their order.

        ``any`` is the union of all ranks' units.
        """
        _count(self._functions["split_rows"](any, own, words, owners, parts, values, row_bytes, outs))

    def list_units(self, any: int, words: int, owners: int, parts: int, ids: int, outs: int) -> int:
        """Write the units of ``any``, ascending, and to ``outs`` [parts] each part's places there; return their number.

        Places are numbers in that list, uint64: of the slots of each part.
        """
        return _count(self._functions["list_units"](any, words, owners, parts, ids, outs))

    def place_rows(self, numbers: int, count: int, values: int, row_bytes: int, out: int) -> None:
        """Move the rows of one part to ``out`` [units of the union, row_bytes], at ``numbers`` [count]."""
        _count(self._functions["place_rows"](numbers, count, values, row_bytes, out))

    def join_dense(
        self, any: int, units: int, owners: int, parts: int, part_values: int, row_bytes: int, out: int
    ) -> None:
        """Write the units in ``any`` to ``out`` [units, row_bytes], from ``part_values`` [parts]."""
        _count(self._functions["join_dense"](any, units, owners, parts, part_values, row_bytes, out))

    def deal_units(self, own: int, words: int, parts: int, outs: int, counts: int) -> None:
        """Write the units in ``own`` to the cleared bitmaps at ``outs`` [parts]: by part of a directory.

        ``counts`` [parts] uint64 are the numbers of units in each.
        """
        _count(self._functions["deal_units"](own, words, parts, outs, counts))

    def join_directory(
        self, units: int, parts: int, bitmaps: int, part_owners: int, any: int, owners: int, slots: int
    ) -> tuple[int, int]:
        """Write ``any``, ``owners`` and ``slots`` [parts] uint64, the units of each owner, from all parts.

        ``bitmaps`` and ``part_owners`` are tables [parts]. Returns the units that somebody holds, and 64 bits that
        ranks share only if they heard alike. Raises SynchronisationError (``corrupt-segment``) for wrong units or
        ranks.
        """
        digest = ctypes.c_uint64()
        at = bitmaps, part_owners, any, owners, slots, ctypes.byref(digest)
        present = self._functions["join_directory"](units, parts, *at)
        if present == KernelStatus.OUT_OF_RANGE:
            message = "a part of the directory names what is no unit of this tensor, or no rank"
            raise SynchronisationError(Diagnostic("corrupt-segment", message))
        return _count(present), digest.value

    def mark_own(self, any: int, own: int, words: int, owners: int, parts: int, outs: int, counts: int) -> None:
        """Write the slots of the units in ``own`` to the cleared bitmaps at ``outs`` [parts]; ``counts`` [parts]."""
        _count(self._functions["mark_own"](any, own, words, owners, parts, outs, counts))


def _count(status: int) -> int:
    if status < 0:
        raise TensorError(Diagnostic("out-of-memory", "there is no memory left for a kernel's work space"))
    return int(status)


Ranks: TypeAlias = tuple[int, ...]
"""Ranks in ascending order."""


class Owners:
    """Owners of all units that somebody holds: ``present`` units in ``any`` over ``units``, ``owners`` [present].

    ``slots[p]`` counts the units that rank p owns. ``digest`` has 64 bits that ranks share only if they agree.
    """

    def __init__(
        self, holding: HolderKernels, units: int, any: torch.Tensor, owners: torch.Tensor, slots: list[int], digest: int
    ) -> None:
        self.holding, self.units, self.words = holding, units, words_of(units)
        self.size, self.present, self.slots, self.digest = len(slots), len(owners), slots, digest
        self.any, self._owners = any, owners

    def count(self, part: int, ranks: Ranks) -> int:
        """Return the number of slots of ``part``, which ``ranks`` hold together."""
        return self.slots[part]

    def split(self, index_set: int, rows: int, unit_bytes: int, outs: Sequence[int]) -> None:
        """Move one rank's ``rows``, of the units of ``index_set`` in their order, to the addresses of the parts."""
        places = torch.tensor(outs, dtype=torch.int64, device="cpu")
        at = self.any.data_ptr(), index_set, self.words, self._owners.data_ptr()
        self.holding.split_rows(*at, self.size, rows, unit_bytes, places.data_ptr())

    def list_units(self, ids: int) -> list[torch.Tensor]:
        """Write all units, ascending, to ``ids``; return each part's slots as numbers in that list, int64 [slots]."""
        numbers = torch.empty(self.present, dtype=torch.int64, device="cpu").split_with_sizes(self.slots)
        places = torch.tensor([each.data_ptr() for each in numbers], dtype=torch.int64, device="cpu")
        at = self.any.data_ptr(), self.words, self._owners.data_ptr()
        self.holding.list_units(*at, self.size, ids, places.data_ptr())
        return list(numbers)

    def join_dense(self, parts: Sequence[int], unit_bytes: int, out: int) -> None:
        """Write every unit that somebody holds to a dense tensor."""
        places = torch.tensor(parts, dtype=torch.int64, device="cpu")
        at = self.any.data_ptr(), self.units, self._owners.data_ptr()
        self.holding.join_dense(*at, self.size, places.data_ptr(), unit_bytes, out)

    def own_slots(self, index_set: int, part_words: int) -> tuple[torch.Tensor, list[int]]:
        """Return the slots of ``index_set``'s units in each part: bitmaps [parts, part_words], and their numbers."""
        bitmaps, counts = (
            torch.zeros(self.size, part_words, dtype=torch.int64, device="cpu"),
            np.empty(self.size, dtype=np.int64),
        )
        outs = table_of(bitmaps)
        at = self.any.data_ptr(), index_set, self.words, self._owners.data_ptr()
        self.holding.mark_own(*at, self.size, outs.data_ptr(), counts.ctypes.data)
        return bitmaps, counts.tolist()


def table_of(bitmaps: torch.Tensor) -> torch.Tensor:
    """Return the addresses of ``bitmaps`` [parts, words], for kernels: int64 [parts]."""
    return bitmaps.data_ptr() + 8 * bitmaps.shape[1] * torch.arange(len(bitmaps), dtype=torch.int64, device="cpu")


class Agreement(Owners):
    """Owners of all units that somebody holds, and the holders of each slot.

    ``index_sets`` are the addresses of every rank's bitmap over all ``units``, in rank order; ``keep`` owns them.
    ``wanted`` [size, size]: the parts of which each rank's slots matter here.
    """

    cut = 1
    """The parts of an owner."""

    def __init__(
        self,
        kernels: Kernels,
        holding: HolderKernels,
        units: int,
        index_sets: Sequence[int],
        keep: object,
        wanted: torch.Tensor,
    ) -> None:
        size, words = len(index_sets), words_of(units)
        self.kernels, self.keep = kernels, keep
        self._sets = torch.tensor(index_sets, dtype=torch.int64, device="cpu")
        any = torch.empty(words, dtype=torch.int64, device="cpu")
        owners = torch.empty(kernels.union(index_sets, words, any.data_ptr()), dtype=torch.int16, device="cpu")
        self._counts = np.empty((size, size), dtype=np.int64)
        digest = holding.choose_owners(size, self._sets.data_ptr(), words, owners.data_ptr(), self._counts.ctypes.data)
        super().__init__(holding, units, any, owners, self._counts.diagonal().tolist(), digest)
        self._wanted = wanted
        self._bitmaps: torch.Tensor | None = None
        self._arena = torch.empty(0, dtype=torch.int64, device="cpu")
        self._known: dict[tuple[int, Ranks], tuple[int, int, object]] = {}

    def learn(self) -> torch.Tensor:
        """Find, once, each rank's slots of the parts that matter.

        Return the addresses of their bitmaps, [size, parts].
        """
        if self._bitmaps is None:
            self._bitmaps = self._marked(self._wanted)
        return self._bitmaps

    def _marked(self, wanted: torch.Tensor) -> torch.Tensor:
        words = torch.tensor([words_of(slots) for slots in self.slots], dtype=torch.int64, device="cpu")
        sizes = wanted * words
        ends = sizes.flatten().cumsum(0).reshape(sizes.shape)
        self._arena = torch.zeros(int(ends[-1, -1]), dtype=torch.int64, device="cpu")
        bitmaps = torch.where(wanted, self._arena.data_ptr() + 8 * (ends - sizes), 0)
        at = self._sets.data_ptr(), self.words, self._owners.data_ptr(), bitmaps.data_ptr()
        self.holding.mark_parts(self.size, *at)
        return bitmaps

    def counts_of(self, rank: int) -> list[int]:
        """Return the number of slots of each part that ``rank`` holds."""
        counts: list[int] = self._counts[rank].tolist()
        return counts

    def count(self, part: int, ranks: Ranks) -> int:
        """Return the number of slots of ``part`` that any of ``ranks`` holds; the owner alone holds all."""
        if part // self.cut in ranks:
            return self.slots[part]
        return int(self._counts[ranks[0], part]) if len(ranks) == 1 else self._union(part, ranks)[1]

    def bitmap(self, part: int, ranks: Ranks) -> int:
        """Return the address of the bitmap of ``ranks`` in ``part``, which was wanted."""
        return int(self.learn()[ranks[0], part]) if len(ranks) == 1 else self._union(part, ranks)[0]

    def _union(self, part: int, ranks: Ranks) -> tuple[int, int, object]:
        known = self._known.get((part, ranks))
        if known is None:
            words = words_of(self.slots[part])
            bitmap = torch.empty(words, dtype=torch.int64, device="cpu")
            count = self.kernels.union(self.learn()[list(ranks), part].tolist(), words, bitmap.data_ptr())
            known = self._known[part, ranks] = (bitmap.data_ptr(), count, bitmap)
        return known


class DealtAgreement(Agreement):
    """An agreement in which the units of an owner are dealt, in turns, to ``cut`` parts; arguments as before."""

    def __init__(
        self, kernels: Kernels, holding: HolderKernels, units: int, index_sets: Sequence[int], keep: object, cut: int
    ) -> None:
        super().__init__(kernels, holding, units, index_sets, keep, torch.zeros(0, dtype=torch.bool, device="cpu"))
        self.cut, ranks = cut, self.size
        owners = self._owners.numpy().view(np.uint16).astype(np.int64)
        parts = dealt_in_turns(owners, ranks, cut)
        self._owners = torch.from_numpy(parts.astype(np.uint16).view(np.int16))
        self.size, self.slots = ranks * cut, np.bincount(parts, minlength=ranks * cut).tolist()
        words = words_of(max(self.slots))
        found = [self.own_slots(each, words) for each in index_sets]
        self._arena = torch.stack([bitmaps for bitmaps, _ in found])
        self._counts = np.array([counts for _, counts in found], dtype=np.int64)
        self._bitmaps = torch.stack([table_of(bitmaps) for bitmaps in self._arena])
