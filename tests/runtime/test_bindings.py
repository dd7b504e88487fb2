"""Entry points of a library as Python calls them."""

from __future__ import annotations

import ctypes

from tests.emulator.build import compiled
from zenc.runtime.cpu.bindings import _bind

SOURCE = 'extern "C" long long zenc_half(long long number, const long long* other) { return (number + *other) / 2; }\n'


def test_numbers_have_64_bits():
    library = ctypes.CDLL(str(compiled(["-shared", "-fPIC", "half.cpp"], {}, {"half.cpp": SOURCE})))
    half, other = _bind(library, "half", "n p"), ctypes.c_int64(-(1 << 40))
    assert half(1 << 61, ctypes.addressof(other)) == (1 << 60) - (1 << 39)
    assert half(-(1 << 61), ctypes.addressof(other)) == -(1 << 60) - (1 << 39)
