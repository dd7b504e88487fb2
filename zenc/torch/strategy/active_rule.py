"""Rules at work: a loaded scheme and the parameters whose gradients it averages.

    ActiveRule = text  Collective  Served  alone  host?

A scheme that is attached without a strategy is one rule without a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from zenc.runtime.announced.announcement import Announcement
from zenc.runtime.call.call_queue import Work
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.stats import CallReport, CallStats
from zenc.runtime.lossy.residual_store import TensorName
from zenc.torch.bucket import Averaged, PlacedGradient
from zenc.torch.parameters import Served, takes_dense_only
from zenc.torch.strategy.host_offload import HostOffload


@dataclass(frozen=True, slots=True)
class ActiveRule:
    """A rule at work: ``collective`` averages the ``served`` parameters.

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
        """Return whether sparse gradients can go through the scheme."""
        return not takes_dense_only(self.collective.artifact.plan)

    @property
    def keeps(self) -> bool:
        """Return whether a state of gradients is kept from call to call."""
        return self.collective.artifact.plan.feedback is not None or self.collective.keeper is not None

    @property
    def is_lossy(self) -> bool:
        """Return whether a sum depends on the other values of its call."""
        return self.collective.artifact.plan.is_lossy or self.collective.keeper is not None

    def average(
        self,
        gradient: torch.Tensor,
        name: TensorName,
        rows: bool,
        counted: Callable[[Work], None],
        announced: Announcement | None = None,
    ) -> tuple[Work, Averaged]:
        """Queue the average of ``gradient``, of any shape, over the ranks; return the handle of the call, and its end.

        ``counted`` is called with the handle before anything that waits for the end goes on. ``announced``: all ranks'
        announcement of it, on the CPU.
        """
        if self.host is not None and gradient.is_cuda:
            return self.host.average(self.collective, gradient, name, rows, counted)
        work = self.collective.all_reduce(gradient, "mean", async_op=True, rows=rows, name=name, announced=announced)
        work.then(lambda _: counted(work))
        return work, work.get_future()


@dataclass(frozen=True, slots=True)
class GradientWay:
    """The way of the dense gradient of a parameter: its ``rule``, and by rows or together with others.

    ``place``: the parameter's among those of the rule, in the order of the model.
    """

    rule: ActiveRule
    name: str
    by_rows: bool
    place: int


class ArrivedGradient(NamedTuple):
    """The gradient of a parameter in a bucket, and its way."""

    way: GradientWay
    piece: PlacedGradient


def ways_of(rule: ActiveRule) -> Iterator[tuple[torch.Tensor, GradientWay]]:
    """Yield each parameter, of any shape, with a dense gradient that ``rule`` covers, and its way."""
    for by_rows, parameters in ((True, rule.served.rows), (False, rule.served.together)):
        for place, (name, parameter) in enumerate(parameters.items()):
            yield parameter, GradientWay(rule, name, by_rows, place)


def calls_of(rules: Sequence[ActiveRule], arrived: Sequence[ArrivedGradient]) -> Iterator[list[ArrivedGradient]]:
    """Yield the gradients of each call of a group: those of a rule, in the order of ``rules``, of one dtype and device.

    Under a lossy scheme they stand in the order of the model, the same before and after DDP has rebuilt its buckets;
    otherwise as they have ``arrived``, which saves a copy.
    """
    by_rule: dict[int, list[ArrivedGradient]] = {}
    for each in arrived:
        by_rule.setdefault(id(each.way.rule), []).append(each)
    for rule in rules:
        own = by_rule.get(id(rule), [])
        if rule.is_lossy:
            own.sort(key=lambda each: each.way.place)
        if rule.alone:
            yield from ([each] for each in own)
            continue
        kinds: dict[object, list[ArrivedGradient]] = {}
        for each in own:
            kinds.setdefault((each.piece.buffer.dtype, each.piece.buffer.device), []).append(each)
        yield from kinds.values()


def calls_as(before: Sequence[Sequence[str]], arrived: Sequence[ArrivedGradient]) -> list[list[ArrivedGradient]]:
    """Return the gradients of each call ``before``, by names; empty if they are not those ``arrived``, or mix kinds."""
    there = {each.way.name: each for each in arrived} if before else {}
    if not before or sorted(name for call in before for name in call) != sorted(there):
        return []
    calls = [[there[name] for name in call] for call in before]
    kinds = [{(id(way.rule), piece.buffer.dtype, piece.buffer.device) for way, piece in call} for call in calls]
    return calls if all(len(kind) == 1 for kind in kinds) else []


def report_of(counted: CallStats | None, rule: ActiveRule) -> CallReport:
    """Return the statistics of a call of ``rule``, with rule and scheme under a strategy."""
    report = counted.to_json() if counted else {}
    if rule.text:
        chosen = report.get("choice")
        report["rule"] = rule.text
        report["scheme"] = chosen["scheme"] if chosen else rule.collective.artifact.plan.scheme
    return report
