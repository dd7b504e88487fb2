"""Seconds of steps, and the ratios of these.

A step takes the time of its computation, and that of all synchronisation after it. The time of the computation is
published for one model; for each of the others it is taken from one published ratio, which then says nothing more.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from benchmarks.reproduce import PUBLISHED
from benchmarks.reproduce.cost import cost, dense_layers
from benchmarks.reproduce.workloads import PRUNED, Workload, workload

FITTED = {"DeepFM": (100, "AllReduce"), "NMT": (100, "AllReduce"), **dict.fromkeys(PRUNED, (25, "AllReduce"))}
"""Each model's published ratio, by Gbit/s and scheme, from which its time of computation is taken."""


@lru_cache
def computation(model: str, dtype: str = "f32") -> float:
    """Return seconds of a step without synchronisation."""
    if model == "LSTM":
        return float(PUBLISHED["lstm_iteration_seconds"]["value"])
    gbits, over = FITTED[model]
    (ratio,) = (
        each["value"]
        for each in PUBLISHED["throughput"]
        if (each["model"], each["gbits"], each["over"]) == (model, gbits, over)
    )
    of = workload(model, dtype)
    theirs, zen = cost(over, of, gbits).seconds, cost("Zen", of, gbits).seconds
    return float((theirs - ratio * zen) / (ratio - 1)) - dense_layers(of, gbits)


def rest(of: Workload, gbits: int) -> float:
    """Return seconds of a step that no scheme changes."""
    return computation(of.name, of.profile.dtype) + dense_layers(of, gbits)


def throughput(point: dict[str, Any], dtype: str = "f32") -> float:
    """Return the time of a step by the scheme ``over`` of ``point``, over that by the scheme ``of``, or Zen."""
    of, gbits = workload(point["model"], dtype), point.get("gbits", 25)
    fixed = rest(of, gbits)
    ours = fixed + cost(point.get("of", "Zen"), of, gbits).seconds
    return (fixed + cost(point["over"], of, gbits).seconds) / ours


def communication(point: dict[str, Any], dtype: str = "f32") -> float:
    """Return the time to sum the sparse layers by the scheme ``over`` of ``point``, over that by ``of``, or Zen."""
    of = workload(point["model"], dtype)
    return cost(point["over"], of, 25).seconds / cost(point.get("of", "Zen"), of, 25).seconds
