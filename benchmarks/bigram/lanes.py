"""Lanes that are compared: each trains a table of its own, from zeros and on equal batches, by zenc.RowwiseAdagrad.

all-to-all             by hand, as modded-nanogpt does: ranks own ranges of rows; gradients go to owners by
                       ``dist.all_to_all_single``, and updated rows to all ranks by an all-gather of those that changed
all-to-all, on demand  the same push; owners answer what each rank asks for, its next batch
torch-coo              ``torch.distributed.all_reduce`` of the sparse gradient, as DDP does; every rank updates all rows
zenc                   ``zenc.ShardedTableOptimizer``, under ``balanced``
zenc, on demand        the same with ``on_demand``, and ``fetch`` of the next batch

A call begins when the gradient is there, and ends when the rows of the next batch can be looked up.
"""

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import zenc
from benchmarks.bigram.model import (
    TORCH,
    WRITTEN,
    WRITTEN_ON_DEMAND,
    ZENC,
    ZENC_ON_DEMAND,
    Batches,
    Bigrams,
    Scores,
    new_table,
)
from benchmarks.lab.peers import Peer
from benchmarks.lab.worker import record_of, work
from zenc.tables.owned_rows import of_rows

RATE = 0.1


class Lane(Peer, ABC):
    """A way to train a table; ``losses`` are those of this rank, one for each step from the first on."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.steps = batches, count()
        self.scores, self.losses = Scores(batches.table.width), list[float]()
        self.parameter = new_table(batches.table)
        self.table = self.parameter.detach()

    def prepare(self) -> None:
        step = next(self.steps)
        loss, self.gradient = self.scores.gradient(self.table, self.batches.of_step(step))
        self.losses.append(loss)
        self.next = self.batches.of_step(step + 1).rows

    def call(self) -> torch.Tensor:
        self.train()
        return self.table

    @abstractmethod
    def train(self) -> None:
        """Sum the gradients of all ranks, update the table, and make the rows ``next`` ready to be looked up."""


class TorchSparse(Lane):
    def __init__(self, batches: Batches) -> None:
        super().__init__(batches)
        self.optimizer = zenc.RowwiseAdagrad([self.parameter], lr=RATE)

    def train(self) -> None:
        summed = self.gradient / dist.get_world_size()
        dist.all_reduce(summed)
        self.parameter.grad = summed
        self.optimizer.step()


class Zenc(Lane):
    def __init__(self, batches: Batches, on_demand: bool) -> None:
        super().__init__(batches)
        make = zenc.RowwiseAdagrad
        self.optimizer = zenc.ShardedTableOptimizer(
            [self.parameter], make, "balanced", on_demand=on_demand, init_sync=False, lr=RATE
        )

    def train(self) -> None:
        self.parameter.grad = self.gradient
        self.optimizer.step()
        self.optimizer.fetch(self.next)


class HandWritten(Lane):
    """A lane by calls of ``torch.distributed`` that are written by hand; rank r owns rows r * k to (r + 1) * k."""

    def __init__(self, batches: Batches) -> None:
        super().__init__(batches)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        per_rank = -(-batches.table.rows // self.size)
        self.ends = torch.arange(1, self.size) * per_rank
        self.first = self.rank * per_rank
        self.shard = torch.nn.Parameter(self.table[self.first : self.first + per_rank])  # the same memory
        self.optimizer = zenc.RowwiseAdagrad([self.shard], lr=RATE)

    def train(self) -> None:
        changed = self.push()
        self.pull(changed)

    def push(self) -> torch.Tensor:
        """Sum the gradients of this rank's rows, and update these; returns which, ascending."""
        ids, values = self.gradient.indices()[0], self.gradient.values() / self.size
        going = self.by_owner(ids)
        own = slice(sum(going[: self.rank]), sum(going[: self.rank + 1]))
        kept_ids, kept = ids[own], values[own]
        ids, values = (
            torch.cat([ids[: own.start], ids[own.stop :]]),
            torch.cat([values[: own.start], values[own.stop :]]),
        )
        going[self.rank] = 0
        coming = self.counts(going)
        their_ids = torch.split(self.exchange(ids.int(), going, coming), coming)
        their_values = torch.split(self.exchange(values, going, coming), coming)
        all_ids = torch.cat([*their_ids[: self.rank], kept_ids, *their_ids[self.rank + 1 :]])
        all_values = torch.cat([*their_values[: self.rank], kept, *their_values[self.rank + 1 :]])
        unique, places = np.unique(all_ids.long().numpy(), return_inverse=True)
        mine, at = torch.from_numpy(unique), torch.from_numpy(places)
        sums = values.new_zeros(len(mine), values.shape[1]).index_add_(0, at, all_values)
        self.shard.grad = of_rows(mine - self.first, sums, self.shard.shape)
        self.optimizer.step()
        return mine

    def pull(self, changed: torch.Tensor) -> None:
        """Send all ranks the rows ``changed`` by this one, and take theirs."""
        counts = changed.new_empty(self.size)
        dist.all_gather_into_tensor(counts, changed.new_tensor([len(changed)]))
        most, width = int(counts.max()), self.table.shape[1]
        ids, rows = torch.zeros(most, dtype=torch.int32), torch.zeros(most, width)
        ids[: len(changed)], rows[: len(changed)] = changed.int(), self.table[changed]
        all_ids, all_rows = ids.new_empty(self.size, most), rows.new_empty(self.size, most, width)
        dist.all_gather_into_tensor(all_ids.view(-1), ids)
        dist.all_gather_into_tensor(all_rows.view(-1, width), rows)
        for rank, of_rank in enumerate(counts.tolist()):
            if rank != self.rank:
                self.table[all_ids[rank, :of_rank].long()] = all_rows[rank, :of_rank]

    def by_owner(self, ids: torch.Tensor) -> list[int]:
        """Return the number of ``ids``, which ascend, that each rank owns."""
        cuts = torch.searchsorted(ids, self.ends)
        ends = torch.cat([cuts.new_zeros(1), cuts, cuts.new_tensor([len(ids)])])
        counts: list[int] = ends.diff().tolist()
        return counts

    def counts(self, going: list[int]) -> list[int]:
        """Return the number of elements that come from each rank where ``going`` go there."""
        own = torch.tensor(going)
        found = torch.empty_like(own)
        dist.all_to_all_single(found, own)
        coming: list[int] = found.tolist()
        return coming

    def exchange(self, own: torch.Tensor, going: list[int], coming: list[int]) -> torch.Tensor:
        """Return the elements or rows that come from all ranks, for those of ``own`` that go there."""
        found = own.new_empty(sum(coming), *own.shape[1:])
        dist.all_to_all_single(found, own, coming, going)
        return found


class HandWrittenOnDemand(HandWritten):
    def pull(self, changed: torch.Tensor) -> None:
        """Ask owners for the rows of the next batch."""
        ids = torch.from_numpy(np.unique(self.next.numpy()))
        going = self.by_owner(ids)
        start = sum(going[: self.rank])
        ids = torch.cat([ids[:start], ids[start + going[self.rank] :]])
        going[self.rank] = 0
        coming = self.counts(going)
        asked = self.exchange(ids.int(), going, coming)
        self.table[ids] = self.exchange(self.table[asked.long()], coming, going)


def lane(name: str, batches: Batches) -> Lane:
    """Return the lane ``name`` on this rank; all ranks make it together."""
    ways: dict[str, Callable[[Batches], Lane]] = {
        WRITTEN: HandWritten,
        WRITTEN_ON_DEMAND: HandWrittenOnDemand,
        TORCH: TorchSparse,
        ZENC: partial(Zenc, on_demand=False),
        ZENC_ON_DEMAND: partial(Zenc, on_demand=True),
    }
    return ways[name](batches)


def measured(settings: Bigrams, text: torch.Tensor) -> dict[str, Any]:
    """Return the record of this rank, and ``losses``: lane -> those of this rank, of each step from the first on."""
    batches = Batches(text, settings.workload, dist.get_rank())
    lanes = {name: lane(name, batches) for name in settings.peers}
    return {**record_of(settings, lanes), "losses": {name: each.losses for name, each in lanes.items()}}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="`torch.distributed.all_gather_into_tensor`", category=FutureWarning)
    words = torch.from_numpy(np.load(sys.argv[1], mmap_mode="c"))
    work(lambda given: measured(Bigrams.from_json(given), words))
