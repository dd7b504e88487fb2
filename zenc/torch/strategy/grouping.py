"""Groupings of DDP's buckets, the dense gradients of which are summed together: as a strategy says, or searched.

    BucketGrouping = CutsByTensor | FullBuffers | MeasuredSearch

A search tries groups on measured steps, while a model trains: MergeComp's cuts, or TopKA2A's one size of buffers.

    a try       WARM_UP steps with other groups, then MEASURED that are timed; their median, of the slowest rank
    a search    a function of ``zenc.strategy.merging``, which asks for the seconds of some groups; called anew after
                each try, with all known ones, until it needs no others
    its result  the groups from then on; a search begins anew where DDP's buckets change

A try in which a rule of any rank tried a scheme, or changed to another one, says nothing of its groups: it is made
again, up to AGAIN times. Later choices of a rule leave the groups as they are.

A step is from the first bucket of a backward pass to the first one of the next. All ranks take part in each try, at the
same steps, and agree on its seconds; so they try and find the same.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from torch._C._distributed_c10d import GradBucket

from zenc.common.log import notice
from zenc.errors import Diagnostic
from zenc.runtime.group.host_collectives import allreduce_max
from zenc.strategy.merging import Grouping, Seconds, full_buffers, search_fusion, search_groups
from zenc.strategy.model import Buckets, Cuts, Fused, Groups, SearchedCuts
from zenc.strategy.simulation.step import VALUE_BYTES, StepTensor, TrainingStep

if TYPE_CHECKING:
    from zenc.runtime.group.communicator import Communicator

log = logging.getLogger("zenc")
STEADY = 3
"""The step from which on buckets are not rebuilt any more: a static graph has its first ones for two."""
WARM_UP, MEASURED = 5, 20
"""The number of steps of a try that are not timed, and of those that are."""
AGAIN = 20
"""Most further tries of the same groups."""

Ends: TypeAlias = tuple[int, ...]
"""Buckets before which a group ends."""
MOST_SHOWN = 12
"""Most ends of buckets that are listed."""


@dataclass(frozen=True, slots=True)
class BucketShape:
    """A bucket of DDP: its parameters by their ids, in the order of the backward pass, and the bytes of its buffer."""

    parameters: tuple[int, ...]
    bytes: int

    @staticmethod
    def of(bucket: GradBucket) -> BucketShape:
        """Return the shape of ``bucket``."""
        buffer = bucket.buffer()
        return BucketShape(tuple(id(each) for each in bucket.parameters()), buffer.numel() * buffer.element_size())


class BucketGrouping:
    """A way to group buckets; in this base class each is a group."""

    def step_begins(self) -> bool:
        """Begin a step whose buckets are as before; return whether other groups begin with it."""
        return False

    def ends(self, buckets: Sequence[BucketShape]) -> Iterable[int]:
        """Return the places of ``buckets`` before which a group ends, ascending from 1."""
        return range(1, len(buckets))

    def state(self) -> dict[str, Any]:
        """Return the learned state as JSON data; mostly empty."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``."""


@dataclass
class CutsByTensor(BucketGrouping):
    """Groups that end before the tensors ``cuts``, at the end of the bucket that has the last tensor before one.

    ``coarse`` is called, once for these buckets of DDP, with the cuts that they have no end at.
    """

    cuts: tuple[int, ...]
    coarse: Callable[[tuple[int, ...], tuple[int, ...]], None]
    _seen: tuple[BucketShape, ...] = ()
    _steps: int = 0

    def step_begins(self) -> bool:
        """Return False: the groups stay. Buckets that are still there after some steps are DDP's last."""
        self._steps += 1
        between = tuple(accumulate(len(each.parameters) for each in self._seen))
        missed = tuple(cut for cut in self.cuts if cut not in between)
        if missed and self._steps == STEADY:
            self.coarse(missed, between[:-1])
        return False

    def ends(self, buckets: Sequence[BucketShape]) -> list[int]:
        """Return the places of ``buckets`` before which a group ends."""
        self._seen, self._steps = tuple(buckets), 0
        tensors = list(accumulate(len(each.parameters) for each in buckets))
        found = {
            next(at for at, count in enumerate(tensors, 1) if count >= cut) for cut in self.cuts if cut < tensors[-1]
        }
        return sorted(found - {len(buckets)})


@dataclass(frozen=True)
class FullBuffers(BucketGrouping):
    """Groups that fill buffers of ``bytes`` bytes in turn; a greater bucket is a group of its own."""

    bytes: int

    def ends(self, buckets: Sequence[BucketShape]) -> list[int]:
        """Return the places of ``buckets`` before which a group ends."""
        return list(full_buffers((bucket.bytes for bucket in buckets), self.bytes))


GroupSearch: TypeAlias = Callable[[Sequence[BucketShape], Seconds], Grouping]
"""A search over buckets, given the seconds of steps by the ends of their groups."""


def cuts_up_to(most: int) -> GroupSearch:
    """Return MergeComp's search for ``most`` groups, or fewer."""
    return lambda buckets, seconds: search_groups(len(buckets), seconds, most)


def one_size(buckets: Sequence[BucketShape], seconds: Seconds) -> Grouping:
    """Return the grouping of TopKA2A's search for the size of all buffers."""
    tensors = tuple(StepTensor(str(at), -(-each.bytes // VALUE_BYTES), 0.0) for at, each in enumerate(buckets))
    least = max(1, min((each.bytes for each in buckets), default=1))
    return search_fusion(TrainingStep("buckets of DDP", tensors), seconds, least)


class _UntriedGroups(Exception):
    """An error inside of a search that asks for groups which no step has had."""

    def __init__(self, ends: Ends) -> None:
        super().__init__(ends)
        self.ends = ends


class MeasuredSearch(BucketGrouping):
    """Groups of buckets that ``search`` finds by trying them.

    Args:
        search: asks for the seconds of steps.
        agree: returns the seconds of the slowest rank to all; called by all at the same steps.
        tells: whether this rank reports the result.
        clock: seconds.
        choices: the number of rules' trials of and changes to other schemes so far.
    """

    def __init__(
        self,
        search: GroupSearch,
        agree: Callable[[float], float],
        tells: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        choices: Callable[[], int] = lambda: 0,
    ) -> None:
        self._search, self._agree, self._tells, self._clock, self._choices = search, agree, tells, clock, choices
        self._buckets: tuple[BucketShape, ...] = ()
        self.known: dict[Ends, float] = {}
        """The seconds of a step by the groups that were tried."""
        self.found: Grouping | None = None
        """The result; None while groups are tried."""
        self._current: Ends = ()
        self._begun: list[float] = []
        self._chosen = self._again = 0
        self._restored: Mapping[str, Any] = {}

    def step_begins(self) -> bool:
        """Begin a step whose buckets are as before; return whether other groups begin with it."""
        if self.found is not None:
            return False
        self._begun.append(self._clock())
        if len(self._begun) == WARM_UP + 1:
            self._chosen = self._choices()
        if len(self._begun) <= WARM_UP + MEASURED:
            return False
        took = self._agree(self._took())
        if took == math.inf:
            self._begun, self._again = [], self._again + 1
            return False
        self.known[self._current] = took
        self._next()
        return True

    def _took(self) -> float:
        """Return the median of the steps of this try; infinity where it is to be made again."""
        if self._choices() != self._chosen and self._again < AGAIN:
            return math.inf
        return statistics.median(later - before for before, later in pairwise(self._begun[WARM_UP:]))

    def ends(self, buckets: Sequence[BucketShape]) -> Iterable[int]:
        """Return the places of ``buckets`` before which a group ends, in this try or for good."""
        if tuple(buckets) != self._buckets:
            self._buckets, self.found, self.known = tuple(buckets), None, {}
            self._restore()
            self._next()
        return self._current

    def _next(self) -> None:
        self._begun, self._again = [], 0
        try:
            self.found = self._search(self._buckets, self._seconds)
            self._current = self.found.ends
        except _UntriedGroups as untried:
            self._current = untried.ends
        if self.found is not None and self._tells:
            notice(f"groups of buckets: {self}")

    def _seconds(self, ends: Ends) -> float:
        if ends not in self.known:
            raise _UntriedGroups(ends)
        return self.known[ends]

    def __str__(self) -> str:
        if self.found is None:
            return f"{len(self.known)} tried of {len(self._buckets)} buckets"
        alone = f", {self.known[()] * 1e3:.4g} ms in one group" if () in self.known else ""
        cuts = f", which end before {', '.join(map(str, self.found.ends))}" if self.found.ends else ""
        count = len(self.found.ends) + 1
        return f"{count} of {len(self._buckets)} buckets{cuts}: {self.found.seconds * 1e3:.4g} ms a step{alone}"

    def state(self) -> dict[str, Any]:
        """Return the tries so far, as JSON data."""
        sizes = [[len(each.parameters), each.bytes] for each in self._buckets]
        return {"buckets": sizes, "known": [[list(ends), seconds] for ends, seconds in self.known.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``, once DDP's buckets are those that it is of."""
        self._restored = state

    def _restore(self) -> None:
        state, self._restored = self._restored, {}
        if state.get("buckets") != [[len(each.parameters), each.bytes] for each in self._buckets]:
            self._restored = state  # those of DDP's first step are others
            return
        self.known = {tuple(map(int, ends)): float(seconds) for ends, seconds in state["known"]}


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
