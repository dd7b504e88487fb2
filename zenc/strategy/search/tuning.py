"""The search for a strategy of a step: groups, and a scheme for each tensor, by Espresso's Algorithm 1.

It starts from each scheme for all tensors, so its result is never worse than any of these; and goes by size, with
passes until nothing is better. Groups are searched as MergeComp does, each time with the best schemes for the groups.
At last lossy schemes give way again, small tensors first, as long as the step stays within a share of the best, so that
nothing is lost without a gain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zenc.strategy.merging import fused, search_groups
from zenc.strategy.simulation.replay import replay
from zenc.strategy.simulation.scheme_calls import SchemeTable, StepCalls
from zenc.strategy.simulation.step import TrainingStep

PASSES = 3
"""Most passes over all tensors."""
BETTER = 1 - 1e-9
"""A share of the time; a step that takes a greater one is no better."""
BUCKET = 25 << 20
"""Bytes of DDP's buckets by default; the first one takes 1 MiB."""
FIRST_BUCKET = 1 << 20
BUCKETS = "DDP's buckets"
WITHIN = 1.01
"""The ratio to the best seconds up to which a step with less loss is preferred."""


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """Groups that end before ``ends``, a scheme for each tensor, and the seconds of the step by event simulation.

    ``exposed``: those after the backward pass has ended; ``exposed_computing``: those of them that would vanish if
    selections, codes and sums took no time.
    """

    ends: tuple[int, ...]
    schemes: tuple[str, ...]
    seconds: float
    exposed: float
    exposed_computing: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, without the scheme of each tensor; seconds."""
        return {
            "ends": list(self.ends),
            "seconds": self.seconds,
            "exposed": self.exposed,
            "exposed_computing": self.exposed_computing,
        }


@dataclass(frozen=True, slots=True)
class StrategySearch:
    """The ``best`` strategy found; ``others``: name -> one compared with it; ``tried`` steps were evaluated.

    ``pruned``: the schemes on the host that were not tried, since calls there are never sooner than on the GPU.
    """

    step: TrainingStep
    best: StrategyResult
    others: dict[str, StrategyResult]
    tried: int
    pruned: tuple[str, ...] = ()


def buckets(step: TrainingStep, bytes: int = BUCKET) -> tuple[int, ...]:
    """Return the ends of DDP's buckets: each takes gradients until it holds ``bytes``, the first one until 1 MiB."""
    ends, filled, limit = [], 0, min(FIRST_BUCKET, bytes)
    for at, tensor in enumerate(step.tensors):
        filled += 4 * tensor.numel
        if filled >= limit:
            ends.append(at + 1)
            filled, limit = 0, bytes
    return tuple(end for end in ends if end < len(step.tensors))


def simulated(step: TrainingStep, ends: Sequence[int], table: SchemeTable, schemes: Sequence[str]) -> StrategyResult:
    """Return the step with these groups and schemes, event by event."""
    calls, merged = StepCalls(step, ends, table, schemes), step.merged(ends)
    whole, without = (replay(merged, calls.operations(computing=computing)) for computing in (True, False))
    backward = step.computing - step.forward
    exposed = max(0.0, whole.seconds - backward)
    seconds = step.forward + max(backward, whole.seconds)
    return StrategyResult(tuple(ends), tuple(schemes), seconds, exposed, max(0.0, whole.seconds - without.seconds))


def search(
    step: TrainingStep,
    table: SchemeTable,
    fixed: Mapping[int, str] | None = None,
    most_groups: int = 2,
    bucket: int = BUCKET,
    progress: Callable[[str], None] = lambda _: None,
) -> StrategySearch:
    """Return the best strategy of up to ``most_groups`` groups, of DDP's buckets, and of fused buffers.

    ``fixed``: index of a tensor -> the call of ``table.fixed`` that it has in any case.
    """
    pruned = table.hosted_in_vain(min(each.numel for each in step.tensors), step.numel)
    looked = _Looked(step, table, fixed or {}, [name for name in table.names if name not in pruned])
    groupings = {BUCKETS: buckets(step, bucket)}
    for size in (1 << 20, 4 << 20, 16 << 20, 64 << 20):
        groupings[f"buffers of {size >> 20} MiB"] = fused(step, size)
    progress("groups")
    merged = search_groups(len(step.tensors), lambda ends: looked.best(ends)[0], most_groups)
    groupings["merged"] = merged.ends
    found = {}
    for name, ends in groupings.items():
        progress(name)
        found[name] = looked.result(ends)
    others = {f"{name} for all": looked.uniform(groupings[BUCKETS], name) for name in looked.names}
    others |= {f"{name} for all, in two groups": looked.merged(name) for name in looked.names}
    best = min((*found.values(), *others.values()), key=lambda each: each.seconds)
    limit = best.seconds * WITHIN
    spared = looked.sparing(best.ends, best.schemes, limit)
    near = [each for each in (*found.values(), *others.values(), spared, best) if each.seconds <= limit]
    best = min(near, key=lambda each: (looked.lossy(each), each.seconds))
    return StrategySearch(step, best, {**found, **others}, looked.tried, pruned)


class _Looked:
    """Evaluations of a step, of whose free tensors each has a scheme of ``names``."""

    def __init__(self, step: TrainingStep, table: SchemeTable, fixed: Mapping[int, str], names: Sequence[str]) -> None:
        self.step, self.table, self.tried, self.fixed, self.names = step, table, 0, fixed, names
        free = [at for at in range(len(step.tensors)) if at not in fixed]
        self.order = sorted(free, key=lambda at: (-step.tensors[at].numel, -at))

    def best(self, ends: Sequence[int]) -> tuple[float, tuple[str, ...]]:
        """Return the least seconds of the timeline, and the schemes, from the best of all starts."""
        starts = [self._from(ends, name) for name in self.names]
        return min(starts, key=lambda found: found[0])

    def sparing(self, ends: Sequence[int], schemes: Sequence[str], limit: float) -> StrategyResult:
        """Return a step with lossless schemes where it still takes at most ``limit`` seconds, small tensors first."""
        plans = self.table.plans
        lossless = [name for name in self.names if not plans[name].is_lossy]
        calls = StepCalls(self.step, ends, self.table, schemes)
        for at in reversed(self.order) if lossless else ():
            if plans[calls.schemes[at]].is_lossy:
                seconds = calls.with_each(at, lossless)
                self.tried += len(lossless)
                if seconds.min() <= limit:
                    calls.change(at, lossless[int(seconds.argmin())])
        return simulated(self.step, ends, self.table, calls.schemes)

    def lossy(self, of: StrategyResult) -> int:
        """Return the number of values of tensors whose schemes lose something."""
        plans, tensors = self.table.plans, self.step.tensors
        named = zip(tensors, of.schemes, strict=True)
        return sum(t.numel for t, name in named if name in plans and plans[name].is_lossy)

    def result(self, ends: Sequence[int]) -> StrategyResult:
        return simulated(self.step, ends, self.table, self.best(ends)[1])

    def uniform(self, ends: Sequence[int], name: str) -> StrategyResult:
        return simulated(self.step, ends, self.table, self._all(name))

    def merged(self, name: str) -> StrategyResult:
        """Return MergeComp's two groups, with one scheme for all."""
        found = search_groups(len(self.step.tensors), lambda ends: self.uniform(ends, name).seconds, least_gain=0.0)
        self.tried += found.asked
        return self.uniform(found.ends, name)

    def _all(self, name: str) -> list[str]:
        return [self.fixed.get(at, name) for at in range(len(self.step.tensors))]

    def _from(self, ends: Sequence[int], start: str) -> tuple[float, tuple[str, ...]]:
        calls = StepCalls(self.step, ends, self.table, self._all(start))
        for _ in range(PASSES):
            before = calls.seconds
            for at in self.order:
                seconds = calls.with_each(at, self.names)
                self.tried += len(self.names)
                least = int(seconds.argmin())
                if seconds[least] < calls.seconds * BETTER:
                    calls.change(at, self.names[least])
            if calls.seconds >= before * BETTER:
                break
        return calls.seconds, tuple(calls.schemes)
