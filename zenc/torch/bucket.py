"""Dense buckets of DDP, taken apart: gradients that go through the scheme, by rows or together, and those that do not.

    bucket = rows*       each in a call of its own, by rows
           | together*   in one call, as pieces of one flat tensor, each of which has a name
           | rest*       by DDP's own all-reduce

DDP lays the gradients of a bucket one after another in one buffer. Those that go together and lie together are averaged
in place; others are gathered in a buffer of their own, so that a bucket takes one call of the scheme, however often
what stays with DDP stands between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

Future: TypeAlias = torch.futures.Future[Any]
Averaged: TypeAlias = torch.futures.Future[torch.Tensor]
"""A tensor, averaged over the ranks."""


@dataclass(frozen=True, slots=True)
class PlacedGradient:
    """The gradient of ``parameter``, where it lies in the buffer of its bucket."""

    parameter: torch.Tensor
    gradient: torch.Tensor
    first: int

    @property
    def numel(self) -> int:
        """Elements."""
        return self.gradient.numel()


def pieces_of(bucket: GradBucket) -> list[PlacedGradient]:
    """The gradients of a dense ``bucket``, in the order of its buffer."""
    origin = int(bucket.buffer().storage_offset())
    both = zip(bucket.parameters(), bucket.gradients(), strict=True)
    found = [
        PlacedGradient(parameter, gradient, int(gradient.storage_offset()) - origin) for parameter, gradient in both
    ]
    return sorted(found, key=lambda piece: piece.first)


@dataclass(frozen=True, slots=True)
class SplitBucket:
    """The gradients of a bucket by the way that they go; what is in no list stays with DDP. ``idle`` ones stay at 0."""

    buffer: torch.Tensor
    rows: Sequence[PlacedGradient]
    together: Sequence[PlacedGradient]
    idle: Sequence[PlacedGradient] = ()

    def reduce(
        self,
        by_rows: Callable[[PlacedGradient], Averaged],
        by_pieces: Callable[[torch.Tensor, Sequence[PlacedGradient]], Averaged],
        group: dist.ProcessGroup | None,
    ) -> Averaged:
        """Average the buffer [elements] over the ranks, in place.

        ``by_rows`` averages a gradient in place; ``by_pieces`` a flat tensor of ``together``; ``group`` all else.
        """
        futures: list[Future] = [by_rows(piece) for piece in self.rows]
        if self.together:
            spans = [slice(piece.first, piece.first + piece.numel) for piece in self.together]
            futures.append(gathered(self.buffer, spans, lambda flat: by_pieces(flat, self.together)))
        rest = list(self.between())
        if self.together and rest:
            futures.append(gathered(self.buffer, rest, lambda flat: average(flat, group)))
        else:
            futures += [average(self.buffer[span], group) for span in rest]

        def whole(ended: torch.futures.Future[list[Future]]) -> torch.Tensor:
            for future in ended.value():
                future.wait()  # raises what one of them failed with
            return self.buffer

        return torch.futures.collect_all(futures).then(whole)

    def between(self) -> Iterator[slice]:
        """The spans of the buffer that no list covers."""
        first = 0
        taken = sorted((piece.first, piece.numel) for piece in (*self.rows, *self.together, *self.idle))
        for start, length in [*taken, (self.buffer.numel(), 0)]:
            if start > first:
                yield slice(first, start)
            first = start + length


def gathered(buffer: torch.Tensor, spans: Sequence[slice], reduce: Callable[[torch.Tensor], Future]) -> Future:
    """``reduce`` of the ``spans`` of ``buffer`` [elements], as one flat tensor in their order, which is done in place.

    Without a copy where each span begins where the one before it ends.
    """
    if all(one.stop == other.start for one, other in pairwise(spans)):
        return reduce(buffer[spans[0].start : spans[-1].stop])
    flat = torch.cat([buffer[span] for span in spans])

    def spread(ended: Future) -> None:
        ended.wait()  # raises what it failed with
        lengths = [span.stop - span.start for span in spans]
        for span, averaged in zip(spans, torch.split(flat, lengths), strict=True):
            buffer[span] = averaged

    return reduce(flat).then(spread)


def average(flat: torch.Tensor, group: dist.ProcessGroup | None) -> Future:
    """The average of ``flat`` [elements] over the ranks of ``group``, in place, by torch.distributed."""
    flat.div_(dist.get_world_size(group))
    work = dist.all_reduce(flat, group=group, async_op=True)
    assert work is not None
    future: Future = work.get_future()
    return future
