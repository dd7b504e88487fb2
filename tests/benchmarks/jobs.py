"""Jobs of ranks for the tests of the lab."""

from __future__ import annotations

import torch.distributed as dist

import zenc
from benchmarks.lab.settings import Workload
from benchmarks.lab.workloads import sparse_gradient, units_of


def bytes_of_calls(
    group: dist.ProcessGroup, schemes: list[str], loads: list[Workload], seed: int
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the bytes that this rank sent and received in one call, by scheme and kind of workload."""
    rank, size = group.rank(), group.size()
    gradients = {load.kind: sparse_gradient(units_of(load, size, seed), rank, seed) for load in loads}
    found = {}
    for name in schemes:
        collective = zenc.load(name, group)
        for kind, gradient in gradients.items():
            collective.all_reduce(gradient)
            found[name, kind] = (collective.stats["bytes_sent"], collective.stats["bytes_received"])
    return found
