"""Each published ratio beside ours, and what would have to be otherwise for both to be the same.

A step takes the time of its computation, and that of all synchronisation after it. The time of the computation is
published for one model; for each of the others it is taken from one published ratio, which then says nothing more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from benchmarks.reproduce.claims import root
from benchmarks.reproduce.cost import best, by_gpu, cost, dense_layers, evenly
from benchmarks.reproduce.overlap import core, densest_sum
from benchmarks.reproduce.published import PUBLISHED, SPARSITY
from benchmarks.reproduce.workloads import GPUS, MACHINES, PRUNED, Workload, density_of, workload

NEAR = 0.10
FITTED = {"DeepFM": (100, "AllReduce"), "NMT": (100, "AllReduce"), **dict.fromkeys(PRUNED, (25, "AllReduce"))}
"""The ratio that the time of computation is taken from."""


@dataclass(frozen=True, slots=True)
class Row:
    """``published`` and ``ours``: by how much ``of`` is faster than ``over``; ``best`` is what zenc's ``name`` is."""

    quantity: str
    model: str
    gbits: int
    of: str
    over: str
    published: float
    where: str
    ours: float
    fitted: bool
    name: str
    best: float
    why: str

    @property
    def off(self) -> float:
        return self.ours / self.published - 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@lru_cache
def computation(model: str, dtype: str = "f32") -> float:
    """Seconds of a step without synchronisation."""
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
    """Seconds of a step that no scheme changes."""
    return computation(of.name, of.profile.dtype) + dense_layers(of, gbits)


def throughput(point: dict[str, Any], dtype: str = "f32") -> float:
    """By how much a step is shorter."""
    of, gbits = workload(point["model"], dtype), point.get("gbits", 25)
    fixed = rest(of, gbits)
    ours = fixed + cost(point.get("of", "Zen"), of, gbits).seconds
    return (fixed + cost(point["over"], of, gbits).seconds) / ours


def communication(point: dict[str, Any], dtype: str = "f32") -> float:
    """By how much the synchronisation of the sparse layers is shorter."""
    of = workload(point["model"], dtype)
    return cost(point["over"], of, 25).seconds / cost(point.get("of", "Zen"), of, 25).seconds


def rows() -> list[Row]:
    kinds = (("throughput", throughput), ("communication", communication), ("breakdown", throughput))
    return [row(kind, point, ratio(point)) for kind, ratio in kinds for point in PUBLISHED[kind]]


def row(quantity: str, point: dict[str, Any], found: float) -> Row:
    model, gbits, of = point["model"], point.get("gbits", 25), workload(point["model"])
    fixed = 0.0 if quantity == "communication" else rest(of, gbits)
    name, ours = best(of, gbits)
    above = (fixed + cost(point["over"], of, gbits).seconds) / (fixed + ours.seconds)
    fitted = quantity == "throughput" and FITTED.get(model) == (gbits, point["over"])
    why = "fitted" if fitted else explained(quantity, point, found)
    scheme = point.get("of", "Zen"), point["over"]
    return Row(quantity, model, gbits, *scheme, point["value"], point["where"], found, fitted, name, above, why)


def explained(quantity: str, point: dict[str, Any], found: float) -> str:
    """What stands behind the difference, as far as it can be computed."""
    if abs(found / point["value"] - 1) <= NEAR:
        return f"within {NEAR:.0%}"
    return " ".join(filter(None, (needed(quantity, point, found), reason(quantity, point))))


def needed(quantity: str, point: dict[str, Any], found: float) -> str:
    """At what rate a scheme would have to run for the published ratio."""
    of, gbits, wanted = workload(point["model"]), point.get("gbits", 25), point["value"]
    fixed = 0.0 if quantity == "communication" else rest(of, gbits)
    mine, other = point.get("of", "Zen"), point["over"]
    ours, theirs = cost(mine, of, gbits).seconds, cost(other, of, gbits).seconds
    if found < wanted:
        scheme, has, needs = other, theirs, wanted * (fixed + ours) - fixed
    else:
        scheme, has, needs = mine, ours, (fixed + theirs) / wanted - fixed
    return f"To match, {scheme} would take {needs * 1e3:.0f} ms, not {has * 1e3:.0f}: {has / needs:.0%} of the rate."


def reason(quantity: str, point: dict[str, Any]) -> str:
    """What is known of the model and the scheme beyond that; unexplained is called so."""
    model, over = point["model"], point["over"]
    if over == "OmniReduce":
        return of_ranges(point)
    if model in PRUNED:
        return of_pruned(quantity, point)
    if model == "DeepFM":
        return of_densest(point["value"])
    return "Unexplained: what software adds to the wire is not published."


def of_ranges(point: dict[str, Any]) -> str:
    """With other ranges for the ranks to sum: where the skew goes is not published."""
    of, gbits, over = workload(point["model"]), point["gbits"], point["over"]
    fixed, zen = rest(of, gbits), cost("Zen", of, gbits).seconds
    even = (fixed + evenly(over, of, gbits).seconds) / (fixed + zen)
    text = f"It depends on the skew: with evenly loaded ranges it is {even:.2f}"
    if not of.clustered:
        return f"{text}."
    return f"{text}, with ranges cut by GPU first {(fixed + by_gpu(over, of, gbits).seconds) / (fixed + zen):.2f}."


def of_densest(published: float) -> str:
    """Whether any overlap gives the ratio of DeepFM, which is limited by the sum inside a machine."""
    d, d8 = density_of("DeepFM"), SPARSITY["deepfm_density_of_8"]
    most = densest_sum(d, GPUS, d8, GPUS * MACHINES)
    least = 2 / (2 * d8 + most + 1 / 32)
    return (
        f"No overlap explains it: where 8 GPUs sum up to {d8:.1%}, 128 sum up to {most:.0%} at most, "
        f"so Zen moves {least:.2f} times less than dense at least, and not {published:.2f}."
    )


def of_pruned(quantity: str, point: dict[str, Any]) -> str:
    """Of an LLM: the same with values of 2 bytes; of SparCML, the most that it can move."""
    ratio = communication if quantity == "communication" else throughput
    half = f"With values of 2 bytes it is {ratio(point, 'bf16'):.2f}."
    if point["over"] != "SparCML":
        return f"{half} By volume the ratio is much the same for all LLMs, which have the same density. Unexplained."
    most, dense = 2 * (MACHINES - 1) * density_of(point["model"]), 2 * (MACHINES - 1) / MACHINES
    return (
        f"Published, SparCML is slower than dense; but even without any overlap it moves {most:.2f} M, dense "
        f"{dense:.3f} M, "
        f"with values of 4 bytes. {half}"
    )


def most() -> list[dict[str, Any]]:
    """The extremes of Figure 15: over all models."""
    found = []
    for point in PUBLISHED["communication_most"]:
        ratios = {}
        for model in PUBLISHED["workloads"]:
            of = workload(model)
            ratios[model] = cost(point["over"], of, 25).seconds / cost(point["of"], of, 25).seconds
        model = max(ratios, key=lambda name: ratios[name])
        found.append({**point, "ours": ratios[model], "model": model})
    return found


def first_eighth(published: float) -> float:
    """How much of the top 5 % is in the first eighth, if independent choices give the ratio of Figure 15."""

    def ratio(first: float) -> float:
        d = density_of("OPT-2.7B")
        return float(2 / (2 * d + core(d, 0.0, 1 << 20, first).union(MACHINES) + 1 / 32)) - published

    return root(ratio, 1 / 8, 0.95)
