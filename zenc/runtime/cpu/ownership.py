"""Ownership under ``balanced by holders``: a deterministic unit -> owner map, computed alike on all ranks.

Part p are the units that rank p owns, ascending: its slots. Who holds which slot is known everywhere, and so how many
values come in any message before it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch

from zenc.runtime.cpu.geometry import words_of
from zenc.runtime.cpu.holder_kernels import HolderKernels
from zenc.runtime.cpu.kernels import Kernels

Ranks: TypeAlias = tuple[int, ...]
"""Ranks in ascending order."""


class Agreement:
    """Owners of all units that somebody holds, and who holds which slot.

    ``index_sets`` are the addresses of every rank's bitmap over all ``units``, in rank order; ``keep`` owns them.
    ``wanted`` [size, size]: of which parts the slots of each rank matter here. ``slots[p]`` counts the units that
    rank p owns. ``digest`` has 64 bits that ranks share only if they agree.
    """

    def __init__(
        self,
        kernels: Kernels,
        holding: HolderKernels,
        units: int,
        index_sets: Sequence[int],
        keep: object,
        wanted: torch.Tensor,
    ) -> None:
        self.kernels, self.holding, self.units, self.keep = kernels, holding, units, keep
        self.size, self.words = len(index_sets), words_of(units)
        self._sets = torch.tensor(index_sets, dtype=torch.int64)
        self._any = torch.empty(self.words, dtype=torch.int64)
        self.present = kernels.union(index_sets, self.words, self._any.data_ptr())
        self._owners = torch.empty(self.present, dtype=torch.int16)
        self._counts = np.empty((self.size, self.size), dtype=np.int64)
        self.digest = holding.choose_owners(
            self.size, self._sets.data_ptr(), self.words, self._owners.data_ptr(), self._counts.ctypes.data
        )
        self.slots: list[int] = self._counts.diagonal().tolist()
        self._wanted = wanted
        self._bitmaps: torch.Tensor | None = None
        self._arena = torch.empty(0, dtype=torch.int64)
        self._known: dict[tuple[int, Ranks], tuple[int, int, object]] = {}

    def learn(self) -> torch.Tensor:
        """Find, once, which slots each rank holds of the parts that matter here; the addresses of their bitmaps.

        They are needed when values come, so a rank finds them while it waits for these.
        """
        if self._bitmaps is None:
            self._bitmaps = self._marked(self._wanted)
        return self._bitmaps

    def _marked(self, wanted: torch.Tensor) -> torch.Tensor:
        words = torch.tensor([words_of(slots) for slots in self.slots], dtype=torch.int64)
        sizes = wanted * words
        ends = sizes.flatten().cumsum(0).reshape(sizes.shape)
        self._arena = torch.zeros(int(ends[-1, -1]), dtype=torch.int64)
        bitmaps = torch.where(wanted, self._arena.data_ptr() + 8 * (ends - sizes), 0)
        at = self._sets.data_ptr(), self.words, self._owners.data_ptr(), bitmaps.data_ptr()
        self.holding.mark_parts(self.size, *at)
        return bitmaps

    def counts_of(self, rank: int) -> list[int]:
        """The number of slots of each part that ``rank`` holds."""
        counts: list[int] = self._counts[rank].tolist()
        return counts

    def count(self, part: int, ranks: Ranks) -> int:
        """The number of slots of ``part`` that any of ``ranks`` holds; the owner alone holds all."""
        if part in ranks:
            return self.slots[part]
        return int(self._counts[ranks[0], part]) if len(ranks) == 1 else self._union(part, ranks)[1]

    def bitmap(self, part: int, ranks: Ranks) -> int:
        """The address of their bitmap; of parts that were wanted."""
        return int(self.learn()[ranks[0], part]) if len(ranks) == 1 else self._union(part, ranks)[0]

    def _union(self, part: int, ranks: Ranks) -> tuple[int, int, object]:
        known = self._known.get((part, ranks))
        if known is None:
            words = words_of(self.slots[part])
            bitmap = torch.empty(words, dtype=torch.int64)
            count = self.kernels.union(self.learn()[list(ranks), part].tolist(), words, bitmap.data_ptr())
            known = self._known[part, ranks] = (bitmap.data_ptr(), count, bitmap)
        return known

    def split(self, index_set: int, rows: int, unit_bytes: int, outs: Sequence[int]) -> None:
        """Move one rank's ``rows``, of the units of ``index_set`` in their order, to the addresses of the parts."""
        places = torch.tensor(outs, dtype=torch.int64)
        at = self._any.data_ptr(), index_set, self.words, self._owners.data_ptr()
        self.holding.split_rows(*at, self.size, rows, unit_bytes, places.data_ptr())

    def list_units(self, ids: int) -> list[torch.Tensor]:
        """Write all units, ascending, to ``ids``; of each part the numbers of its slots in that list, int64 [slots]."""
        numbers = torch.empty(self.present, dtype=torch.int64).split_with_sizes(self.slots)
        places = torch.tensor([each.data_ptr() for each in numbers], dtype=torch.int64)
        at = self._any.data_ptr(), self.words, self._owners.data_ptr()
        self.holding.list_units(*at, self.size, ids, places.data_ptr())
        return list(numbers)

    def join_dense(self, parts: Sequence[int], unit_bytes: int, out: int) -> None:
        """Write every unit that somebody holds to a dense tensor."""
        places = torch.tensor(parts, dtype=torch.int64)
        at = self._any.data_ptr(), self.units, self._owners.data_ptr()
        self.holding.join_dense(*at, self.size, places.data_ptr(), unit_bytes, out)
