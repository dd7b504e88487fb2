"""Bytes that are the index of no segment, and the reasons."""

from __future__ import annotations

from zenc.scheme.model import Format

CORRUPT_INDICES = [
    (Format.COO, [1 | 1 << 32], 10, 2, "ascend"),
    (Format.COO, [2 | 1 << 32], 10, 2, "ascend"),
    (Format.COO, [1 | 10 << 32], 10, 2, "beyond the end"),
    (Format.COO, [1 | 9 << 32], 10, 1, "no.*bits|bits where"),
    (Format.COO, [0] * 9, 10, 11, "as many slots"),
    (Format.BITMAP, [0b111], 10, 2, "as many slots"),
    (Format.BITMAP, [1 << 10 | 1], 10, 2, "bits where"),
    (Format.DENSE, [0], 10, 9, "as many slots"),
    (Format.COO, [0], 10, -1, "as many slots"),
    (Format.ELIAS_FANO, [0b0001, 0b11], 10, 2, "ascend"),  # 2 low bits each: numbers 1 and 0, slots 1 and 1
    (Format.ELIAS_FANO, [0b0011, 0b11], 10, 2, "ascend"),  # numbers 3 and 0
    (Format.ELIAS_FANO, [0b0101, 0b1001], 10, 2, "beyond the end"),  # numbers 1 and 9, slots 1 and 10
    (Format.ELIAS_FANO, [0b1001, 0b10001], 10, 2, "bits where"),
    (Format.ELIAS_FANO, [0b10000, 0b101], 10, 2, "bits where"),
    (Format.ELIAS_FANO, [0b1001, 0b1], 10, 2, "as many slots"),
    (Format.ELIAS_FANO, [0b1001, 0b111], 10, 2, "as many slots"),
    (Format.ELIAS_FANO, [0b1001, 0b1001], 10, 8, "beyond the end"),  # absent ones
    (Format.ELIAS_FANO, [0] * 9, 10, 11, "as many slots"),
    (Format.ELIAS_FANO, [0] * 9, 10, -1, "as many slots"),
    (Format.BLOCK_4, [0b11], 10, 7, "as many slots"),
    (Format.BLOCK_4, [0b110], 10, 8, "as many slots"),  # the last block has two slots
    (Format.BLOCK_4, [0b1001], 10, 8, "bits where"),
    (Format.BLOCK_256, [0b10], 10, 10, "bits where"),
    (Format.BLOCK_256, [0b0], 10, 10, "as many slots"),
]
"""(format, words of the index, slots, promised count, a pattern that the reason has)"""
