"""Matrices of low rank: one of two factors of each tensor goes through the plan, and the product comes back.

    even calls: P = G Q,  of orthonormal columns Q, which are those of the last summed Q     # G [rows, columns]
    odd calls:  Q = G^T P, of orthonormal columns P, which are those of the last summed P
    result = the sum of what was sent times the transposed basis;  each rank keeps G less that of its own

Power iteration, half a step a call (PowerSGD, NeurIPS 2019; one sum a call: ACP-SGD, ICDCS 2023). All ranks have the
same sums, and make the same basis of them, so that each call is linear: expansions of all ranks' factors add up to that
of the sum. Vectors without a length, as before the first call, are drawn, the same on all ranks. Small tensors, and
vectors, are summed whole.

Bases are made by CPUs, and products are sums in the order of the columns: their bits are the same on all devices.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from zenc.runtime.lossy.gpu_kernels import GpuCompression
from zenc.runtime.lossy.kernels import CompressionKernels, compression_kernels
from zenc.runtime.lossy.residual_store import FlatState, Pieces
from zenc.runtime.lossy.supports import key_for
from zenc.scheme.compression import LowRank, matrix_of


@dataclass(frozen=True, slots=True)
class Factored:
    """A tensor of a call, which is summed whole where its rank ``r`` is 0.

    ``factors`` [r, rows] and [r, columns], flat, are the last sums of both. ``basis`` [r, columns] is orthonormal if a
    call sends the factor ``of_rows``, or [r, rows].
    """

    shape: tuple[int, int]
    r: int = 0
    of_rows: bool = True
    factors: tuple[torch.Tensor, ...] = ()
    basis: torch.Tensor | None = None

    @property
    def numel(self) -> int:
        """The number of values that are sent."""
        rows, columns = self.shape
        return self.r * (rows if self.of_rows else columns) if self.r else rows * columns

    def with_sum(self, sent: torch.Tensor) -> torch.Tensor:
        """Return both factors [r * (rows + columns)] on the CPU, of which ``sent`` [numel] is the one of this call."""
        own = sent.cpu()
        return torch.cat((own, self.factors[1]) if self.of_rows else (self.factors[0], own))


Placed: TypeAlias = "tuple[Factored, torch.Tensor, torch.Tensor]"
"""A tensor with its values, and those that are sent, both flat."""


@dataclass(frozen=True, slots=True)
class LowRankMap:
    """The short tensor of one call over ``tensors``, one after another: a factor of each, or all its values."""

    kernels: CompressionKernels | GpuCompression
    tensors: tuple[Factored, ...]

    @property
    def is_wide(self) -> bool:
        """Return whether the short tensor is float32, whatever the gradient is."""
        return True

    @property
    def numel(self) -> int:
        """Elements of the short tensor."""
        return sum(each.numel for each in self.tensors)

    @property
    def numbers(self) -> array[int]:
        """The numbers of each tensor that kernels of CPUs take."""
        addresses = [0 if each.basis is None else each.basis.data_ptr() for each in self.tensors]
        told = zip(self.tensors, addresses, strict=True)
        return array("q", [n for each, at in told for n in (*each.shape, each.r, each.of_rows, at)])

    def push(self, left: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the short tensor [numel] of ``left`` [units, width] float32, from which its expansion is taken.

        CPUs do so as they accumulate: ``CpuContribution.take_factors``.
        """
        short = torch.empty(self.numel, dtype=dtype, device=left.device)
        for each, whole, sent in self._placed(left, short):
            if each.basis is None:
                sent.copy_(whole)
            else:
                matrix = whole.view(each.shape)
                torch.mm(each.basis, matrix.T if each.of_rows else matrix, out=sent.view(each.r, -1))
        self._add(short, left, -1.0)
        return short

    def pull(self, short: torch.Tensor, out: torch.Tensor, left: torch.Tensor, ranks: int) -> None:
        """Write ``out`` [units, width] float32: the expansion of the sum ``short`` [numel]."""
        self._add(short, out.zero_(), 1.0)

    def average(self, short: torch.Tensor, out: torch.Tensor, ranks: int) -> bool | None:
        """Write ``out`` [units, width] as ``pull`` does, by ``ranks``; return whether it is finite, None on GPUs."""
        if not isinstance(self.kernels, CompressionKernels):
            return None
        return self.kernels.expand_factors(self.numbers, short.data_ptr(), ranks, out.data_ptr())

    def keep(self, losses: torch.Tensor, left: torch.Tensor) -> None:
        """Add the expansion of ``losses`` [numel] of the short tensor to ``left`` [units, width]."""
        self._add(losses, left, 1.0)

    def factors(self, short: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return both factors of each tensor, [r * (rows + columns)], after the sum ``short`` [numel]."""
        sent = torch.split(short, [each.numel for each in self.tensors])
        return tuple([each.with_sum(of_it) if each.r else None for each, of_it in zip(self.tensors, sent, strict=True)])

    def _add(self, short: torch.Tensor, out: torch.Tensor, sign: float) -> None:
        for each, whole, sent in self._placed(out, short):
            if each.basis is None:
                whole.add_(sent, alpha=sign)
                continue
            left, right = (sent, each.basis) if each.of_rows else (each.basis, sent)
            if isinstance(self.kernels, CompressionKernels):
                self.kernels.add_product(left.data_ptr(), right.data_ptr(), each.r, each.shape, sign, whole.data_ptr())
                continue
            for rows, columns in zip(left.view(each.r, -1), right.view(each.r, -1), strict=True):
                whole.view(each.shape).add_(torch.outer(rows, columns), alpha=sign)

    def _placed(self, whole: torch.Tensor, short: torch.Tensor) -> Iterator[Placed]:
        values = torch.split(whole.view(-1), [each.shape[0] * each.shape[1] for each in self.tensors])
        sent = torch.split(short, [each.numel for each in self.tensors])
        yield from zip(self.tensors, values, sent, strict=True)


def low_rank_map(
    kernels: CompressionKernels | GpuCompression,
    of: LowRank,
    pieces: Pieces,
    steps: Sequence[int],
    salt: int,
    state: FlatState,
) -> LowRankMap:
    """Return the map of ``pieces``, after ``steps`` calls of each, in the call of ``salt``; the same on all ranks."""
    known = state.now.factors or (None,) * len(pieces)
    found = []
    for place, (piece, step, both) in enumerate(zip(pieces, steps, known, strict=True)):
        shape = matrix_of(piece.shape, of.r)
        if shape is None:
            found.append(Factored((1, piece.numel)))
            continue
        sizes = [of.r * extent for extent in shape]
        if both is None or both.numel() != sum(sizes):
            both = torch.zeros(sum(sizes), dtype=torch.float32, device="cpu")
        factors, of_rows = torch.split(both, sizes), step % 2 == 0
        basis = factors[of_rows].clone()
        key = key_for(of.seed, salt, place)
        compression_kernels().orthonormalise(basis.data_ptr(), of.r, shape[of_rows], key)
        found.append(Factored(shape, of.r, of_rows, factors, basis.view(of.r, -1).to(state.device)))
    return LowRankMap(kernels, tuple(found))
