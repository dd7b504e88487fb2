"""A rank's process, which makes backward passes, or training steps, in all ways in turns, and records their times.

``benchmarks.lab.launch`` starts it as it starts ``benchmarks.lab.worker``; with ``CHARACTERS`` as an argument it
trains.
"""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist

from benchmarks.convergence.characters import text
from benchmarks.lab.dense.peers import Attached, Calls, backwards, steps
from benchmarks.lab.dense.settings import Backwards, CharacterSteps
from benchmarks.lab.worker import record_of, work

CHARACTERS = "characters"
FILES = 40
"""The number of files of the text, which is enough for some steps."""


def measured(settings: Backwards) -> dict[str, Any]:
    """Return the record of this rank; raises LabError where a scheme loses gradients."""
    peers = backwards(settings, dist.get_rank())
    record = record_of(settings, peers)
    for name, peer in peers.items():
        if isinstance(peer, Attached | Calls):
            peer.check(name)
    return record


def trained(settings: CharacterSteps) -> dict[str, Any]:
    """Return the record of this rank, with ``losses``: peer -> its loss in each step; LabError where weights differ."""
    peers = steps(settings, dist.get_rank(), text(FILES))
    record = record_of(settings, peers)
    for peer in peers.values():
        peer.check()
    return {**record, "losses": {name: peer.losses for name, peer in peers.items()}}


if __name__ == "__main__":
    if CHARACTERS in sys.argv:
        work(lambda given: trained(CharacterSteps.from_json(given)))
    else:
        work(lambda given: measured(Backwards.from_json(given)))
