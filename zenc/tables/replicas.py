"""Replicas of sharded tables: weights that are averaged over them, by the rows that have changed since the last time.

torchrec's ``DMPCollection`` shards tables in groups of ranks, and averages weights and states of the optimizer over the
replicas of a shard: whole tables, after every step or some. Its hooks take a function over the list of tensors.

    average = before + the mean of the replicas' changes # before: the result of the last call
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from zenc.common.arguments import names_wrong_types
from zenc.runtime.call.layout import coalesced, writable
from zenc.tables.by_group import ByGroup
from zenc.torch.attach import Scheme


class ReplicaAverage:
    """An average of tensors over the ranks of a group, sending rows that changed since the call before.

        DMPCollection(..., custom_all_reduce=zenc.ReplicaAverage("balanced", replica_group))
        dmp.set_all_reduce_hook(zenc.ReplicaAverage("balanced").in_group)

    The first call of a tensor averages all of it, and so does every call of one with gaps. A copy of each tensor is
    kept, to compare with. Rows that no replica has changed stay bit for bit; other rows are the average but for
    rounding, the same bits on all ranks.

    Args:
        scheme: as ``zenc.load`` takes it; one that loses nothing.
        group: the ranks, for calls that do not say; default: all.
        deadline: seconds that any single wait may take; see ``zenc.load``.
    """

    @names_wrong_types
    def __init__(
        self, scheme: Scheme = "auto", group: dist.ProcessGroup | None = None, deadline: float | None = None
    ) -> None:
        self._of_groups, self._group = ByGroup(scheme, deadline, {"adapter": type(self).__name__}), group
        self._before: dict[tuple[int, torch.Size, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}
        """The tensor, which keeps its memory, and its values after the last call, by address, shape and dtype."""

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Average ``tensors``, dense and of any shapes, in place; the same on all ranks, in the same order.

        Raises as ``Collective.all_reduce`` does.
        """
        self.in_group(self._group, tensors)

    def in_group(self, group: dist.ProcessGroup | None, tensors: Sequence[torch.Tensor]) -> None:
        """Average ``tensors`` of any shapes over the ranks of ``group``, as a call does over the usual group."""
        tensors = [writable(each) for each in tensors]
        collective = self._of_groups.on(group)
        for place, now in enumerate(each.detach() for each in tensors):
            key, has_rows = (now.data_ptr(), now.shape, now.dtype), now.is_contiguous() and now.dim() and now.numel()
            if key not in self._before or not has_rows:
                collective.all_reduce(now, "mean", name=f"replica {place} of {len(tensors)}")
                if has_rows:
                    self._before[key] = now, now.clone()
                continue
            before = self._before[key][1]
            changes = collective.all_reduce(_changed(now, before), "mean", name=f"changes {place} of {len(tensors)}")
            rows = changes.indices()[0]
            after = before.view(len(before), -1)[rows] + changes.values()
            for held in (before, now):
                held.view(len(held), -1)[rows] = after


def _changed(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return the changes of rows of ``before`` since, a coalesced sparse tensor [rows, width]; both are contiguous."""
    ours, old = now.view(len(now), -1), before.view(len(before), -1)
    rows = (ours != old).any(dim=1).nonzero()[:, 0]
    return coalesced(rows[None], ours[rows] - old[rows], ours.shape)
