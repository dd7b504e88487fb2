"""Groups of sparse tables whose gradients are averaged in one call: neighbours among DDP's buckets, of one kind.

DDP gives each sparse table a bucket of its own. A call of a small one is mostly messages, kernels and waits, and a call
of several needs no more of them. Buckets that follow each other are ready one soon after another, so that the first of
a group waits for little; where a dense bucket, or a table of another kind, stands between them a group ends.

    TableGroups = kind of each table, bytes              # tables of one kind can be one: see joined_tables
    JoinedCall  = WaitingTable+                          # in the order of the model

The tables of a group follow from the buckets of DDP and the shapes of tables, which are the same on all ranks, and not
from the contents of a gradient. DDP rebuilds its buckets after the first step, which changes the groups of a model only
where its gradients come in another order than that of its parameters, reversed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch._C._distributed_c10d import GradBucket

from zenc.runtime.call_queue import Work
from zenc.runtime.joined_tables import JoinedTables
from zenc.torch.bucket import Averaged, Future
from zenc.torch.strategy.active_rule import ActiveRule
from zenc.torch.strategy.bucket_groups import BucketShape

JOINED_BYTES = 64 << 20
"""Most bytes of the tables, as they lie in memory, whose gradients share a call."""

DENSE = BucketShape((), 0)
"""The shape of any dense bucket, with which a group ends."""


@dataclass(frozen=True, slots=True)
class GroupEnds:
    """Ends of groups about a bucket: whether one ``begins`` with it, and whether one is known to end with it."""

    begins: bool
    ends: bool


class TableGroups:
    """Groups of tables of one of ``kinds`` in consecutive buckets, of ``bytes`` bytes at most.

    ``kinds``: the kind of each joinable parameter, by its id. Where buckets are those of the step before, a group ends
    with its last table; otherwise with the bucket after it, or each is a group, if it is not to ``wait``: the first
    pass of a static graph marks no bucket as the last.
    """

    def __init__(self, kinds: Mapping[int, object] | None = None, bytes: int = 0, wait: bool = True) -> None:
        self.kinds, self.bytes, self.wait = kinds or {}, bytes, wait
        self._layout: list[tuple[BucketShape, bool]] = []
        """The buckets of the step before, and whether a group began with each."""
        self._now: list[tuple[BucketShape, bool]] = []
        self._kind: object = None
        """The kind of the group, which has ``_filled`` bytes so far."""
        self._filled = 0
        self._as_before = False

    def about(self, bucket: GradBucket) -> GroupEnds:
        """Return the ends about ``bucket``; to be asked of each one in their order."""
        if not self.kinds:
            return GroupEnds(True, True)
        at, shape = bucket.index(), BucketShape.of(bucket) if bucket.buffer().is_sparse else DENSE
        if at == 0:
            self._layout, self._now, self._kind, self._as_before = self._now, [], None, True
        kind = self.kinds.get(shape.parameters[0]) if shape.parameters else None
        begins = kind is None or kind != self._kind or self._filled + shape.bytes > self.bytes
        self._kind, self._filled = kind, shape.bytes + (0 if begins else self._filled)
        self._now.append((shape, begins))
        self._as_before &= at + 1 < len(self._layout) and self._layout[at] == self._now[at]
        ends = self._layout[at + 1][1] if self._as_before else not self.wait
        return GroupEnds(begins, ends or kind is None or bucket.is_last())


def kinds_of(rules: Iterable[ActiveRule], parameters: Mapping[str, torch.Tensor]) -> dict[int, object]:
    """Return a kind for each joinable parameter, by its id; ``parameters``: by name, of any shapes.

    Tables of one kind have sparse gradients, on the CPU, of one width and dtype, under a scheme whose sums do not
    depend on other tables. A strategy defines its calls itself.
    """
    return {
        id(table): (id(rule), table.dtype, table.shape[1:])
        for rule in rules
        if rule.takes_sparse and not rule.is_lossy and not rule.text
        for table in map(parameters.__getitem__, rule.served.sparse)
        if table.device.type == "cpu"
    }


@dataclass(slots=True)
class WaitingTable:
    """A table whose ``gradient`` [rows, ...] waits for those of its group; ``place``: among those of its rule."""

    name: str
    gradient: torch.Tensor
    rule: ActiveRule
    place: int
    announced: Future = field(default_factory=torch.futures.Future)
    """Future that is set once ``ended`` is."""
    ended: Averaged | None = None

    @property
    def averaged(self) -> Averaged:
        """The future average of its gradient, of the same shape."""
        return self.announced.then(self._value)

    def end_with(self, averaged: Averaged) -> None:
        """End with the result of ``averaged``, or its error."""
        self.ended = averaged
        averaged.then(lambda _: self.announced.set_result(None))

    def _value(self, _: Future) -> torch.Tensor:
        assert self.ended is not None
        return self.ended.value()  # raises what it failed with


@dataclass(frozen=True, slots=True)
class JoinedCall:
    """The call of ``waiting`` tables, at least two, which can be joined."""

    waiting: Sequence[WaitingTable]

    @property
    def names(self) -> list[str]:
        """The names of the tables."""
        return [each.name for each in self.waiting]

    @property
    def tables(self) -> JoinedTables:
        """The shapes of the tables, joined."""
        return JoinedTables(tuple(each.gradient.shape for each in self.waiting), tuple(self.names))

    def joined(self) -> torch.Tensor:
        """Return the tables' gradients as one [all rows, ...]; raises TensorError, with the name of a table."""
        return self.tables.join(each.gradient for each in self.waiting)

    def end_with(self, work: Work, averaged: Averaged) -> None:
        """Give each table its part of the result of ``averaged``, that of ``work``, or its error."""

        def taken(ended: Averaged) -> list[torch.Tensor]:
            found = self.tables.take_apart(ended.value())
            if work.counted is not None:
                work.counted.tables = {name: len(each.values()) for name, each in zip(self.names, found, strict=True)}
            return found

        apart = averaged.then(taken)
        for at, each in enumerate(self.waiting):
            each.end_with(apart.then(partial(_own, at)))


def _own(at: int, apart: Future) -> torch.Tensor:
    own: torch.Tensor = apart.value()[at]
    return own


def calls_of_tables(waiting: Sequence[WaitingTable]) -> list[JoinedCall]:
    """Return the calls of the ``waiting`` tables: one for each rule, dtype and width, in the order of the model."""
    kinds: dict[object, list[WaitingTable]] = {}
    for each in sorted(waiting, key=lambda each: each.place):
        gradient = each.gradient
        joins = gradient.sparse_dim() == 1 or each.name
        kinds.setdefault((id(each.rule), gradient.dtype, gradient.shape[1:], joins), []).append(each)
    return [JoinedCall(own) for own in kinds.values()]
