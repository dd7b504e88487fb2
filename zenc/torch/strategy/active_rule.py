"""Rules at work: a loaded scheme and the parameters whose gradients it averages.

    ActiveRule = text  Collective  Served  alone  host?

A scheme that is attached without a strategy is one rule without a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from zenc.runtime.call_queue import Work
from zenc.runtime.collective import Collective
from zenc.runtime.compression.residual_store import TensorName
from zenc.runtime.stats import CallReport, CallStats
from zenc.torch.bucket import Averaged, PlacedGradient
from zenc.torch.parameters import Served, takes_dense_only
from zenc.torch.strategy.host_offload import HostOffload

_NOTHING = torch.empty(0)
NOWHERE = PlacedGradient(_NOTHING, _NOTHING, _NOTHING, 0)
"""The place of a gradient that is in no bucket yet."""


@dataclass(frozen=True, slots=True)
class ActiveRule:
    """A rule at work: ``collective`` averages what is ``served``.

    ``text`` is the rule as its author wrote it. ``alone``: each gradient goes in a call of its own, since a scheme is
    chosen for each. ``host`` takes the gradients of a GPU to the host and back.
    """

    text: str
    collective: Collective
    served: Served
    alone: bool = False
    host: HostOffload | None = None

    @property
    def takes_sparse(self) -> bool:
        """Whether sparse gradients can go through its scheme."""
        return not takes_dense_only(self.collective.artifact.plan)

    @property
    def keeps(self) -> bool:
        """Whether something is kept of a gradient from call to call."""
        return self.collective.artifact.plan.feedback is not None or self.collective.keeper is not None

    @property
    def is_lossy(self) -> bool:
        """Whether a sum depends on what stands beside it in a call."""
        return self.collective.artifact.plan.is_lossy or self.collective.keeper is not None

    def average(
        self, gradient: torch.Tensor, name: TensorName, rows: bool, counted: Callable[[Work], None]
    ) -> tuple[Work, Averaged]:
        """Queue the average of ``gradient``, of any shape, over the ranks; the handle of the call, and its end.

        ``counted`` is told of the handle before anything that waits for the end goes on.
        """
        if self.host is not None and gradient.is_cuda:
            return self.host.average(self.collective, gradient, name, rows, counted)
        work = self.collective.all_reduce(gradient, "mean", async_op=True, rows=rows, name=name)
        work.then(lambda _: counted(work))
        return work, work.get_future()


@dataclass(frozen=True, slots=True)
class GradientWay:
    """The way of the dense gradient of a parameter: by which ``rule``, and by rows or together with others.

    ``place``: of the parameter among those of the rule, as they stand in the model. ``piece``: its place in a bucket.
    """

    rule: ActiveRule
    name: str
    by_rows: bool
    place: int
    piece: PlacedGradient = NOWHERE

    def at(self, piece: PlacedGradient) -> GradientWay:
        """The same of a gradient that has come."""
        return replace(self, piece=piece)


def ways_of(rule: ActiveRule) -> Iterator[tuple[torch.Tensor, GradientWay]]:
    """Each parameter, of any shape, with a dense gradient that ``rule`` is about, and its way."""
    for by_rows, parameters in ((True, rule.served.rows), (False, rule.served.together)):
        for place, (name, parameter) in enumerate(parameters.items()):
            yield parameter, GradientWay(rule, name, by_rows, place)


def calls_of(rules: Sequence[ActiveRule], ways: Sequence[GradientWay]) -> Iterator[Sequence[GradientWay]]:
    """The gradients of each call of a group: those of a rule, in the order of ``rules``, of one dtype and device.

    Under a lossy scheme they stand in the order of the model, the same before and after DDP has rebuilt its buckets;
    else in that of ``ways``, which saves a copy.
    """
    calls: dict[tuple[object, ...], list[GradientWay]] = {}
    for way in ways:
        own = (way.place,) if way.rule.alone else ()
        calls.setdefault((id(way.rule), way.piece.buffer.dtype, way.piece.buffer.device, *own), []).append(way)
    for rule in rules:
        for key, call in calls.items():
            if key[0] == id(rule):
                yield sorted(call, key=lambda way: way.place) if rule.is_lossy else call


def calls_as(before: Sequence[Sequence[str]], ways: Sequence[GradientWay]) -> list[list[GradientWay]]:
    """The gradients of each call ``before``, by names; none if they are not just those of ``ways``, or mix kinds."""
    there = {way.name: way for way in ways}
    if sorted(name for call in before for name in call) != sorted(there):
        return []
    calls = [[there[name] for name in call] for call in before]
    kinds = [{(id(way.rule), way.piece.buffer.dtype, way.piece.buffer.device) for way in call} for call in calls]
    return calls if all(len(kind) == 1 for kind in kinds) else []


def report_of(counted: CallStats | None, rule: ActiveRule) -> CallReport:
    """What a call of ``rule`` has counted, with rule and scheme where it is of a strategy."""
    report = counted.to_json() if counted else {}
    if rule.text:
        chosen = report.get("choice")
        report["rule"] = rule.text
        report["scheme"] = chosen["scheme"] if chosen else rule.collective.artifact.plan.scheme
    return report
