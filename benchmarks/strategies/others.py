"""TopKA2A's cost and conditions, BytePS's compressors at 100 Mbit/s, and OSCAR's ratios, by bytes and predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.strategies.traces import published
from zenc.gradients.profile_generators import uniform
from zenc.language.files import load_file, load_text, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.simulator.calibration import assumed
from zenc.simulator.predict import network, predict_on

CONVERGENCE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "convergence"
RESNET18 = 11_689_512
"""Values; torchvision's model for ImageNet."""


def plan_of(name: str, ranks: int, **params: str) -> Plan:
    return lower(resolve(load_file(locate(name)), name, params, {})[0], ranks)


def of_text(entries: str, ranks: int) -> Plan:
    text = f"scheme asked {{ aggregation: incremental partition: parallelism balance: imbalanced {entries} }}"
    return lower(resolve(load_text(text, "asked.zen"))[0], ranks)


def byteps() -> dict[str, Any]:
    """ResNet18 on 4 hosts at 100 Mbit/s: a run's seconds are so many steps of computing, and of one call.

    How many, and how long a step computes, is not published: both are fitted, to the dense run and to the top 1 %.
    """
    ranks, links = 4, assumed(None, 12.5e6, "cpu")
    plans = {
        "dense": plan_of("dense_ring", ranks),
        "onebit": plan_of("one_bit", ranks),
        "randomk": of_text("communication: ring compress: randomk(0.01) push: dense pull: dense", ranks),
        "topk": of_text("communication: point_to_point compress: topk(0.01) push: coo pull: coo", ranks),
    }
    gradient, way = uniform(1.0, RESNET18, 1, "f32"), network(None, ranks, links)
    calls = {name: predict_on(plan, gradient, way, links).seconds for name, plan in plans.items()}
    said = published()["byteps"]["seconds"]
    steps = (said["dense"] - said["topk"]) / (calls["dense"] - calls["topk"])
    computing = said["topk"] / steps - calls["topk"]
    rows = [
        {
            "compressor": name,
            "call": seconds,
            "computed": steps * (computing + seconds),
            "published": said[name],
            "fitted": name in ("dense", "topk"),
        }
        for name, seconds in calls.items()
    ]
    return {"steps": steps, "computing": computing, "rows": rows}


def topka2a(values: int = 1 << 22) -> list[dict[str, Any]]:
    """Bytes of the busiest rank over the published formula's, and the gain over the dense ring by prediction."""
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
                    "ranks": ranks,
                    "density": density,
                    "bytes over formula": call.sent / formula,
                    "over dense": dense.seconds / call.seconds,
                    "by formula": 2 / (2 * density + 1),
                }
            )
    return found


def oscar() -> dict[str, float]:
    """Bytes of dense steps over those by integers through the coder, as the runs of the convergence page sent them."""
    sent = {}
    for name in ("dense", "fixed"):
        run = json.loads((CONVERGENCE / f"{name}.json").read_text(encoding="utf-8"))
        looks = [seed["looks"][-1] for seed in run["of_seeds"]]
        sent[name] = sum(look["sent"] for look in looks) / sum(look["step"] for look in looks)
    return {"times fewer": sent["dense"] / sent["fixed"]}
