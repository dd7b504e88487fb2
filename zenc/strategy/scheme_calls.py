"""Calls of schemes in a step, as the run time makes them: for each group one for each scheme, one after another.

    SchemeTable = plans x network -> seconds of a call of any size        # predicted at powers of two, linear between
    StepCalls   = a step, groups, a scheme for each tensor -> Timeline of calls

The gradients of a group that have one scheme go in one call, which begins when the last gradient of the group is ready.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Plan
from zenc.simulator.calibration import Calibration
from zenc.simulator.network import Network
from zenc.simulator.predict import predict_on
from zenc.strategy.replay import Operations
from zenc.strategy.step import TrainingStep
from zenc.strategy.timeline import Floats, Resource, Timeline, after_gap, matrices


class SchemeTable:
    """Predicted seconds of calls of ``plans``, by their names, for dense float32 gradients on ``network``."""

    def __init__(self, plans: Mapping[str, Plan], network: Network, calibration: Calibration) -> None:
        self.plans, self.network, self.calibration = dict(plans), network, calibration
        self.fixed: dict[str, tuple[float, float]] = {}
        self.predicted = 0
        self._kept: dict[tuple[str, int], tuple[float, float]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Those that lose nothing first."""
        return tuple(sorted(self.plans, key=lambda name: self.plans[name].is_lossy))

    def seconds(self, scheme: str, numel: int) -> float:
        """Of a call for ``numel`` values."""
        return self._between(scheme, numel)[0]

    def computing(self, scheme: str, numel: int) -> float:
        """Of these, what the busiest rank computes: selections, codes, sums."""
        return self._between(scheme, numel)[1]

    def fix(self, label: str, plan: Plan, gradient: Profile) -> None:
        """Give calls called ``label`` what one of ``plan`` takes for ``gradient``, whatever their size."""
        found = predict_on(plan, gradient, self.network, self.calibration)
        self.predicted += 1
        self.fixed[label] = found.seconds, found.kernels

    def _between(self, scheme: str, numel: int) -> tuple[float, float]:
        if scheme in self.fixed:
            return self.fixed[scheme]
        low = 1 << max(numel.bit_length() - 1, 0)
        before, after = self._at(scheme, low), self._at(scheme, 2 * low)
        share = numel / low - 1
        return before[0] + share * (after[0] - before[0]), before[1] + share * (after[1] - before[1])

    def _at(self, scheme: str, numel: int) -> tuple[float, float]:
        if (scheme, numel) not in self._kept:
            self.predicted += 1
            gradient = uniform(1.0, numel, 1, "f32")
            found = predict_on(self.plans[scheme], gradient, self.network, self.calibration)
            self._kept[scheme, numel] = found.seconds, found.kernels
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
            self._sums.append(sums)
        self._gaps = [sum(tensor.gap for tensor in step.tensors[s:e]) for s, e in pairwise(self.cuts)]
        self._timeline = Timeline(after_gap(_of_calls(list(map(self._taken, self._sums))), np.array(self._gaps)))

    @property
    def seconds(self) -> float:
        """Of the backward pass with all calls, and the forward pass before it."""
        return self.step.forward + self._timeline.seconds

    def with_each(self, tensor: int, schemes: Sequence[str]) -> Floats:
        """``seconds`` with each of ``schemes`` for the tensor at an index, [k]."""
        group = self._group(tensor)
        taken = [self._taken(self._changed(group, tensor, scheme)) for scheme in schemes]
        made = after_gap(_of_calls(taken), self._gaps[group])
        return np.asarray(self.step.forward + self._timeline.with_each(group, made))

    def change(self, tensor: int, scheme: str) -> None:
        """Give the tensor at an index another scheme."""
        group = self._group(tensor)
        self._sums[group] = self._changed(group, tensor, scheme)
        self.schemes[tensor] = scheme
        self._timeline.change(group, after_gap(_of_calls([self._taken(self._sums[group])]), self._gaps[group])[0])

    def operations(self, computing: bool = True) -> list[Operations]:
        """The calls of each group, for a replay; without ``computing`` as if the ranks computed in no time."""
        found: list[Operations] = []
        for sums in self._sums:
            calls = [
                self.table.seconds(*each) - (0.0 if computing else self.table.computing(*each)) for each in sums.items()
            ]
            found.append([(Resource.ACROSS, seconds) for seconds in calls])
        return found

    def called(self, group: int) -> list[str]:
        """The schemes that the calls of a group are of."""
        return list(self._sums[group])

    def _group(self, tensor: int) -> int:
        return bisect_right(self.cuts, tensor) - 1

    def _taken(self, sums: Mapping[str, int]) -> float:
        return sum(self.table.seconds(scheme, numel) for scheme, numel in sums.items())

    def _changed(self, group: int, tensor: int, scheme: str) -> dict[str, int]:
        sums, numel = dict(self._sums[group]), self.step.tensors[tensor].numel
        sums[self.schemes[tensor]] -= numel
        if not sums[self.schemes[tensor]]:
            del sums[self.schemes[tensor]]
        sums[scheme] = sums.get(scheme, 0) + numel
        return sums


def _of_calls(seconds: Sequence[float]) -> Floats:
    """The matrices of groups whose calls take so many ``seconds``, one after another in one queue."""
    return matrices(np.full((len(seconds), 1), int(Resource.ACROSS)), np.array(seconds)[:, None])
