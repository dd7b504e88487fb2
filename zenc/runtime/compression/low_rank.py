"""Matrices of low rank: one of two factors of each tensor goes through the plan, and the product comes back.

    even calls: P = G Q,  of orthonormal columns Q, which are those of the last summed Q     # G [rows, columns]
    odd calls:  Q = G^T P, of orthonormal columns P, which are those of the last summed P
    result = the sum of what was sent times the transposed basis;  each rank keeps G less that of its own

Power iteration, half a step a call (PowerSGD, NeurIPS 2019; one sum a call: ACP-SGD, ICDCS 2023). All ranks have the
same sums, and make the same basis of them, so that each call is linear: expansions of all ranks' factors add up to that
of the sum. Vectors without a length, as before the first call, are drawn, the same on all ranks. Small tensors, and
vectors, are summed whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from zenc.runtime.compression.kernels import CompressionKernels
from zenc.runtime.compression.residual_store import FlatState, Pieces
from zenc.runtime.compression.supports import key_for
from zenc.scheme.compression import LowRank, matrix_of


@dataclass(frozen=True, slots=True)
class Factored:
    """A tensor of a call, which is summed whole where its rank ``r`` is 0.

    ``factors`` [r, rows] and [r, columns] are the last sums of both. ``basis`` [r, columns] is orthonormal if a call
    sends the factor of ``rows``, or [r, rows].
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
        """Return both factors [r * (rows + columns)], of which ``sent`` [numel] is the one of this call."""
        return torch.cat((sent, self.factors[1]) if self.of_rows else (self.factors[0], sent))


@dataclass(frozen=True, slots=True)
class LowRankMap:
    """The short tensor of one call over ``tensors``, one after another: a factor of each, or all its values."""

    kernels: CompressionKernels
    tensors: tuple[Factored, ...]
    is_wide = True

    @property
    def numel(self) -> int:
        """Elements of the short tensor."""
        return sum(each.numel for each in self.tensors)

    def push(self, left: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the short tensor [numel] of ``left`` [units, width] float32, from which its expansion is taken."""
        short = torch.empty(self.numel, dtype=dtype, device="cpu")
        for each, whole, sent in self._placed(left, short):
            if each.basis is None:
                sent.copy_(whole)
            else:
                at = each.basis.data_ptr(), each.r, each.of_rows, sent.data_ptr()
                self.kernels.project(whole.data_ptr(), each.shape, *at)
        self._add(short, left, -1.0)
        return short

    def pull(self, short: torch.Tensor, out: torch.Tensor, left: torch.Tensor, ranks: int) -> None:
        """Write ``out`` [units, width] float32: the expansion of the sum ``short`` [numel]."""
        self._add(short, out.zero_(), 1.0)

    def keep(self, losses: torch.Tensor, left: torch.Tensor) -> None:
        """Add the expansion of ``losses`` [numel] of the short tensor to ``left`` [units, width]."""
        self._add(losses, left, 1.0)

    def factors(self, short: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return both factors of each tensor, [r * (rows + columns)], after the sum ``short`` [numel]."""
        sent = zip(self.tensors, short.split([each.numel for each in self.tensors]), strict=True)
        return tuple([each.with_sum(of_it) if each.r else None for each, of_it in sent])

    def _add(self, short: torch.Tensor, out: torch.Tensor, sign: float) -> None:
        for each, whole, sent in self._placed(out, short):
            if each.basis is None:
                whole.add_(sent, alpha=sign)
            else:
                left, right = (sent, each.basis) if each.of_rows else (each.basis, sent)
                self.kernels.add_product(left.data_ptr(), right.data_ptr(), each.r, each.shape, sign, whole.data_ptr())

    def _placed(
        self, whole: torch.Tensor, short: torch.Tensor
    ) -> Iterator[tuple[Factored, torch.Tensor, torch.Tensor]]:
        """Yield each tensor with its values in ``whole``, and those in ``short``, both flat."""
        sizes = [each.shape[0] * each.shape[1] for each in self.tensors]
        sent = short.split([each.numel for each in self.tensors])
        yield from zip(self.tensors, whole.view(-1).split(sizes), sent, strict=True)


def low_rank_map(
    kernels: CompressionKernels, of: LowRank, pieces: Pieces, steps: Sequence[int], salt: int, state: FlatState
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
        factors, of_rows = both.split(sizes), step % 2 == 0
        basis = factors[of_rows].clone()
        kernels.orthonormalise(basis.data_ptr(), of.r, shape[of_rows], key_for(of.seed, salt, place))
        found.append(Factored(shape, of.r, of_rows, factors, basis))
    return LowRankMap(kernels, tuple(found))
