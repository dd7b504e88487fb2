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

import torch

from zenc.errors import Diagnostic, TensorError
from zenc.runtime.call.call_queue import Turn
from zenc.runtime.call.layout import coalesced
from zenc.runtime.call.planned_calls import Operation, PlannedCalls, PreparedCall
from zenc.runtime.call.stats import CallStats


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
        rows = torch.tensor([shape[0] for shape in self.shapes], dtype=torch.int64, device="cpu")
        outside = (ids < 0) | (ids >= rows.repeat_interleave(counts))
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
            found.append(coalesced((ids[at:end] - first)[None], values[at:end], shape))
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


def summed(calls: PlannedCalls, tensors: Sequence[torch.Tensor], op: Operation) -> list[torch.Tensor]:
    """Return the sum of each of ``tensors``, of any shapes that can be joined, in one of ``calls``."""
    tables = JoinedTables(tuple([each.shape for each in tensors]))
    prepared = calls.prepared(like := tables.like(tensors[0]), op, False)
    run = partial(_run, replace(prepared, signature=prepared.signature ^ tables.salt), tables, tensors)
    total = calls.perform(calls.counting(run), like, "", async_op=False)
    assert isinstance(total, torch.Tensor)
    return tables.take_apart(total)


def _run(
    prepared: PreparedCall, tables: JoinedTables, tensors: Sequence[torch.Tensor], number: int, turn: Turn
) -> tuple[torch.Tensor, CallStats | None]:
    """Run as ``PreparedCall.run`` does, on ``tensors`` of any shapes, which are joined to ``tables`` here."""
    prepared.communicator.ensure_healthy()
    return prepared.run(tables.join(tensors), number, turn)
