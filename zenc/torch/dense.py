"""Dense buckets of which some gradients go through the scheme: tables whose optimizer needs dense gradients.

Adam refuses sparse gradients, so such tables have ``sparse=False`` and gradients that are mostly rows of zeros. DDP
lays the gradients of a bucket one after another in one buffer; what lies between the tables stays with DDP's own
all-reduce, in pieces as large as can be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

Future: TypeAlias = torch.futures.Future[Any]


def reduce_dense(
    bucket: GradBucket,
    through_scheme: Collection[int],
    reduce_rows: Callable[[torch.Tensor, torch.Tensor], Future],
    group: dist.ProcessGroup | None,
) -> torch.futures.Future[torch.Tensor]:
    """Average the buffer [elements] of a dense bucket over the ranks, in place.

    ``reduce_rows(parameter, gradient)`` averages the gradients of the parameters whose ids are in ``through_scheme``;
    ``group`` all else.
    """
    buffer = bucket.buffer()
    ours = [
        (parameter, gradient)
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
        if id(parameter) in through_scheme
    ]
    futures = [reduce_rows(parameter, gradient) for parameter, gradient in ours]
    futures += [_average(piece, group) for piece in _between(buffer, [gradient for _, gradient in ours])]

    def whole(ended: torch.futures.Future[list[Future]]) -> torch.Tensor:
        for future in ended.value():
            future.wait()  # raises what one of them failed with
        return buffer

    return torch.futures.collect_all(futures).then(whole)


def _between(buffer: torch.Tensor, taken: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The pieces of ``buffer`` [n] that none of ``taken``, contiguous views into it, covers."""
    first, origin = 0, int(buffer.storage_offset())
    spans = sorted((int(view.storage_offset()) - origin, view.numel()) for view in taken)
    for start, length in [*spans, (buffer.numel(), 0)]:
        if start > first:
            yield buffer[first:start]
        first = start + length


def _average(piece: torch.Tensor, group: dist.ProcessGroup | None) -> Future:
    piece.div_(dist.get_world_size(group))
    work = dist.all_reduce(piece, group=group, async_op=True)
    assert work is not None
    future: Future = work.get_future()
    return future
