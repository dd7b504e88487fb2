"""Grouping as a strategy says it, for a hook: cuts, full buffers, or a search that all ranks agree on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from zenc.errors import Diagnostic
from zenc.runtime.group.host_collectives import allreduce_max
from zenc.scheme.strategy import Buckets, Cuts, Fused, Groups, SearchedCuts
from zenc.torch.strategy.bucket_groups import BucketGrouping, CutsByTensor, FullBuffers
from zenc.torch.strategy.measured_search import MeasuredSearch, cuts_up_to, one_size

if TYPE_CHECKING:
    from zenc.runtime.group.communicator import Communicator

log = logging.getLogger("zenc")
MOST_SHOWN = 12
"""Most ends of buckets that are listed."""


def say(warning: Diagnostic) -> None:
    """Log ``warning`` in a line."""
    log.warning("zenc.attach: warning[%s] %s; %s", warning.id, warning.message, warning.help)


def grouping_of(
    groups: Groups, communicator: Communicator, choices: Callable[[], int] = lambda: 0
) -> BucketGrouping | None:
    """Return the grouping of buckets under ``groups``, among the ranks of ``communicator``; None: each by itself.

    ``choices``: the number of rules' trials of and changes to other schemes so far, which disturb a search.
    """
    tells = communicator.rank == 0

    def agree(seconds: float) -> float:
        return communicator.worker.within(lambda: allreduce_max(communicator, [seconds]))[0]

    match groups:
        case Buckets():
            return None
        case Cuts(ends):
            return CutsByTensor(ends, _say_coarse if tells else lambda missed, between: None)
        case SearchedCuts(most):
            return MeasuredSearch(cuts_up_to(most), agree, tells, choices=choices)
        case Fused(None):
            return MeasuredSearch(one_size, agree, tells, choices=choices)
        case Fused(bytes):
            assert bytes is not None
            return FullBuffers(bytes)


def _say_coarse(missed: tuple[int, ...], between: tuple[int, ...]) -> None:
    cuts, more = ", ".join(map(str, missed)), ", ..." if len(between) > MOST_SHOWN else ""
    ends = f"buckets end before {', '.join(map(str, between[:MOST_SHOWN]))}{more}" if between else "there is one bucket"
    message = f"no bucket of DDP ends before tensor {cuts} ({ends}); a group ends with the bucket in which its cut is"
    help = "wrap the model with bucket_cap_mb=1e-6, so that each gradient is a bucket of its own"
    say(Diagnostic("coarse-buckets", message, help=help))
