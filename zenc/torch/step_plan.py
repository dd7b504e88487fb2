"""The way of each of DDP's buckets in a step, decided once for a layout of buckets and looked up while it stays.

    StepPlan   = BucketPlan*                       # of the buckets of the step before, by their index
    BucketPlan = shape last way begins ends sums   # way: own way | table | dense gradients by rows and together

    buckets as in the step before      each goes by its plan
    the first that is another          this and all after it are decided anew, without knowing the next one
    when the next step begins          the plan is made of the buckets that came, if they were others

DDP makes the same buckets on all ranks, and rebuilds them after the first step; plans do not follow from the contents
of a gradient, so they are the same on all ranks.

*Tables.* DDP gives each sparse table a bucket of its own. A call of a small one is mostly messages, kernels and waits,
and a call of several needs no more of them: neighbours of one kind share a call. They are ready one soon after another,
so that the first of a group waits for little; where a dense bucket, or a table of another kind, stands between them a
group ends. By a plan it ends with its last table, otherwise with the bucket after it.

*Dense buckets.* Gradients of a group of whole buckets are summed together, where a strategy groups them. Without a plan
each bucket is a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torch._C._distributed_c10d import GradBucket

from zenc.torch.bucket import Averaged
from zenc.torch.strategy.grouping import BucketGrouping, BucketShape

Way: TypeAlias = Callable[[Any, GradBucket, "BucketPlan"], Averaged]
"""A function that begins the average of a bucket for a state: not bound to it, as plans must not keep one alive."""


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """The plan of a bucket, which is the ``last`` of its step or not, and goes its ``way``.

    A group of tables ``begins`` and ``ends`` with it, and has ``filled`` bytes of tables of one ``kind`` so far; None
    stands for a bucket that is never joined. A group of dense buckets ends with one that ``sums``.
    """

    shape: BucketShape
    last: bool
    way: Way
    kind: object
    filled: int
    begins: bool
    ends: bool
    sums: bool = True

    def is_of(self, bucket: GradBucket) -> bool:
        """Return whether it is the plan of ``bucket``, by its parameters."""
        return self.shape.parameters == tuple(map(id, bucket.parameters())) and self.last == bucket.is_last()


class StepPlan:
    """The plan of a step, made of the ways of the buckets that came."""

    def __init__(self) -> None:
        self.grouping: BucketGrouping | None = None
        """The groups of dense buckets; None: each is a group."""
        self.as_one = False
        """True where the dense buckets of the next step are one group, of which nothing is learned."""
        self._kinds: Mapping[int, object] = {}
        self._most, self._waits = 0, True
        self._planned: Sequence[BucketPlan] = ()
        self._seen: list[BucketPlan] = []
        """The plans of this step's buckets so far."""
        self._as_before = False

    def join(self, kinds: Mapping[int, object], bytes: int, waits: bool) -> None:
        """Join tables of one of ``kinds``, by the ids of parameters, in calls of ``bytes`` bytes at most.

        Where a bucket is not planned each table is a group, unless a group ``waits`` for the bucket after it: the first
        pass of a static graph marks no bucket as the last.
        """
        self._kinds, self._most, self._waits = kinds, bytes, waits

    def of(self, bucket: GradBucket, way_of: Callable[[GradBucket], Way]) -> BucketPlan:
        """Return the plan of ``bucket``, whose way ``way_of`` decides anew; to be asked of each one in their order."""
        at = bucket.index()
        if not at:
            self._begin(bucket)
        if self._as_before and at < len(self._planned) and self._planned[at].is_of(bucket):
            found = self._planned[at]
        else:
            self._as_before, found = False, self._anew(bucket, way_of)
        self._seen.append(found)
        if self.as_one and found.last:
            self.as_one, self._seen, self._planned = False, [], ()
        return found

    def _begin(self, bucket: GradBucket) -> None:
        """Begin a step with ``bucket``, after learning the layout of the step before."""
        seen, self._seen = self._seen, []
        others = not self._as_before or len(seen) != len(self._planned)
        if seen and others and (self.grouping is None or seen[-1].last):
            self._planned = self._cut(self._ended(seen))
        self._as_before = not self.as_one and bool(self._planned) and self._planned[0].is_of(bucket)
        if self._as_before and self.grouping is not None and self.grouping.step_begins():
            self._planned = self._cut(self._planned)

    def _anew(self, bucket: GradBucket, way_of: Callable[[GradBucket], Way]) -> BucketPlan:
        shape, last, before = BucketShape.of(bucket), bucket.is_last(), self._seen[-1] if self._seen else None
        kind = self._kinds.get(shape.parameters[0]) if shape.parameters else None
        filled = before.filled if before is not None and kind is not None and kind == before.kind else None
        begins = filled is None or filled + shape.bytes > self._most
        filled = shape.bytes if filled is None or begins else shape.bytes + filled
        ends = last or kind is None or not self._waits
        return BucketPlan(shape, last, way_of(bucket), kind, filled, begins, ends, last or not self.as_one)

    def _ended(self, seen: Sequence[BucketPlan]) -> list[BucketPlan]:
        """Return the plans of a step, in which groups of tables end where the next begins."""
        following = [*(each.begins for each in seen[1:]), not self._waits]
        return [
            replace(each, ends=each.last or each.kind is None or begins)
            for each, begins in zip(seen, following, strict=True)
        ]

    def _cut(self, plans: Sequence[BucketPlan]) -> Sequence[BucketPlan]:
        """Return ``plans`` with groups of dense buckets as the grouping says."""
        if self.grouping is None:
            return plans
        ends = set(self.grouping.ends([each.shape for each in plans]))
        return [replace(each, sums=each.last or at in ends) for at, each in enumerate(plans, 1)]
