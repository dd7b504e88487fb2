"""Parameters of codes and selections, as kernels want them: on CPUs and on GPUs the same numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from zenc.errors import Diagnostic, InternalError
from zenc.scheme.compression import Code, Fixed, Integers, OneBit, RandomLevels, Sign, Ternary
from zenc.wire.codes import sum_bits

MOST_SUM_BITS = 25
"""Bits of a sum of ``fixed`` values, which has to be exact in float32."""

_PLACES = {Integers: 0, RandomLevels: 1, Sign: 2, OneBit: 3, Ternary: 4}
_ROUNDED = {"f16": 5, "bf16": 6}

Parameters: TypeAlias = tuple[int, int, int, int]
"""A code's number, the levels of a step, the bits of an integer, the values of a block."""


@dataclass(frozen=True, slots=True)
class UnitChoice:
    """The units of a selection, as kernels read it: the number of its kind, two numbers that it has, and a key.

    ``FROM``: ``a`` is a magnitude, the bits of a float32, that units reach. ``TOP``: the ``a`` greatest, exactly;
    of equals the first ones. ``BISECTED``: from a threshold on that at least ``a`` reach, found in ``b`` halvings of
    the magnitudes (MSTopK, MLSys 2021). ``SAMPLED``: from a threshold on that is exact for a sample of ``b`` units, at
    the same share (DGC, ICLR 2018, section 5). ``OF_BLOCKS``: the ``a`` greatest of each block of ``b`` units; of a
    short last one in proportion, at least 1. ``AT_RANDOM``: each with a chance of ``a`` / 2^31.
    """

    kind: int
    a: int
    b: int = 0
    key: int = 0


FROM, TOP, BISECTED, SAMPLED, OF_BLOCKS, AT_RANDOM = range(6)
"""The numbers of the kinds of a choice."""


def code_parameters(code: Code) -> Parameters:
    """The parameters of ``code``, which is not ``fixed``."""
    match code:
        case Integers(bits, block):
            return _PLACES[Integers], (1 << (bits - 1)) - 1, bits, block
        case RandomLevels(s, block):
            return _PLACES[RandomLevels], s, (2 * s).bit_length(), block
        case Sign(block) | OneBit(block) | Ternary(block):
            return _PLACES[type(code)], 1, 1, block
        case Fixed():
            raise AssertionError("fixed has kernels of its own")
    return _ROUNDED[code.name], 1, 16, 1


def checked_sum_bits(code: Fixed, contributions: int) -> int:
    """The bits of a sum of ``contributions``. Raises InternalError where float32 does not have them."""
    bits = sum_bits(code, contributions)
    if bits > MOST_SUM_BITS:
        message = f"sums of {contributions} values of {code.bits} bits have {bits}, and float32 has {MOST_SUM_BITS}"
        raise InternalError(Diagnostic("internal", message))
    return bits
