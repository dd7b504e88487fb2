"""Each published ratio beside ours, and beside that of zenc's best scheme."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.reproduce.claims import root
from benchmarks.reproduce.cost import best, cost
from benchmarks.reproduce.overlap import core
from benchmarks.reproduce.published import PUBLISHED
from benchmarks.reproduce.reasons import explained
from benchmarks.reproduce.steps import FITTED, communication, rest, throughput
from benchmarks.reproduce.workloads import MACHINES, density_of, workload


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
    """Return the extremes of Figure 15 over all models."""
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
