"""Values without an index: what travels under ``balanced by holders``, once the ranks have agreed.

    message = header (48 bytes), values of each piece, padded to 8 bytes        # pieces by part, then by ranks
    Rows    = part  ranks  count  values                                        # of the slots that the ranks hold

Both sides know every length before, so a message is one packet, received into a buffer of exactly its size; one
without values is not sent at all. The whole header is known before, too: its signature has the digest of the
agreement in it, so a message of ranks that agree on other owners is found out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from zenc.rank_ir.ir import SegmentSpec
from zenc.runtime.cpu.headers import CallHeader, corrupt, message_header, read_headers
from zenc.runtime.cpu.ownership import Agreement, Ranks
from zenc.runtime.layout import Layout
from zenc.wire.formats import padded
from zenc.wire.structs import MESSAGE_HEADER_BYTES

HEADER = MESSAGE_HEADER_BYTES


@dataclass(slots=True)
class Rows:
    """The rows that are held of ``part``: sums of the contributions of ``ranks``, at the address ``values``.

    ``message`` is a buffer that has room for a header and carries these values alone, if there is one.
    """

    part: int
    ranks: Ranks
    count: int
    values: int
    keep: object
    message: torch.Tensor | None = None
    sealed: bool = False
    """Whether ``message`` has the header of this rank."""


class RowPacker:
    """Lays out messages of values for one rank in one call."""

    def __init__(self, agreed: Agreement, call: CallHeader, rank: int, unit_bytes: int) -> None:
        self.agreed, self.rank, self.unit_bytes = agreed, rank, unit_bytes
        self.call = CallHeader(call.call, call.signature ^ agreed.digest, call.units)

    def bytes_of(self, counts: Iterable[int]) -> int:
        """The bytes of a message of pieces of so many rows; 0 if they are empty, for then there is none."""
        body = sum([padded(count * self.unit_bytes) for count in counts])
        return HEADER + body if body else 0

    def count_of(self, spec: SegmentSpec) -> int:
        """The rows of what ``spec`` describes."""
        return self.agreed.count(spec.part, spec.ranks)

    def framed(self, part: int, ranks: Ranks) -> Rows:
        """Rows with a message of their own; their values are not there yet."""
        count = self.agreed.count(part, ranks)
        message = torch.empty(HEADER + padded(count * self.unit_bytes), dtype=torch.uint8)
        return self._cleared(Rows(part, ranks, count, message.data_ptr() + HEADER, message, message))

    def framed_all(self, rank: int) -> list[Rows]:
        """One of each part, for what ``rank`` holds of it, in one arena."""
        counts = self.agreed.counts_of(rank)
        sizes = [HEADER + padded(count * self.unit_bytes) for count in counts]
        arena = torch.empty(sum(sizes), dtype=torch.uint8)
        return [
            self._cleared(Rows(part, (rank,), count, message.data_ptr() + HEADER, arena, message))
            for part, (count, message) in enumerate(zip(counts, arena.split_with_sizes(sizes), strict=True))
        ]

    def _cleared(self, rows: Rows) -> Rows:
        """Zeros behind the values, up to a multiple of 8 bytes."""
        used = rows.count * self.unit_bytes
        if used % 8:
            ctypes.memset(rows.values + used, 0, padded(used) - used)
        return rows

    def message(self, rows: Sequence[Rows]) -> torch.Tensor:
        """The message [bytes] of ``rows``, which are not empty: that of the only one, or one that is put together."""
        first = rows[0]
        if len(rows) == 1 and first.message is not None:
            if not first.sealed:
                self._seal(first.message)
                first.sealed = True
            return first.message
        message = torch.zeros(self.bytes_of(each.count for each in rows), dtype=torch.uint8)
        at = message.data_ptr() + HEADER
        for each in rows:
            ctypes.memmove(at, each.values, each.count * self.unit_bytes)
            at += padded(each.count * self.unit_bytes)
        self._seal(message)
        return message

    def _seal(self, message: torch.Tensor) -> None:
        header = message_header(self.call, self.rank, [], message.numel())
        ctypes.memmove(message.data_ptr(), header, HEADER)

    def opened(self, message: torch.Tensor, sender: int, specs: Sequence[SegmentSpec]) -> list[Rows]:
        """The rows of a message [bytes] that brings what ``specs`` describe, empty ones if there is none.

        Raises SynchronisationError unless it is that message.
        """
        if message.numel():
            self._ensure_header(message, sender)
        at, found = message.data_ptr() + HEADER, []
        for spec in specs:
            count = self.count_of(spec)
            found.append(Rows(spec.part, spec.ranks, count, at, message, message if len(specs) == 1 else None))
            at += padded(count * self.unit_bytes)
        return found

    def _ensure_header(self, message: torch.Tensor, sender: int) -> None:
        header = ctypes.string_at(message.data_ptr(), HEADER)
        if header != message_header(self.call, sender, [], message.numel()):
            read_headers(header, sender, self.call)  # says which field differs, if it is one of the call's
            raise corrupt(sender, f"it is not the one of {message.numel():,} bytes that the plan says")


class SparseOutput:
    """The units that any rank holds, ascending: ``ids`` [k] int64, and ``values`` [k, width] of the parts so far.

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
