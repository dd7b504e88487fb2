"""Groups of DDP's buckets, the gradients of which are summed together: cut as a strategy says, or searched.

    step 1            DDP has one bucket, or its first ones: each is a group by itself
    step 2            DDP has rebuilt its buckets, in the order in which gradients were ready: these too
    from then on      groups of whole buckets, by the layout of the step before

Where a step has other buckets than the one before, each remaining bucket of it is a group. The layout is the same
on all ranks, since DDP makes it so, and so are the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch._C._distributed_c10d import GradBucket

STEADY = 3
"""The step from which on buckets are not rebuilt any more: a static graph has its first ones for two."""


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


class BucketGroups:
    """Groups of the buckets of each step, by ``grouping``; without one each bucket is a group."""

    def __init__(self, grouping: BucketGrouping | None = None) -> None:
        self.grouping = grouping
        self._layout: tuple[BucketShape, ...] = ()
        self._now: list[BucketShape] = []
        self._as_before = False
        self._last: frozenset[int] = frozenset()
        """Buckets that are the last one of their group."""

    def ends_with(self, bucket: GradBucket) -> bool:
        """Return whether a group ends with ``bucket``; to be asked of each one in their order."""
        if self.grouping is None:
            return True
        at, shape = bucket.index(), BucketShape.of(bucket)
        if at == 0:
            self._now, self._as_before = [], bool(self._layout)
            if self._as_before and self._layout[0] == shape and self.grouping.step_begins():
                self._cut()
        self._now.append(shape)
        self._as_before &= at < len(self._layout) and self._layout[at] == shape
        if bucket.is_last():
            self._learn()
            return True
        return not self._as_before or at in self._last

    def _learn(self) -> None:
        if tuple(self._now) != self._layout:
            self._layout = tuple(self._now)
            self._cut()

    def _cut(self) -> None:
        assert self.grouping is not None
        self._last = frozenset(end - 1 for end in self.grouping.ends(self._layout))


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
        found, filled = [], 0
        for at, bucket in enumerate(buckets):
            if filled and filled + bucket.bytes > self.bytes:
                found.append(at)
                filled = 0
            filled += bucket.bytes
        return found
