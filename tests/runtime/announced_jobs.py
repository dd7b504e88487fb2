"""Jobs of ranks in the tests of announced calls; each takes the group first."""

from __future__ import annotations

import torch
import torch.distributed as dist

import zenc
from tests.runtime.jobs import DEADLINE, bits
from tests.support.cases import sparse_tensor


def several(group: dist.ProcessGroup, shared: bool) -> tuple[list[str], list[str], list[bool], list[int]]:
    """Sum four tables; return fingerprints of usual sums, of announced ones, which were repeated, and bytes sent.

    Rank 1 announces a row too many of the second; the last is the first, in a usual call behind all others.
    """
    rank, size = group.rank(), group.size()
    collective = zenc.load("holders", group, deadline=DEADLINE, shared_memory=shared)
    kinds = ("random", "everything", "empty_on_some")
    tables = [sparse_tensor(kind, rank, size, 3000, 17, torch.float32, 5) for kind in kinds]
    tables.append(tables[0])
    whole = [bits(collective.all_reduce(table)) for table in tables]
    told = []
    for number, table in enumerate(tables[:3]):
        ids = table._indices()[0]
        told.append(collective.announce(ids[:-1] if (number, rank) == (1, 1) else ids, table.shape, name=kinds[number]))
    works = {}
    for number in (2, 0, 1, 3):
        announced = told[number] if number < 3 else None
        works[number] = collective.all_reduce(tables[number], async_op=True, announced=announced)
    found = [bits(works[number].wait()) for number in range(4)]
    stats = [works[number].stats for number in range(4)]
    return whole, found, [each["made_again"] for each in stats], [each["bytes_sent"] for each in stats]
