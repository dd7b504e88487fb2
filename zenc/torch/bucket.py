"""Dense buckets of DDP, taken apart: gradients that go through a scheme, by rows or together, and those that do not.

    bucket = rows*       each in a call of its own, by rows
           | together*   with others of the same rule, of this bucket or of a group of them, as one flat tensor
           | rest*       by DDP's own all-reduce

DDP lays the gradients of a bucket one after another in one buffer. Those that go together and lie together are averaged
in place; others are gathered in a buffer of their own, so that a group of buckets takes one call of a scheme, whatever
gradients of other calls stand between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

Future: TypeAlias = torch.futures.Future[Any]
Averaged: TypeAlias = torch.futures.Future[torch.Tensor]
"""A tensor, averaged over the ranks."""


class PlacedGradient(NamedTuple):
    """The gradient of ``parameter`` in the ``buffer`` [elements] of its bucket."""

    parameter: torch.Tensor
    gradient: torch.Tensor
    buffer: torch.Tensor
    first: int

    @property
    def numel(self) -> int:
        """The number of elements."""
        return self.gradient.numel()

    @property
    def span(self) -> BufferSpan:
        """The span of the gradient."""
        return self.buffer, self.first, self.first + self.numel


BufferSpan: TypeAlias = tuple[torch.Tensor, int, int]
"""A buffer [elements], and the beginning and end of a part of it."""


def pieces_of(bucket: GradBucket) -> list[PlacedGradient]:
    """Return the gradients of a dense ``bucket``, in the order of its buffer."""
    buffer = bucket.buffer()
    origin = int(buffer.storage_offset())
    both = zip(bucket.parameters(), bucket.gradients(), strict=True)
    found = [
        PlacedGradient(parameter, gradient, buffer, int(gradient.storage_offset()) - origin)
        for parameter, gradient in both
    ]
    return sorted(found, key=lambda piece: piece.first)


@dataclass(slots=True)
class PendingBucket:
    """A bucket on its way; its average waits for ``under_way``, and ``announced`` is set when all of that has ended."""

    buffer: torch.Tensor
    under_way: list[Future] = field(default_factory=list)
    announced: Future | None = None

    def sum_rest(self, taken: Sequence[PlacedGradient], at_once: bool, group: dist.ProcessGroup | None) -> None:
        """Average the parts that none of ``taken`` covers over the ranks of ``group``, by DDP, all ``at_once``."""
        rest = [(self.buffer, first, last) for first, last in uncovered(self.buffer.numel(), taken)]
        if at_once and rest:
            self.under_way.append(gathered(rest, lambda flat: average(flat, group)))
        else:
            self.under_way += [average(self.buffer[first:last], group) for _, first, last in rest]

    def later(self) -> Averaged:
        """Return the average of the buffer [elements], to which more is added until ``announce``.

        Unlike a future of ``collect_all``, which knows no device, it has streams wait for each other on a GPU.
        """
        on_gpu: list[int | str | torch.device] = [self.buffer.device] if self.buffer.is_cuda else []
        self.announced = torch.futures.Future(devices=on_gpu)
        return self.announced.then(lambda _: self._whole())

    def announce(self) -> None:
        """Announce that nothing more is added: the average of ``later`` ends with all that is under way."""
        announced = self.announced
        if announced is not None:
            torch.futures.collect_all(self.under_way).then(lambda _: announced.set_result(self.buffer))

    def _whole(self) -> torch.Tensor:
        for future in self.under_way:
            future.wait()  # raises what one of them failed with
        return self.buffer


def uncovered(elements: int, taken: Sequence[PlacedGradient]) -> Iterator[tuple[int, int]]:
    """Yield the spans of a buffer of ``elements`` that none of ``taken`` covers: the beginning and end of each."""
    first = 0
    for start, length in [*sorted((piece.first, piece.numel) for piece in taken), (elements, 0)]:
        if start > first:
            yield first, start
        first = start + length


def gathered(spans: Sequence[BufferSpan], reduce: Callable[[torch.Tensor], Future]) -> Future:
    """Return ``reduce`` of the ``spans`` of buffers [elements], as one flat tensor in their order, done in place.

    It makes no copy where each span begins where the one before it ends.
    """
    if all(one[0] is other[0] and one[2] == other[1] for one, other in pairwise(spans)):
        buffer, first, _ = spans[0]
        return reduce(buffer[first : spans[-1][2]])
    flat = torch.cat([buffer[first:last] for buffer, first, last in spans])

    def spread(ended: Future) -> torch.Tensor:
        ended.wait()  # raises what it failed with
        lengths = [last - first for _, first, last in spans]
        for (buffer, first, last), averaged in zip(spans, torch.split(flat, lengths), strict=True):
            buffer[first:last] = averaged
        return flat  # a future of nothing has no stream to be waited for

    return reduce(flat).then(spread)


def average(flat: torch.Tensor, group: dist.ProcessGroup | None) -> Future:
    """Average ``flat`` [elements] over the ranks of ``group``, in place, by torch.distributed."""
    flat.div_(dist.get_world_size(group))
    work = dist.all_reduce(flat, group=group, async_op=True)
    assert work is not None
    future: Future = work.get_future()
    return future
