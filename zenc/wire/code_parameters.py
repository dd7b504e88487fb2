"""Parameters of codes, for kernels and call programs: the same numbers on CPUs and on GPUs."""

from __future__ import annotations

from typing import TypeAlias

from zenc.errors import Diagnostic, InternalError
from zenc.scheme.compression import Code, Fixed, Integers, OneBit, RandomLevels, Sign, Ternary
from zenc.wire.codes import sum_bits

MOST_SUM_BITS = 25
"""Most bits of a sum of ``fixed`` values, which has to be exact in float32."""

_PLACES = {Integers: 0, RandomLevels: 1, Sign: 2, OneBit: 3, Ternary: 4}
_ROUNDED = {"f16": 5, "bf16": 6}
_FIXED = {"none": 7, "asc": 8}

Parameters: TypeAlias = tuple[int, int, int, int]
"""A code's number, the levels of a step, the bits of an integer, the values of a block.

The levels of a code of 16 bits are 1, or 2 where it rounds by chance.
"""


def code_parameters(code: Code) -> Parameters:
    """Return the parameters of ``code``; for ``fixed``, with the bits of one contribution."""
    match code:
        case Integers(bits, block):
            return _PLACES[Integers], (1 << (bits - 1)) - 1, bits, block
        case RandomLevels(s, block):
            return _PLACES[RandomLevels], s, (2 * s).bit_length(), block
        case Sign(block) | OneBit(block) | Ternary(block):
            return _PLACES[type(code)], 1, 1, block
        case Fixed(bits, coder):
            return _FIXED[coder], 1, bits, 1
    return _ROUNDED[code.name], 1 if code.rounding == "nearest" else 2, 16, 1


def checked_sum_bits(code: Fixed, contributions: int) -> int:
    """Return the bits of a sum of ``contributions``. Raises InternalError where float32 does not have them."""
    bits = sum_bits(code, contributions)
    if bits > MOST_SUM_BITS:
        message = f"sums of {contributions} values of {code.bits} bits have {bits}, and float32 has {MOST_SUM_BITS}"
        raise InternalError(Diagnostic("internal", message))
    return bits
