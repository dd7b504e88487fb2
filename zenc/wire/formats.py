"""Wire formats: the byte layout of a message, and its size in bytes without writing it.

    message = message header | segment header * | body *        # headers of all segments first
    body    = index, padded with zeros to 8 bytes | values, padded to 8 bytes
    index   = dense: nothing (every slot is occupied)           # cost per occupied slot, at density d:
              coo: the slots, 4 bytes each (8 beyond 2^32)      #   32 bits
              bitmap: one bit a slot, in words of 64            #   1/d bits (Zen, OSDI 2025, section 3.3)
              elias_fano: low halves | high halves, each in     #   below 2 + log2(1/d) bits, and 0.56 above the
                          words of 64                           #   entropy (Elias 1974; Fano 1971)
              block(k): one bit a block of k slots, in words    #   1/(d k) bits, where blocks are full or empty
                        of 64; all slots of a block are there   #   (OmniReduce, SIGCOMM 2021)

Elias-Fano lists the rarer kind of slots, occupied or absent (the occupied ones where there are as many of both): m of
them, ascending, and of each the number of slots of the other kind below it, which is slot - slots listed before. The
l = floor(log2((slots - m) / m)) low bits of each number stand one after another; then each high part, number >> l, in
unary: a bit is set at high part + numbers listed before. Unused bits are 0; with m = 0 there are no words.

All formats are lossless about which slots are occupied; ``dense`` therefore exists only where all are, and ``block(k)``
where whole blocks are, of which the last may be short: a phase that names them fills up what it sends with zeros.
``auto`` takes the cheapest of the others for the count of each message (the first of equals in the order above): by
``FormatCosts``, or where these are not known the smallest.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from zenc.scheme.model import BLOCKS, PERMUTED_BLOCKS, Format, Mapping, Permutation
from zenc.wire.constants import BLOCKS_OF_PART, LEAST_BLOCK, WIRE_FORMATS

Ints = npt.NDArray[np.int64]
Count = TypeVar("Count", int, Ints)
"""A count of slots or bytes, or many of them at once, [n]."""

FILLING = frozenset({Format.DENSE, *BLOCKS})
"""The formats that a segment is filled up for, with +0: to all slots, or to whole blocks."""

_DENSE, _COO, _BITMAP, _ELIAS_FANO = WIRE_FORMATS[:4]  # found faster than in their enum
_AUTO = Format.AUTO


class FormatCosts(NamedTuple):
    """Costs of an index in picoseconds, at both ends together; each at most 2^20, so 64 bits hold sums of 2^40 slots.

    ``byte``: of the link; 0 where it is not known, and the smallest index is the cheapest. ``bitmap``: of a word of a
    bitmap that travels. ``search``: of a word of a bitmap that is listed. ``coo``, ``elias_fano``: of a listed slot.
    """

    byte: int = 0
    bitmap: int = 0
    search: int = 0
    coo: int = 0
    elias_fano: int = 0


BY_BYTES = FormatCosts()
CPU_COSTS = FormatCosts(bitmap=840, search=2600, coo=1500, elias_fano=5900)
"""Costs as ``python -m benchmarks.format_costs`` measured them on one core of a Xeon."""
GPU_COSTS = FormatCosts(bitmap=42, search=82, coo=16, elias_fano=18)
"""Costs that ``benchmarks.gpu_predictions`` derives from kernels measured on one H100."""


def format_costs(link: int, gpu: bool = False) -> FormatCosts:
    """Return the costs on CPUs, or GPUs, over links of ``link`` picoseconds a byte; 0 where it is not known."""
    return (GPU_COSTS if gpu else CPU_COSTS)._replace(byte=link) if link else BY_BYTES


def padded(size: Count) -> Count:
    """Return ``size`` rounded up to 8 bytes."""
    return (size + 7) // 8 * 8


def index_bytes(format: Format, slots: int, count: Count) -> Count:
    """Return the bytes of the index part of ``count`` slots, padded; ``format`` is one of WIRE_FORMATS."""
    if format is Format.COO:
        return padded(count * (4 if slots <= 1 << 32 else 8))
    if format is Format.ELIAS_FANO:
        return _elias_fano_bytes(slots, count) if isinstance(count, int) else _elias_fano_bytes_of_many(slots, count)
    bits = 0 if format is Format.DENSE else slots if format is Format.BITMAP else -(-slots // BLOCKS[format])
    return count * 0 + (bits + 63) // 64 * 8


def _elias_fano_bytes(slots: int, count: int) -> int:
    listed = count if count + count <= slots else slots - count
    if listed <= 0:
        return 0
    others = slots - listed
    low = (others // listed).bit_length() - 1
    return (listed * low + 63) // 64 * 8 + (listed + (others >> low) + 63) // 64 * 8


def _elias_fano_bytes_of_many(slots: int, counts: Ints) -> Ints:
    listed = np.minimum(counts, slots - counts)
    others = slots - listed
    low = np.frexp(others // np.maximum(listed, 1))[1] - 1
    both = (listed * low + 63) // 64 * 8 + (listed + (others >> low) + 63) // 64 * 8
    return np.where(listed > 0, both, 0)


def most_body_bytes(slots: int, unit_bytes: int) -> int:
    """Return an upper bound on the body of a segment of ``slots`` slots, whatever its count and its format."""
    return index_bytes(Format.COO, slots, slots) + padded(slots * unit_bytes)


def wire_format(format: Format, slots: int, count: int, costs: FormatCosts = BY_BYTES) -> Format:
    """Return the format that a segment travels in: ``format`` itself, or for ``auto`` the cheapest that is lossless."""
    return wire_layout(format, slots, count, 0, costs)[0]


def wire_layout(
    format: Format, slots: int, count: int, unit_bytes: int, costs: FormatCosts = BY_BYTES
) -> tuple[Format, int, int]:
    """Return (wire format, bytes of the index, bytes of the body) of a segment: padding included."""
    values = count * unit_bytes + 7 & -8
    if format is not _AUTO:
        index = index_bytes(format, slots, count)
        return format, index, index + values
    if count == slots:
        return _DENSE, 0, values
    coo = count * (4 if slots <= 1 << 32 else 8) + 7 & -8
    words = (slots + 63) // 64
    bitmap, elias_fano = words * 8, _elias_fano_bytes(slots, count)
    a, b, c = coo, bitmap, elias_fano
    if costs.byte:
        byte, of_word, search, listed, coded = costs
        search *= words
        a, b = a * byte + search + count * listed, b * byte + words * of_word
        c = c * byte + search + min(count, slots - count) * coded
    if a <= b and a <= c:
        return _COO, coo, coo + values
    if b <= c:
        return _BITMAP, bitmap, bitmap + values
    return _ELIAS_FANO, elias_fano, elias_fano + values


def block_of(mapping: Mapping, units: int, width: int, parts: int) -> int:
    """Return the units of ``width`` values that stay together (docs/adr/0036-blocks.md).

    Where a scheme leaves that to ``auto``, parts are loaded within an eighth of the mean, in the mean of all seeds, if
    1 % of the units are there, in whole blocks. Rows move alone.
    """
    if width != 1 or not isinstance(mapping, Permutation):
        return 1
    if mapping.block:
        return mapping.block
    least = BLOCKS_OF_PART * parts * (parts - 1).bit_length()
    return next((block for block in reversed(PERMUTED_BLOCKS) if units >= block * least), LEAST_BLOCK)


def slots_of(units: int, parts: int, part: int, block: int = 1) -> int:
    """Return the slots of ``part`` when ``units`` are cut in ``parts``: equal cuts, the last shorter or empty.

    Cuts are at multiples of ``block``.
    """
    blocks = -(-units // block)
    per_part = -(-blocks // parts) * block
    return min(max(units - part * per_part, 0), per_part)
