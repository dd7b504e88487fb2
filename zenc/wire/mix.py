"""SplitMix64: pseudo-random words from words, as ``templates/shared/zenc/mix.h`` draws them."""

from __future__ import annotations

from typing import Any

import numpy as np

from zenc.wire.constants import MIX_FIRST, MIX_SECOND

Words = np.ndarray[Any, np.dtype[np.uint64]]
ALL_BITS = (1 << 64) - 1


def mix(words: Words) -> Words:
    """Mix the bits of each word by the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), a bijection."""
    mixed: Words = words >> np.uint64(30)
    mixed ^= words
    mixed *= np.uint64(MIX_FIRST)
    shifted = mixed >> np.uint64(27)
    mixed ^= shifted
    mixed *= np.uint64(MIX_SECOND)
    np.right_shift(mixed, np.uint64(31), out=shifted)
    mixed ^= shifted
    return mixed


def mixed(number: int) -> int:
    """Return ``mix`` of a single number in [0, 2^64)."""
    number = (number ^ number >> 30) * MIX_FIRST & ALL_BITS
    number = (number ^ number >> 27) * MIX_SECOND & ALL_BITS
    return number ^ number >> 31
