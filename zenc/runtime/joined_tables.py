"""Sparse tables joined to one: a call of several costs its messages, kernels and waits once.

    joined table = the rows of the first table, those of the second, ...       # of one width and dtype

Row i of a table is row ``first + i`` of the joined one. So the sum of the joined table has that of each table, in a
part of its own; where all merges go in the order of the ranks, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from zenc.errors import Diagnostic, TensorError
from zenc.runtime.backend_api import OpLike, PreparedCall, operation_of
from zenc.runtime.layout import as_tensor
from zenc.runtime.stats import CallStats
from zenc.runtime.turns import Turn

if TYPE_CHECKING:
    from zenc.runtime.collective import Collective


@dataclass(frozen=True, slots=True)
class JoinedTables:
    """Tables [rows, ...] as one: the ``shapes`` of all, whose rows differ in number alone, and ``names`` for errors."""

    shapes: tuple[torch.Size, ...]
    names: tuple[str, ...] = ()

    @property
    def firsts(self) -> list[int]:
        """The first row of each table in the joined one, and the number of all rows: [tables + 1]."""
        return [0, *accumulate(shape[0] for shape in self.shapes)]

    @property
    def salt(self) -> int:
        """A number of 64 bits that only ranks with the same joined tables share."""
        told = repr([tuple(shape) for shape in self.shapes])
        return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "little")

    def like(self, table: torch.Tensor) -> torch.Tensor:
        """Return an empty joined table [all rows, ...], of the dtype and device of ``table`` [rows, ...]."""
        nothing = table._indices()[:, :0], table._values()[:0]
        return torch.sparse_coo_tensor(*nothing, self._joined_shape(), check_invariants=False, device=table.device)

    def _joined_shape(self) -> tuple[int, ...]:
        return self.firsts[-1], *self.shapes[0][1:]

    def join(self, tables: Iterable[torch.Tensor]) -> torch.Tensor:
        """Return ``tables`` of these shapes, sparse COO, as one [all rows, ...]: coalesced or not, as they come.

        Raises TensorError (``unit-out-of-range``) for a row that a table does not have, which would be one of another.
        """
        pieces = [(table._indices()[0], table._values()) for table in tables]
        counts = torch.tensor([len(ids) for ids, _ in pieces], dtype=torch.int64, device="cpu")
        ids, values = torch.cat([ids for ids, _ in pieces]), torch.cat([values for _, values in pieces])
        outside = (ids < 0) | (
            ids
            >= torch.tensor([shape[0] for shape in self.shapes], dtype=torch.int64, device="cpu").repeat_interleave(
                counts
            )
        )
        if outside.any():
            at = int(outside.to(torch.uint8).argmax())
            table = int(torch.searchsorted(counts.cumsum(0), at, right=True))
            called = repr(self.names[table]) if self.names else f"table {table}"
            message = f"row {int(ids[at])} is not one of the {self.shapes[table][0]} of {called}"
            raise TensorError(Diagnostic("unit-out-of-range", message))
        rows = ids + torch.tensor(self.firsts[:-1], dtype=torch.int64, device="cpu").repeat_interleave(counts)
        return torch.sparse_coo_tensor(
            rows[None], values, self._joined_shape(), check_invariants=False, device=values.device
        )

    def take_apart(self, total: torch.Tensor) -> list[torch.Tensor]:
        """Return the sum of each table, of its shape, from the coalesced sum [all rows, ...] of the joined one.

        The values share its memory.
        """
        ids, values = total._indices()[0], total._values()
        ends = torch.searchsorted(ids, torch.tensor(self.firsts, dtype=torch.int64, device="cpu")).tolist()
        found = []
        for shape, first, at, end in zip(self.shapes, self.firsts, ends, ends[1:], strict=False):
            own = (ids[at:end] - first)[None], values[at:end]
            found.append(torch.sparse_coo_tensor(*own, shape, is_coalesced=True, check_invariants=False, device="cpu"))
        return found


def joinable(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Return the numbers of the joinable ones of ``tensors``, of any shapes, by tables of one width and dtype.

    They are sparse COO on the CPU, of one sparse dimension, and at least two of a kind.
    """
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number, tensor in enumerate(tensors):
        takes = isinstance(tensor, torch.Tensor) and tensor.is_sparse and tensor.is_floating_point()
        if takes and not tensor.is_cuda and tensor.sparse_dim() == 1:
            kinds.setdefault((tensor.dtype, tensor.shape[1:]), []).append(number)
    return [numbers for numbers in kinds.values() if len(numbers) > 1]


def all_reduce_coalesced(
    collective: Collective, tensors: Sequence[torch.Tensor], op: OpLike = "sum"
) -> list[torch.Tensor]:
    """Return the sum of each of ``tensors``, over all ranks: sparse tables of one width and dtype in one call, as one.

    Args:
        collective: a scheme on a group. Under one that loses something or chooses among others each tensor has its own
            call.
        tensors: each as ``all_reduce`` takes it, of any shape; on all ranks the same list. Others have calls of their
            own, which overlap.
        op: as in ``all_reduce``.

    Returns:
        The sums, as ``all_reduce`` returns them. Where all merges go in the order of the ranks, as under one-shot
        aggregation, the sum of a table is bit for bit that of a call of its own.

    Raises:
        TensorError, SynchronisationError: as in ``all_reduce``; lists that differ are ``different-calls``.
    """
    tensors = [as_tensor(each) for each in tensors]
    keeps_by_name = collective.artifact.choosing is not None or collective.keeper is not None
    together = [] if keeps_by_name else joinable(tensors)
    alone = sorted(set(range(len(tensors))).difference(*together))
    works = {at: collective.all_reduce(tensors[at], op, async_op=True, name=str(at)) for at in alone}
    sums: dict[int, torch.Tensor] = {}
    for numbers in together:
        own = [tensors[number] for number in numbers]
        tables = JoinedTables(tuple([each.shape for each in own]))
        prepared = collective.prepared(like := tables.like(own[0]), operation_of(op), False)
        run = partial(_run, replace(prepared, signature=prepared.signature ^ tables.salt), tables, own)
        total = collective.perform(collective.counting(run), like, "", async_op=False)
        assert isinstance(total, torch.Tensor)
        sums.update(zip(numbers, tables.take_apart(total), strict=True))
    sums.update((number, work.wait()) for number, work in works.items())
    return [sums[number] for number in range(len(tensors))]


def _run(
    prepared: PreparedCall, tables: JoinedTables, tensors: Sequence[torch.Tensor], number: int, turn: Turn
) -> tuple[torch.Tensor, CallStats | None]:
    """Run as ``PreparedCall.run`` does, on ``tensors`` of any shapes, which are joined to ``tables`` here."""
    prepared.communicator.ensure_healthy()
    try:
        joined = tables.join(tensors)
    except BaseException as error:  # the others wait for this rank
        prepared.communicator.call_failed(error, None, turn)
        raise
    return prepared.run(joined, number, turn)
