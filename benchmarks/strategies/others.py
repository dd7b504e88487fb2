"""TopKA2A's cost and conditions, and BytePS's compressors at 100 Mbit/s, by bytes and predictions."""

from collections.abc import Callable
from typing import Any

from benchmarks.strategies.traces import plan_of, plan_of_text, published
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Plan
from zenc.simulator.calibration import assumed, bandwidth_only
from zenc.simulator.predict import network, predict_on

RESNET18, RESNET18_TENSORS = 11_227_812, 62
"""Values and tensors, with 100 classes as in CIFAR100."""
GATHERED = """scheme gathered {{
    communication: point_to_point aggregation: one_shot partition: centralization
    select: top({density}) feedback: residual push: coo pull: coo
}}"""
"""The top values of each rank, which all others get: what TopKA2A is held against."""


def of_text(entries: str, ranks: int) -> Plan:
    """Return the plan of a scheme with ``entries``, that sums at once and cuts evenly."""
    text = f"scheme asked {{ aggregation: incremental partition: parallelism balance: imbalanced {entries} }}"
    return plan_of_text(text, ranks)


def byteps() -> dict[str, Any]:
    """Return ResNet18 on 4 hosts at 100 Mbit/s: a run's seconds are steps of one call, and the rest of a step.

    How many steps, and what the rest takes, is not published: both are fitted, to the dense run and to that of top k.
    """
    ranks, links = 4, assumed(None, 12.5e6, "cpu")
    said = published()["byteps"]
    top, drawn = (f"{said['kept'][name] * RESNET18_TENSORS / RESNET18:.8f}" for name in ("topk", "randomk"))
    plans = {
        "dense": plan_of("dense_ring", ranks),
        "onebit": plan_of("one_bit", ranks),
        "randomk": of_text(f"communication: ring compress: randomk({drawn}) push: dense pull: dense", ranks),
        "topk": of_text(f"communication: point_to_point compress: topk({top}) push: coo pull: coo", ranks),
    }
    gradient, way = uniform(1.0, RESNET18, 1, "f32"), network(None, ranks, links)
    calls = {name: predict_on(plan, gradient, way, links).seconds for name, plan in plans.items()}
    seconds = said["seconds"]
    steps = (seconds["dense"] - seconds["topk"]) / (calls["dense"] - calls["topk"])
    rest = seconds["topk"] - steps * calls["topk"]
    fast = said["fast_seconds"]
    rows = [
        {
            "compressor": name, "call": call, "computed": steps * call + rest, "published": seconds[name],
            "fitted": name in ("dense", "topk"),
        }
        for name, call in calls.items()
    ]  # fmt: skip
    coding = (fast["onebit"] - fast["topk"]) * seconds["topk"] / fast["topk"]
    return {"steps": steps, "rest": rest, "coding at most": coding, "rows": rows}


def topka2a(values: int = 1 << 22) -> list[dict[str, Any]]:
    """Return bytes of the busiest rank over the published formula's, and the predicted gain over the dense ring."""
    found = []
    for ranks in (4, 8, 16, 32):
        links = assumed(None, 1.25e9, "gpu")
        way, gradient = network(None, ranks, links), uniform(1.0, values, 1, "f32")
        dense = predict_on(plan_of("dense_ring", ranks), gradient, way, links)
        for density in (0.001, 0.01, 0.1, 0.4):
            plan = plan_of("topk_a2a", ranks, density=str(density))
            call = predict_on(plan, gradient, way, links)
            formula = 4 * (2 * density * values + values) * (ranks - 1) / ranks
            found.append(
                {
                    "ranks": ranks, "density": density, "bytes over formula": call.sent / formula,
                    "over dense": dense.seconds / call.seconds, "by formula": 2 / (2 * density + 1),
                }
            )  # fmt: skip
    return found


def conditions() -> list[dict[str, Any]]:
    """Return the densities between which TopKA2A is best, by simulation without latencies, and as published."""
    return [condition(ranks) for ranks in (4, 8, 16, 32)]


def condition(ranks: int, values: int = 1 << 22) -> dict[str, Any]:
    """Return the densities among ``ranks`` from which TopKA2A is better than an all-gather, and up to dense."""
    links = bandwidth_only("links", 1.25e9)
    way, gradient = network(None, ranks, links), uniform(1.0, values, 1, "f32")

    def seconds(plan: Plan) -> float:
        return predict_on(plan, gradient, way, links).seconds

    def at(density: float) -> float:
        return seconds(plan_of("topk_a2a", ranks, density=f"{density:.6f}"))

    def gathered(density: float) -> float:
        return seconds(plan_of_text(GATHERED.format(density=f"{density:.6f}"), ranks))

    dense = seconds(plan_of("dense_ring", ranks))
    return {
        "ranks": ranks,
        "before all-gather from": _crossing(lambda density: gathered(density) - at(density)),
        "from published": 1 / (2 * (ranks - 1)),
        "before dense up to": _crossing(lambda density: at(density) - dense),
        "up to published": 0.5,
    }


def _crossing(rises: Callable[[float], float], low: float = 1e-4, high: float = 0.9) -> float:
    """Return the density at which a quantity that ``rises`` with it is 0, by bisection."""
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return (low + high) / 2
