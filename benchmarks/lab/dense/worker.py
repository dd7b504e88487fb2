"""One rank: makes backward passes in every way in turns, and writes down what each took.

``benchmarks.lab.launch`` starts it as it starts ``benchmarks.lab.worker``.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from benchmarks.lab.dense.peers import Attached, backwards
from benchmarks.lab.dense.settings import Backwards
from benchmarks.lab.worker import record_of, work


def measured(settings: Backwards) -> dict[str, Any]:
    """The record of this rank; raises LabError where a scheme loses gradients."""
    peers = backwards(settings, dist.get_rank())
    record = record_of(settings, peers)
    for name, peer in peers.items():
        if isinstance(peer, Attached):
            peer.check(name)
    return record


if __name__ == "__main__":
    work(lambda given: measured(Backwards.from_json(given)))
