"""Values without an index, as they travel under ``balanced by holders`` once the ranks have agreed.

    message = header (48 bytes), values of each piece, padded to 8 bytes        # pieces by part, then by ranks
    Rows    = part  ranks  count  values                                        # of the slots that the ranks hold

Both sides know every length before, so a message is one packet, received into a buffer of exactly its size; an empty
message is not sent at all. The whole header is known before, too: its signature has the digest of the agreement in it,
so a message of ranks that agree on other owners is detected.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from zenc.rank_ir.ir import SegmentSpec
from zenc.runtime.call.layout import Layout
from zenc.runtime.cpu.channel import CallHeader, corrupt, message_header, read_headers
from zenc.runtime.cpu.ownership import Owners, Ranks
from zenc.runtime.cpu.segments import MakeRoom
from zenc.runtime.transports.block_pool import own_room
from zenc.wire.formats import padded
from zenc.wire.structs import MESSAGE_HEADER_BYTES

HEADER = MESSAGE_HEADER_BYTES
WITHDRAWN = (1 << 64) - 1
"""Bits that are inverted in the signature of a withdrawal."""


@dataclass(slots=True)
class Rows:
    """The rows of ``part`` that are held: sums of the contributions of ``ranks``, at the address ``values``.

    ``message`` is a buffer that has room for a header and carries these values alone, if there is one.
    """

    part: int
    ranks: Ranks
    count: int
    values: int
    keep: object
    message: torch.Tensor | None = None
    sealed: bool = False
    """True once ``message`` has the header of this rank."""


class RowPacker:
    """The layout of messages of values for one rank in one call; ``always``: also empty messages are sent."""

    def __init__(
        self, agreed: Owners, call: CallHeader, rank: int, unit_bytes: int, room: MakeRoom, always: bool = False
    ) -> None:
        self.agreed, self.rank, self.unit_bytes, self.room, self.always = agreed, rank, unit_bytes, room, always
        self.call = CallHeader(call.call, call.signature ^ agreed.digest, call.units)

    def bytes_of(self, counts: Iterable[int]) -> int:
        """Return the bytes of a message of pieces with ``counts`` of rows; 0 if they are empty and it is not sent."""
        body = sum([padded(count * self.unit_bytes) for count in counts])
        return HEADER + body if body or self.always else 0

    def count_of(self, spec: SegmentSpec) -> int:
        """Return the rows of the segment that ``spec`` describes."""
        return self.agreed.count(spec.part, spec.ranks)

    def framed(self, part: int, ranks: Ranks) -> Rows:
        """Return rows with a message of their own, without their values yet."""
        count = self.agreed.count(part, ranks)
        message = self.room(HEADER + padded(count * self.unit_bytes))
        return self._cleared(Rows(part, ranks, count, message.data_ptr() + HEADER, message, message))

    def framed_all(self, rank: int, counts: Sequence[int]) -> list[Rows]:
        """Return one of each part, for the ``counts`` [parts] of rows that ``rank`` holds of it, in one arena."""
        sizes = [HEADER + padded(count * self.unit_bytes) for count in counts]
        arena = self.room(sum(sizes))
        return [
            self._cleared(Rows(part, (rank,), count, message.data_ptr() + HEADER, arena, message))
            for part, (count, message) in enumerate(zip(counts, arena.split_with_sizes(sizes), strict=True))
        ]

    def _cleared(self, rows: Rows) -> Rows:
        used = rows.count * self.unit_bytes
        if used % 8:
            ctypes.memset(rows.values + used, 0, padded(used) - used)
        return rows

    def message(self, rows: Sequence[Rows]) -> torch.Tensor:
        """Return the message [bytes] of ``rows``, which are not empty: that of the only one, or a joint one."""
        first = rows[0]
        if len(rows) == 1 and first.message is not None:
            if not first.sealed:
                self._seal(first.message)
                first.sealed = True
            return first.message
        message = self.room(self.bytes_of(each.count for each in rows))
        at = message.data_ptr() + HEADER
        for each in rows:
            used = each.count * self.unit_bytes
            ctypes.memmove(at, each.values, used)
            ctypes.memset(at + used, 0, padded(used) - used)
            at += padded(used)
        self._seal(message)
        return message

    def _seal(self, message: torch.Tensor) -> None:
        header = message_header(self.call, self.rank, [], message.numel())
        ctypes.memmove(message.data_ptr(), header, HEADER)

    def withdrawal(self) -> torch.Tensor:
        """Return the message [bytes] of a rank that withdraws, in place of any other: a header alone."""
        return torch.frombuffer(bytearray(self._withdrawal_of(self.rank)), dtype=torch.uint8)

    def withdraws(self, message: torch.Tensor, sender: int) -> bool:
        """Return whether ``message`` [bytes], or its beginning, is a withdrawal of ``sender``."""
        return message.numel() > 0 and ctypes.string_at(message.data_ptr(), HEADER) == self._withdrawal_of(sender)

    def _withdrawal_of(self, rank: int) -> bytes:
        call = CallHeader(self.call.call, self.call.signature ^ WITHDRAWN, self.call.units)
        return message_header(call, rank, [], HEADER)

    def opened(
        self, message: torch.Tensor, sender: int, specs: Sequence[SegmentSpec], shared: bool = False
    ) -> list[Rows]:
        """Return the rows of a message [bytes] by ``specs``, empty ones for an empty message.

        A ``shared`` message is not to be written to. Raises SynchronisationError unless it is that message.
        """
        if message.numel():
            self._ensure_header(message, sender)
        at, found = message.data_ptr() + HEADER, []
        for spec in specs:
            count = self.count_of(spec)
            own = message if len(specs) == 1 and not shared else None
            found.append(Rows(spec.part, spec.ranks, count, at, message, own))
            at += padded(count * self.unit_bytes)
        return found

    def _ensure_header(self, message: torch.Tensor, sender: int) -> None:
        header = ctypes.string_at(message.data_ptr(), HEADER)
        if header != message_header(self.call, sender, [], message.numel()):
            read_headers(header, sender, self.call)  # says which field differs, if it is one of the call's
            raise corrupt(sender, f"it is not the one of {message.numel():,} bytes that the plan says")


class SparseOutput:
    """The units that any rank holds, ascending: ``ids`` [k] int64, and ``values`` [k, width] of the parts so far.

    Allocating and writing them takes longest at the end, when all ranks do it, and nothing while a rank waits for
    values.
    """

    def __init__(self, agreed: Owners, layout: Layout, unit_bytes: int) -> None:
        self.ids = torch.empty(agreed.present, dtype=torch.int64, device="cpu")
        self.values = own_room(agreed.present * unit_bytes).view(layout.dtype).view(agreed.present, layout.width)
        self._numbers = dict(enumerate(agreed.list_units(self.ids.data_ptr())))
        self._holding, self._unit_bytes = agreed.holding, unit_bytes

    def add(self, rows: Rows) -> None:
        """Write complete rows of a part to their places, unless they are there already."""
        numbers = self._numbers.pop(rows.part, None)
        if numbers is not None:
            at = numbers.data_ptr(), rows.count, rows.values, self._unit_bytes
            self._holding.place_rows(*at, self.values.data_ptr())
