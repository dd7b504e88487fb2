"""The sum of a call by holders as a list of units, made while it comes: a part at a time, when it is complete."""

from __future__ import annotations

import torch

from zenc.runtime.cpu.ownership import Agreement
from zenc.runtime.cpu.value_payload import Rows
from zenc.runtime.layout import Layout


class Joined:
    """All units that somebody holds, ascending: ``ids`` [k] int64, and ``values`` [k, width] of the parts so far.

    To make room for them and to write to it takes longest at the end, when all ranks do, and nothing while a rank
    waits for values.
    """

    def __init__(self, agreed: Agreement, layout: Layout, unit_bytes: int) -> None:
        self.ids = torch.empty(agreed.present, dtype=torch.int64)
        self.values = torch.empty(agreed.present, layout.width, dtype=layout.dtype)
        self._numbers = dict(enumerate(agreed.list_units(self.ids.data_ptr())))
        self._holding, self._unit_bytes = agreed.holding, unit_bytes

    def add(self, rows: Rows) -> None:
        """Write complete rows of a part to their places, unless they are there."""
        numbers = self._numbers.pop(rows.part, None)
        if numbers is not None:
            at = numbers.data_ptr(), rows.count, rows.values, self._unit_bytes
            self._holding.place_rows(*at, self.values.data_ptr())
