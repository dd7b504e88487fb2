"""A plain coder: what codes mean, written down in numpy, with the bytes in an order of its own.

Behind the interface of the compiled one (``zenc.runtime.compression.losses.Coder``), and of the same sizes.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.scheme.compression import Code, Integers, OneBit, RandomLevels, Rounded, Sign, Ternary
from zenc.wire.codes import encoded_bytes

TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def view(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    data = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(data, dtype=dtype)


def step_of(greatest: np.ndarray[Any, Any], levels: int) -> np.ndarray[Any, Any]:
    """As in steps.h: few significant bits, so that multiples are exact."""
    spared = np.uint32(0 if levels == 1 else (1 << levels.bit_length()) - 1)
    exact = (greatest / np.float32(levels)).astype(np.float32).view(np.uint32)
    return ((exact + spared) & ~spared).view(np.float32)


class PlainCoder:
    """Codes of values [count] to (scales, integers), and back."""

    def encode(
        self, code: Code, dtype: str, values: int, count: int, contributions: int, key: int, out: int, decoded: int
    ) -> int:
        wide = view(values, count, TORCH[dtype]).float()
        scales, numbers = self.numbers(code, wide.numpy().astype(np.float32), key)
        size = encoded_bytes(code, count, contributions)
        if isinstance(code, Rounded):
            raw = wide.to(TORCH[code.name]).view(torch.uint8).numpy().tobytes()
        else:
            raw = scales.astype(np.float32).tobytes() + self.packed(code, numbers)
        assert len(raw) == size, (code, len(raw), size)
        ctypes.memmove(out, raw, size)
        self.decode(code, dtype, out, size, count, contributions, decoded)
        return size

    def decode(self, code: Code, dtype: str, data: int, size: int, count: int, contributions: int, out: int) -> None:
        if size != encoded_bytes(code, count, contributions):
            raise SynchronisationError(Diagnostic("corrupt-message", "wrong length"))
        if isinstance(code, Rounded):
            found = view(data, count, TORCH[code.name]).float()
        else:
            raw = ctypes.string_at(data, size)
            found = torch.from_numpy(self.values(code, raw, count))
        view(out, count, TORCH[dtype]).copy_(found)

    def numbers(self, code: Code, values: np.ndarray[Any, Any], key: int) -> Any:
        if isinstance(code, Rounded):
            return None, None
        block = code.block
        blocks = -(-len(values) // block)
        rows = np.zeros((blocks, block), np.float32)
        rows.reshape(-1)[: len(values)] = values
        sizes = np.minimum(block, len(values) - block * np.arange(blocks)).astype(np.float64)
        rng = np.random.default_rng(key)
        match code:
            case Integers(bits):
                step = step_of(np.abs(rows).max(axis=1), 2 ** (bits - 1) - 1)
                numbers = np.rint(rows / np.where(step == 0, 1, step)[:, None])
                return step, numbers.reshape(-1)[: len(values)]
            case RandomLevels(s):
                step = step_of(np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1)).astype(np.float32), s)
                numbers = np.floor(rows / np.where(step == 0, 1, step)[:, None] + rng.random(rows.shape))
                return step, numbers.reshape(-1)[: len(values)]
            case Ternary():
                step = np.abs(rows).max(axis=1)
                chance = np.abs(rows) / np.where(step == 0, 1, step)[:, None]
                numbers = np.sign(rows) * (rng.random(rows.shape) < chance)
                return step, numbers.reshape(-1)[: len(values)]
            case Sign():
                mean = np.abs(rows.astype(np.float64)).sum(axis=1) / sizes
                return mean, (values < 0).astype(np.int64)
            case OneBit():
                below = rows < 0
                inside = np.arange(block)[None] < sizes[:, None]
                up = np.where(below, 0, rows).astype(np.float64).sum(axis=1) / np.maximum(1, (~below & inside).sum(1))
                down = np.where(below, rows, 0).astype(np.float64).sum(axis=1) / np.maximum(1, below.sum(1))
                return np.stack([up, down], 1).reshape(-1), (values < 0).astype(np.int64)
        raise AssertionError(code)

    def offset(self, code: Any) -> tuple[int, int]:
        """Bits of a number, and what is added to make it one."""
        match code:
            case Integers(bits):
                return bits, 2 ** (bits - 1) - 1
            case RandomLevels(s):
                return (2 * s).bit_length(), s
        return 1, 0

    def packed(self, code: Any, numbers: np.ndarray[Any, Any]) -> bytes:
        whole = np.nan_to_num(numbers).astype(np.int64)
        if isinstance(code, Ternary):
            padded = np.zeros(-(-len(whole) // 5) * 5, np.int64)
            padded[: len(whole)] = whole + 1
            return (padded.reshape(-1, 5) @ np.array([81, 27, 9, 3, 1])).astype(np.uint8).tobytes()
        bits, more = self.offset(code)
        places = ((whole + more)[:, None] >> np.arange(bits)) & 1
        return np.packbits(places.astype(np.uint8).reshape(-1), bitorder="little").tobytes()

    def values(self, code: Any, raw: bytes, count: int) -> np.ndarray[Any, Any]:
        blocks = -(-count // code.block) * (2 if isinstance(code, OneBit) else 1)
        scales = np.frombuffer(raw, np.float32, blocks)
        data = np.frombuffer(raw, np.uint8, offset=4 * blocks)
        if isinstance(code, Ternary):
            numbers = (data[:, None].astype(np.int64) // np.array([81, 27, 9, 3, 1]) % 3).reshape(-1)[:count] - 1
        else:
            bits, more = self.offset(code)
            places = np.unpackbits(data, bitorder="little")[: count * bits].reshape(count, bits).astype(np.int64)
            numbers = (places << np.arange(bits)).sum(axis=1) - more
        of = np.arange(count) // code.block
        if isinstance(code, Sign):
            return np.where(numbers == 1, -scales[of], scales[of]).astype(np.float32)
        if isinstance(code, OneBit):
            return scales[2 * of + numbers].astype(np.float32)
        return (numbers * scales[of]).astype(np.float32)
