"""Codes: the byte layout of encoded values, and its size without writing it.

    values   = scales | codes                       # in place of plain values in a body; padded to 8 bytes there
    scales   = f16, bf16: nothing                                    # codes: the values, 2 bytes each
               fp8: the power of two of each block, float32          # codes: e4m3, as torch.float8_e4m3fn has it
               int, levels: the step of each block                   # codes: multiples of it, by their offset from the
               ternary: the greatest magnitude of each block                 # least, in bits or, ternary, in trits
               sign: the mean magnitude of each block                # codes: a bit, set below 0
               vote: the contributions in each value of the block    # codes: the same, at random for 0
               onebit: of each block the mean at or above 0, and the mean below
               fixed: the exponent of the step, int32, of all values # codes: multiples of it, as those of int
               fixed by asc: bytes in all, int64 | exponent | 0, int32 | lengths of chunks, uint32 | chunks
    codes    = windows of 1,024 values | the values that are left
    window   = 32 lanes: lane i has values i, i + 32, i + 64, ... in its words, low bits first; word j of all lanes
               stands before word j + 1
    trits    = windows of 160 values, 5 a byte: lane i has values i, i + 32, ...; the first one counts most
    left     = one value after another, low bits first; of trits 5 a byte

A step of ``int`` and ``levels`` has so few significant bits that its multiples are float32 exactly; a block that is not
finite has the scale NaN, and ``fixed`` the exponent ``NOT_FINITE``. ``asc`` codes chunks of ``CHUNK`` values by
themselves, each with a new model; a chunk that this would not make smaller is stored as ``codes``, and the upper bit of
its length is set. Nothing stands for no values.
"""

from __future__ import annotations

from typing import TypeAlias

from zenc.errors import Diagnostic, InternalError
from zenc.scheme.compression import CODES, Code, Fixed, Float8, Integers, OneBit, RandomLevels, Rounded, Ternary, Vote
from zenc.wire.constants import CODE_NUMBERS

CHUNK = 1 << 14
"""The number of values in a chunk of ``asc``, which starts with a new model."""
NOT_FINITE = (1 << 31) - 1
"""The exponent of ``fixed`` values that are not finite: all of them are NaN."""
MOST_SUM_BITS = 25
"""Most bits of a sum of ``fixed`` values, which has to be exact in float32."""
_TRITS = 5
_WORDS = {made: word for word, made in CODES.items()}

Parameters: TypeAlias = tuple[int, int, int, int]
"""A code's number, the levels of a step, the bits of an integer, the values of a block; 1 where it has no blocks.

The levels of a code of 16 bits are 1, or 2 where it rounds by chance.
"""


def code_parameters(code: Code, contributions: int = 1) -> Parameters:
    """Return the parameters of ``code`` for values of ``contributions``, for kernels; of ``fixed`` those of one."""
    match code:
        case Rounded(name, rounding):
            return CODE_NUMBERS[name], 1 if rounding == "nearest" else 2, 16, 1
        case Fixed(bits, coder):
            return CODE_NUMBERS["fixed" if coder == "none" else coder], 1, bits, 1
        case Integers(bits):
            levels = (1 << (bits - 1)) - 1
        case Float8():
            levels, bits = 1, 8
        case Vote():
            levels, bits = contributions, 1
        case RandomLevels(levels):
            bits = (2 * levels).bit_length()
        case _:
            levels = bits = 1
    return CODE_NUMBERS[_WORDS[type(code)]], levels, bits, code.block


def is_static(code: Code) -> bool:
    """Return whether the bytes of encoded values depend on their number alone."""
    return not (isinstance(code, Fixed) and code.coder != "none")


def encoded_bytes(code: Code, count: int, contributions: int = 1) -> int:
    """Return the bytes of ``count`` values, each a sum of ``contributions``, in a code of static size; not padded."""
    assert is_static(code), "the bytes of asc depend on the values"
    return most_encoded_bytes(code, count, contributions)


def most_encoded_bytes(code: Code, count: int, contributions: int = 1) -> int:
    """Return the most bytes that ``count`` values, each a sum of ``contributions``, take in ``code``; not padded."""
    if not count:
        return 0
    _, _, bits, block = code_parameters(code)
    scales = 4 * -(-count // block) if block > 1 else 0
    match code:
        case Fixed(coder="none"):
            return 4 + packed_bytes(sum_bits(code, contributions), count)
        case Fixed():
            return _most_asc_bytes(count, sum_bits(code, contributions))
        case Ternary():
            return scales + -(-count // _TRITS)
        case OneBit():
            scales *= 2
    return scales + packed_bytes(bits, count)


def packed_bytes(bits: int, count: int) -> int:
    """Return the bytes of ``count`` integers of ``bits`` bits."""
    return (bits * count + 7) // 8


def sum_bits(code: Fixed, contributions: int) -> int:
    """Return the bits of a sum of ``contributions`` values: ``bits`` plus ceil(log2(contributions))."""
    return code.bits + (contributions - 1).bit_length()


def checked_sum_bits(code: Fixed, contributions: int) -> int:
    """Return the bits of a sum of ``contributions``. Raises InternalError where float32 does not have them."""
    bits = sum_bits(code, contributions)
    if bits > MOST_SUM_BITS:
        message = f"sums of {contributions} values of {code.bits} bits have {bits}, and float32 has {MOST_SUM_BITS}"
        raise InternalError(Diagnostic("internal", message))
    return bits


def _most_asc_bytes(count: int, bits: int) -> int:
    chunks, rest = divmod(count, CHUNK)
    return 16 + chunks * packed_bytes(bits, CHUNK) + packed_bytes(bits, rest) + 4 * (chunks + (rest > 0))
