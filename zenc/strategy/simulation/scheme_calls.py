"""Calls of schemes in a step, as the run time makes them: for each group one for each scheme, one after another.

    SchemeTable = plans x device x network -> seconds of a call of any size     # at powers of two, linear between
    StepCalls   = a step, groups, a scheme for each tensor -> Timeline of calls

The gradients of a group that have one scheme go in one call, which begins when the last gradient of the group is ready.
Where a rank has one processor at most, the computation of a call is not beside the backward pass, but stops it. Token
buckets of links are full when the first call of a step begins; a later one finds them filled during its computation.

A call ``on host`` waits for a copy of the gradient from the GPU, and a copy back follows it. The run time has kernels
of the host beside calls of GPUs; here calls follow one another, which errs against the host.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np

from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Plan
from zenc.simulator.calibration import Calibration
from zenc.simulator.network import Network
from zenc.simulator.predict import predict_on
from zenc.strategy.simulation.replay import Operations
from zenc.strategy.simulation.step import TrainingStep
from zenc.strategy.simulation.timeline import NO_OPERATION, Floats, Resource, Timeline, after_gap, matrices

ON_HOST = " on host"
"""The end of the name of a scheme whose calls are on the host, as the language has it."""
COPIES = 25e9
"""Bytes a second between a GPU and its host where nobody measured them: PCIe 4 with 16 lanes carries 31.5e9 at most."""


@dataclass(frozen=True, slots=True)
class CallCosts:
    """Seconds of a call: as the ``first`` of its step, as a ``later`` one, and of the busiest rank's computation.

    ``computed`` includes the time of training's own work for the call; ``copied`` seconds go before it, and after it.
    """

    first: float
    later: float
    computed: float
    copied: float = 0.0

    def toward(self, other: CallCosts, share: float) -> CallCosts:
        """Return the costs of a call that is by ``share`` of the way to ``other``."""
        return CallCosts(*(one + share * (two - one) for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def least(self) -> float:
        """The seconds of the call with its copies, as the quicker of the first and a later one."""
        return min(self.first, self.later) + 2 * self.copied


class SchemeTable:
    """Predicted seconds of calls of ``plans``, by their names, for dense float32 gradients on ``network``.

    ``host``: the calibration of the processors beside GPUs, with which each plan is there a second time, ON_HOST.
    """

    def __init__(
        self, plans: Mapping[str, Plan], network: Network, calibration: Calibration, host: Calibration | None = None
    ) -> None:
        self.plans, self.network, self.calibration, self.host = dict(plans), network, calibration, host
        if host:
            self.plans |= {name + ON_HOST: plan for name, plan in plans.items()}
        self.fixed: dict[str, CallCosts] = {}
        self.predicted = 0
        self.slow = calibration.slowdown(network.size)
        self.shared = calibration.cores is not None and network.size >= calibration.cores
        """True where a rank has one processor at most, for its backward pass and its calls."""
        self._kept: dict[tuple[str, int], CallCosts] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the plans, lossless ones first."""
        return tuple(sorted(self.plans, key=lambda name: self.plans[name].is_lossy))

    def costs(self, scheme: str, numel: int) -> CallCosts:
        """Return the costs of a call for ``numel`` values, as a training step makes it."""
        if scheme in self.fixed:
            return self.fixed[scheme]
        low = 1 << max(numel.bit_length() - 1, 0)
        return self._at(scheme, low).toward(self._at(scheme, 2 * low), numel / low - 1)

    def fix(self, label: str, plan: Plan, gradient: Profile) -> None:
        """Give calls called ``label`` the costs of one of ``plan`` for ``gradient``, whatever their size."""
        self.predicted += 1
        self.fixed[label] = self._in_training(plan, gradient, label.endswith(ON_HOST))

    @property
    def host_notes(self) -> tuple[str, ...]:
        """Remarks for a reader of predictions about the host; none without it."""
        guess = f"copies between a GPU and its host at {COPIES / 1e9:.0f} GB/s, which nobody measured"
        own = self.host and (self.host.note, "" if self.calibration.copies else guess)
        return tuple(filter(None, own or ()))

    def hosted_in_vain(self, least: int, most: int) -> tuple[str, ...]:
        """Return the schemes that the host calls no sooner than the GPU, for ``least`` values to ``most``."""
        sizes = [1 << power for power in range(max(least.bit_length() - 1, 0), most.bit_length() + 1)]
        hosted = [name for name in self.plans if name.endswith(ON_HOST)]

        def in_vain(name: str) -> bool:
            both = ((self._at(name, size), self._at(name.removesuffix(ON_HOST), size)) for size in sizes)
            return all(there.least >= here.least for there, here in both)

        return tuple(filter(in_vain, hosted))

    def _in_training(self, plan: Plan, gradient: Profile, on_host: bool) -> CallCosts:
        """Return the costs of a call in training; token buckets fill up between its steps."""
        by = self.host if on_host and self.host else self.calibration
        found = predict_on(plan, gradient, self.network, by)
        bytes = gradient.units * gradient.unit_bytes * gradient.density
        more = self.slow * by.in_training(bytes, found.messages / found.size)
        copied = bytes / (self.calibration.copies or COPIES) if on_host else 0.0
        if not by.burst:
            return CallCosts(found.seconds + more, found.seconds + more, found.kernels + more, copied)
        idle = more / 2 + (found.steps - 1) * by.step
        first = predict_on(plan, gradient, self.network, by.filled(idle)).seconds
        computed = found.kernels + more
        later = predict_on(plan, gradient, self.network, by.refilled(computed if self.shared else idle)).seconds
        return CallCosts(first + more, later + more, computed, copied)

    def _at(self, scheme: str, numel: int) -> CallCosts:
        if (scheme, numel) not in self._kept:
            self.predicted += 1
            gradient, on_host = uniform(1.0, numel, 1, "f32"), scheme.endswith(ON_HOST)
            self._kept[scheme, numel] = self._in_training(self.plans[scheme], gradient, on_host)
        return self._kept[scheme, numel]


class StepCalls:
    """The calls of ``step`` in groups that end before ``ends``, with the scheme of each tensor, which may change."""

    def __init__(self, step: TrainingStep, ends: Sequence[int], table: SchemeTable, schemes: Sequence[str]) -> None:
        self.step, self.table, self.schemes = step, table, list(schemes)
        self.cuts = [0, *ends, len(step.tensors)]
        self._sums: list[dict[str, int]] = []
        for start, end in pairwise(self.cuts):
            sums: dict[str, int] = {}
            for tensor, scheme in zip(step.tensors[start:end], self.schemes[start:end], strict=True):
                sums[scheme] = sums.get(scheme, 0) + tensor.numel
            self._sums.append({scheme: numel for scheme, numel in sums.items() if numel})
        self._gaps = [sum(tensor.gap for tensor in step.tensors[s:e]) for s, e in pairwise(self.cuts)]
        self._timeline = Timeline(after_gap(_matrices(self.operations()), np.array(self._gaps)))

    @property
    def seconds(self) -> float:
        """The seconds of the backward pass with all calls, and the forward pass before it."""
        return self.step.forward + self._timeline.seconds

    def with_each(self, tensor: int, schemes: Sequence[str]) -> Floats:
        """Return ``seconds`` with each of ``schemes`` for the tensor at an index, [k]."""
        group = self._group(tensor)
        tried = [self._operations(group, self._changed(group, tensor, scheme)) for scheme in schemes]
        made = after_gap(_matrices(tried), self._gaps[group])
        return np.asarray(self.step.forward + self._timeline.with_each(group, made))

    def change(self, tensor: int, scheme: str) -> None:
        """Give the tensor at an index another scheme."""
        group = self._group(tensor)
        self._sums[group] = self._changed(group, tensor, scheme)
        self.schemes[tensor] = scheme
        made = _matrices([self._operations(group, self._sums[group])])
        self._timeline.change(group, after_gap(made, self._gaps[group])[0])

    def operations(self, computing: bool = True) -> list[Operations]:
        """Return the calls of each group, for a replay; without ``computing`` as if the ranks computed in no time."""
        return [self._operations(group, sums, computing) for group, sums in enumerate(self._sums)]

    def called(self, group: int) -> list[str]:
        """Return the schemes of a group's calls."""
        return list(self._sums[group])

    def _group(self, tensor: int) -> int:
        return bisect_right(self.cuts, tensor) - 1

    def _operations(self, group: int, sums: Mapping[str, int], computing: bool = True) -> Operations:
        """Return one call after another; on a shared processor their computation comes first, and stops the pass."""
        costs = [self.table.costs(*each) for each in sums.items()]
        calls = [each.later if group or at else each.first for at, each in enumerate(costs)]
        if computing and not self.table.shared:
            there = [[(Resource.STREAM, each.copied)] if each.copied else [] for each in costs]
            return [op for way, call in zip(there, calls, strict=True) for op in (*way, (Resource.ACROSS, call), *way)]
        rest = [(Resource.ACROSS, max(0.0, call - each.computed)) for call, each in zip(calls, costs, strict=True)]
        return [(Resource.BACKWARD, sum(each.computed for each in costs)), *rest] if computing else rest

    def _changed(self, group: int, tensor: int, scheme: str) -> dict[str, int]:
        sums, numel = dict(self._sums[group]), self.step.tensors[tensor].numel
        if numel:  # an empty tensor takes part in no call
            sums[self.schemes[tensor]] -= numel
            if not sums[self.schemes[tensor]]:
                del sums[self.schemes[tensor]]
            sums[scheme] = sums.get(scheme, 0) + numel
        return sums


def _matrices(groups: Sequence[Operations]) -> Floats:
    """Return the matrices of groups with these operations, one after another, [k, 6, 6]."""
    shape = len(groups), max(map(len, groups))
    resources, seconds = np.full(shape, NO_OPERATION), np.zeros(shape)
    for row, operations in enumerate(groups):
        for column, (resource, took) in enumerate(operations):
            resources[row, column], seconds[row, column] = resource, took
    return matrices(resources, seconds)
