"""Each published ratio beside ours, and beside that of zenc's best scheme.

A step takes the time of its computation, and that of all synchronisation after it. The time of the computation is
published for one model; for each of the others it is taken from one published ratio, which then says nothing more.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from benchmarks.reproduce import PUBLISHED, SPARSITY
from benchmarks.reproduce.cost import best, by_gpu, cost, dense_layers, evenly, hashing, inside
from benchmarks.reproduce.overlap import core, densest_sum, root, words, words_with
from benchmarks.reproduce.workloads import GPUS, MACHINES, PRUNED, Workload, density_of, rows_of, workload
from zenc.gradients.profile import Profile

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


@dataclass(frozen=True, slots=True)
class Row:
    """A published ratio: how many times faster ``of`` is than ``over``, in ``ours`` as computed.

    ``best`` is the same ratio for zenc's best scheme, ``name``.
    """

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


def most() -> list[dict[str, Any]]:
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
    """Return the share of the top 5 % in the first eighth, if independent choices give the ratio of Figure 15."""

    def ratio(first: float) -> float:
        d = density_of("OPT-2.7B")
        return float(2 / (2 * d + core(d, 0.0, 1 << 20, first).union(MACHINES) + 1 / 32)) - published

    return root(ratio, 1 / 8, 0.95)


MOST = GPUS * MACHINES
NEAR = 0.10
"""Differences below this are not explained."""


def explained(quantity: str, point: dict[str, Any], found: float) -> str:
    """Return the reason of the difference, as far as it can be computed."""
    if abs(found / point["value"] - 1) <= NEAR:
        return f"within {NEAR:.0%}"
    return " ".join(filter(None, (needed(quantity, point, found), reason(quantity, point))))


def needed(quantity: str, point: dict[str, Any], found: float) -> str:
    """Return the rate at which a scheme would have to run for the published ratio."""
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
    """Return further knowledge of the model and the scheme; unexplained cases are called so."""
    model, over = point["model"], point["over"]
    if over == "OmniReduce":
        return of_ranges(point)
    if model in PRUNED:
        return of_pruned(quantity, point)
    if model == "DeepFM":
        return of_densest(point["value"])
    if over == "AllReduce" and "of" not in point:
        return of_overlap(point)
    return "Unexplained: what software adds to the wire is not published."


def of_overlap(point: dict[str, Any]) -> str:
    """Return the overlap that ranks need for the published ratio, where gradients are words."""
    of, gbits, density = workload(point["model"]), point.get("gbits", 25), density_of(point["model"])
    fixed = rest(of, gbits)
    wanted = (fixed + cost(point["over"], of, gbits).seconds) / point["value"] - fixed - inside(of) - hashing(of)
    volume = wanted * gbits * 1e9 / 8 / (of.values * 4) * MACHINES / (MACHINES - 1)
    needs = words(density, words_with(density, rows_of(of.name), volume_of_zen, volume), rows_of(of.name))
    now, then = (f"{float(each.densification(MOST)):.1f}" for each in (of.profile, needs))
    skew, least = needs.skewness(MOST), SPARSITY["lstm_skewness_at_128"]
    return (
        f"Or ranks overlap less: with gamma^{MOST} = {then}, not {now}, it is {point['value']:.2f}. The "
        f"skewness of {MOST} ranges is {skew:.0f} then; above {least:g} is published."
    )


def volume_of_zen(profile: Profile) -> float:
    """Return the bytes a machine receives over the tensor and (m - 1) / m, of m machines."""
    return 2 * float(profile.union(GPUS)) + float(profile.union(MOST)) + 1 / 32


def of_ranges(point: dict[str, Any]) -> str:
    """Return the ratio with other ranges for the ranks to sum: the place of the skew is not published."""
    of, gbits, over = workload(point["model"]), point.get("gbits", 25), point["over"]
    fixed, zen = rest(of, gbits), cost("Zen", of, gbits).seconds
    even = (fixed + evenly(over, of, gbits).seconds) / (fixed + zen)
    text = f"It depends on the skew: with evenly loaded ranges it is {even:.2f}"
    if not of.clustered:
        return f"{text}."
    return f"{text}, with ranges cut by GPU first {(fixed + by_gpu(over, of, gbits).seconds) / (fixed + zen):.2f}."


def of_densest(published: float) -> str:
    """Return whether any overlap gives the ratio of DeepFM, which is limited by the sum inside a machine."""
    d, d8 = density_of("DeepFM"), SPARSITY["deepfm_density_of_8"]
    most = densest_sum(d, GPUS, d8, MOST)
    least = 2 / (2 * d8 + most + 1 / 32)
    return (
        f"No overlap explains it: where 8 GPUs sum up to {d8:.1%}, 128 sum up to {most:.0%} at most, "
        f"so Zen moves {least:.2f} times less than dense at least, and not {published:.2f}."
    )


def of_pruned(quantity: str, point: dict[str, Any]) -> str:
    """Return the ratio of an LLM with values of 2 bytes, in words; for SparCML also the least that it moves."""
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
