"""Joined calls: the gradients of several sparse tables, of one kind, averaged in one call.

    JoinedCall = WaitingTable+                           # in the order of the model; see joined_tables

The tables of a call follow from the plan of a step, and not from the contents of a gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from zenc.runtime.call.call_queue import Work
from zenc.runtime.call.joined_tables import JoinedTables
from zenc.torch.bucket import Averaged, Future
from zenc.torch.strategy.active_rule import ActiveRule

JOINED_BYTES = 64 << 20
"""Most bytes of the tables, as they lie in memory, whose gradients share a call."""


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
    announced: Future = field(default_factory=lambda: torch.futures.Future(devices=[]))
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
