"""Benchmark of selections and codes on CPUs: bytes of float32 a second, by their words.

    residual, quantise        a call's work outside of its phases, with nothing selected; the same with ``fixed``
    top, top by sampled, ...  the same with this selection
    encode sign, ... values to bytes, with their decoded values and losses
    decode sign, ...          bytes to values

Selections run as a call has them, over a gradient of normal values with a residual, beside a rank that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from zenc.calibrate.kernel_benchmark import Least
from zenc.language.schedule import Block
from zenc.plan.ir import Phase, PhaseKind, Plan, Tier
from zenc.runtime.call.call_queue import Turn
from zenc.runtime.call.layout import layout_of
from zenc.runtime.lossy.kernels import CompressionKernels, compression_kernels
from zenc.runtime.lossy.linear import ChunkTransform
from zenc.runtime.lossy.lossy_call import LossyScheme, begun
from zenc.runtime.lossy.residual_store import ResidualStore, pieces_of
from zenc.scheme import compression as words
from zenc.scheme.model import Aggregation, Contiguous, Format, Partition, Unit
from zenc.simulator.compression_work import QUANTISE, RESIDUAL, decoding, encoding, selecting
from zenc.wire.codes import most_encoded_bytes

VALUES = 1 << 22
"""The values of the gradient: 16 MB, more than caches hold."""
SHARE = 0.01

SELECTIONS: tuple[words.Selection, ...] = (
    *(words.Top(SHARE, by) for by in (words.EXACT, words.Sampled(), words.Reused(), words.Bisection())),
    words.TopOfParts(SHARE),
    words.TopOfBlocks(SHARE),
    words.Above(2.6),
    words.RandomEach(SHARE),
    words.Random(SHARE),
    words.Sketch(),
    words.Probable(SHARE),
    words.Heavy(SHARE),
    words.LowRank(),
)
CODES: tuple[words.Code, ...] = (
    *(made(word) if made is words.Rounded else made() for word, made in words.CODES.items()),
    words.Rounded("bf16", "chance"),
    words.Fixed(coder="asc"),
)


def timed_compression(least: Least, values: int = VALUES) -> dict[str, float]:
    """Return the bytes of float32 a second of each word, from the ``least`` time for a gradient of ``values``."""
    gradient = torch.randn(values, generator=torch.Generator().manual_seed(0), dtype=torch.float32, device="cpu")
    seconds = {
        RESIDUAL: least(_Contribution((), None, gradient)),
        QUANTISE: least(_Contribution((), words.Fixed(), gradient)),
    }
    seconds |= {selecting(each): least(_Contribution((each,), None, gradient)) for each in SELECTIONS}
    for word, made in words.TRANSFORMS.items():
        transform, values_of = ChunkTransform(compression_kernels(), made(), gradient), gradient.clone()
        seconds[word] = least(partial(transform.turn, values_of))
    for code in CODES:
        seconds |= _coded(compression_kernels(), code, gradient, least)
    return {name: 4 * values / max(each, 1e-9) for name, each in seconds.items()}


class _Contribution:
    """Calls of one scheme over copies of ``gradient``, without its phases."""

    def __init__(self, select: tuple[words.Selection, ...], code: words.Code | None, gradient: torch.Tensor) -> None:
        tier = Tier("", None, "measured", Partition.PARALLELISM, Aggregation.INCREMENTAL)
        push = Phase(PhaseKind.PUSH, Block(()), Format.DENSE, tier, code, select)
        plan = Plan("measured", "", (), None, Contiguous(), Unit.AUTO, (tier,), (push,), words.Residual())
        alone: Any = SimpleNamespace(size=2, rank=0, run_together=_as_if_alike)
        half = gradient.numel() // 2
        parts = range(half), range(half, gradient.numel())
        kernels = compression_kernels()
        self.scheme = LossyScheme(plan, alone, lambda _: parts, lambda _: kernels)
        self.store = ResidualStore()
        rows = math.isqrt(gradient.numel())
        self.gradient, self.pieces = gradient, pieces_of([("measured", (rows, gradient.numel() // rows))], gradient)
        self.layout = layout_of(gradient, Unit.AUTO)

    def __call__(self) -> None:
        call = begun(self.scheme, self.store, self.pieces, "sum", self.layout, self.gradient.clone(), Turn())
        carrier, _ = call.contribute()
        self.store.count(self.pieces)
        call.finish(carrier.float())


def _as_if_alike(start: object, purpose: str, gathered: tuple[torch.Tensor, list[torch.Tensor]], *_: object) -> None:
    """Act as ``Communicator.run_together`` for an all-gather in which the other rank gives the same as this one."""
    own, of_ranks = gathered
    for each in of_ranks:
        each.copy_(own)


def _coded(
    kernels: CompressionKernels, code: words.Code, gradient: torch.Tensor, least: Least
) -> Iterator[tuple[str, float]]:
    """Yield the speeds of one contribution; for ``fixed``, of integers of normal values."""
    count, values = gradient.numel(), gradient
    if isinstance(code, words.Fixed):
        values = (gradient * 20).round().clamp(-127, 127)
    out = torch.empty(most_encoded_bytes(code, count) + 8, dtype=torch.uint8, device="cpu")
    decoded, loss = (
        torch.empty(count, dtype=torch.float32, device="cpu"),
        torch.zeros(count, dtype=torch.float32, device="cpu"),
    )
    into = values.data_ptr(), out.data_ptr(), decoded.data_ptr(), loss.data_ptr()
    size = kernels.encode(code, "f32", count, *into)
    yield encoding(code), least(lambda: kernels.encode(code, "f32", count, *into))
    yield decoding(code), least(lambda: kernels.decode(code, "f32", count, out.data_ptr(), size, decoded.data_ptr()))
