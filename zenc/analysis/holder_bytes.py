"""Expected message bytes under ``balanced by holders``, when every rank holds a share of the units at random.

n ranks hold U = units * (1 - (1 - d)^n) units together, and every owner U / n of them. k ranks hold F = units * (1 - (1
- d)^k); of what their own parts leave of that, each of the other n - k parts has its share.
"""

from __future__ import annotations

import numpy as np

from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import PhaseKind
from zenc.scheme.model import Format
from zenc.verify.provenance import Deliveries
from zenc.wire.formats import index_bytes, padded, wire_format
from zenc.wire.structs import SEGMENT_HEADER_BYTES


def announced_bytes(units: int, density: float) -> int:
    """One index set in a message."""
    count = round(units * density)
    return SEGMENT_HEADER_BYTES + index_bytes(wire_format(Format.AUTO, units, count), units, count)


def held_rows(units: int, density: float, size: int, ranks: int, with_owner: bool) -> int:
    """The rows that so many ranks hold of a part, its owner among them or not."""
    slots = units * (1 - (1 - density) ** size) / size
    if with_owner:
        return round(slots)
    return round((units * (1 - (1 - density) ** ranks) - ranks * slots) / (size - ranks))


def has_owner(kind: PhaseKind, deliveries: Deliveries, size: int) -> Mask:
    """Whether the rank that owns the part has contributed, [rows] of ``deliveries``."""
    part, everyone = deliveries.part, np.asarray(deliveries.contributors == size)
    if kind is PhaseKind.PULL:
        return everyone
    bit = deliveries.members[np.arange(len(part)), part // 64] >> (part % 64).astype(np.uint64)
    return np.asarray(everyone | (bit & np.uint64(1)).astype(bool))


def weights(kind: PhaseKind, deliveries: Deliveries, size: int, units: int, density: float, unit_bytes: int) -> Ints:
    """The bytes [rows] of each row of ``deliveries``, without those of message headers."""
    if kind is PhaseKind.ANNOUNCE:
        return deliveries.contributors * announced_bytes(units, density)
    owned = has_owner(kind, deliveries, size)  # by one piece: the only one, or the owner's own
    ranks, index = np.unique(deliveries.contributors // deliveries.pieces, return_inverse=True)
    counts = [held_rows(units, density, size, k, with_owner=k == size) for k in ranks.tolist()]
    others = np.array([padded(count * unit_bytes) for count in counts], dtype=np.int64)[index.reshape(-1)]
    whole = padded(held_rows(units, density, size, size, with_owner=True) * unit_bytes)
    return np.asarray(owned * whole + (deliveries.pieces - owned) * others)
