"""The weight of encoded values, counted by hand; the kernels' tests hold it against what they write."""

from __future__ import annotations

import pytest

from zenc.scheme.compression import Code, Fixed, Float8, Integers, OneBit, RandomLevels, Rounded, Sign, Ternary
from zenc.wire.codes import encoded_bytes, is_static, most_encoded_bytes


@pytest.mark.parametrize(
    ("code", "count", "contributions", "size"),
    [
        (Rounded("bf16"), 3, 1, 6),
        (Integers(8, 8), 9, 1, 2 * 4 + 9),
        (Integers(3, 8), 9, 1, 2 * 4 + 4),
        (Float8(8), 9, 1, 2 * 4 + 9),
        (RandomLevels(64, 512), 513, 1, 2 * 4 + 513),  # 129 numbers: 8 bits
        (RandomLevels(1, 512), 8, 1, 4 + 2),
        (Sign(2048), 4096, 1, 2 * 4 + 512),
        (OneBit(2048), 2049, 1, 4 * 4 + 257),
        (Ternary(2048), 11, 1, 4 + 3),
        (Fixed(8), 5, 1, 4 + 5),
        (Fixed(8), 8, 2, 4 + 9),
        (Fixed(8), 8, 5, 4 + 11),
    ],
)
def test_bytes_of_values(code: Code, count: int, contributions: int, size: int) -> None:
    assert encoded_bytes(code, count, contributions) == size
    assert encoded_bytes(code, 0, contributions) == 0


def test_asc_has_a_bound_alone() -> None:
    code = Fixed(8, "asc")
    assert not is_static(code)
    assert most_encoded_bytes(code, 16385, 4) == 16 + 2 * 4 + 10 * 16384 // 8 + 2
    with pytest.raises(AssertionError):
        encoded_bytes(code, 1)
