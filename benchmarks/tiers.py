"""Holders across machines beside other schemes, flat and of tiers, as ``zenc simulate`` predicts them.

    python -m benchmarks.tiers            prints the table
    python -m benchmarks.tiers --write    keeps the numbers in benchmarks/results/tiers.json, and the table in
                                          docs/reference/cost.md

Rows of 64 values of float32, 200,000 of them. The ranks of a machine have 10 GB/s each to its memory, and share one
link of 25 Gbit/s to all others. Kernels take what is assumed where nothing was measured.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.lab.settings import ROOT
from benchmarks.markdown import LEFT, RIGHT, between, table
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform, zipf
from zenc.language.files import load_text
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.simulator.calibration import Calibration
from zenc.simulator.predict import Prediction, predict_on
from zenc.simulator.predict import network as network_of
from zenc.topology.load import load_topology

KEPT = ROOT / "benchmarks" / "results" / "tiers.json"
PAGE = ROOT / "docs" / "reference" / "cost.md"
BEGIN, END = "<!-- tiers: written by benchmarks.tiers -->", "<!-- end of tiers -->"
UNITS, WIDTH = 200_000, 64
CLUSTERS = ((2, 4), (4, 8), (64, 8))
"""Machines, and ranks in each."""
GRADIENTS = {"1 % of the rows": (0.01, 0.0), "2 %, Zipf 1.05": (0.02, 1.05)}
"""Name -> density, and exponent of Zipf's law, 0 for none."""
SCHEMES = {
    "balanced": "tier everyone: balanced",
    "holders": "tier everyone: holders",
    "balanced_across": "tier node({ranks}): balanced tier cluster: balanced",
    "holders_across": "tier node({ranks}): balanced tier cluster: holders",
}
"""Names -> the tiers of a scheme for machines of ``ranks`` ranks."""
TOPOLOGY = """
topology hosts(machines, ranks) {
    levels: node(machines), cpu(ranks)
    switch network
    for n in 0 .. machines - 1 {
        switch bus(n)
        for r in 0 .. ranks - 1 { link cpu(n, r) - bus(n): 10 GB/s, 1 us }
        link bus(n) - network: 25 Gbit/s, 5 us
    }
}
"""


@dataclass(frozen=True, slots=True)
class TierPoint:
    """Seconds of a call by each scheme, and bytes that the busiest link between machines carries in it."""

    gradient: str
    machines: int
    ranks: int
    seconds: dict[str, float]
    carried: dict[str, float]


def tier_point(gradient: str, machines: int, ranks: int) -> TierPoint:
    """Return the predictions for these machines."""
    by = Calibration()
    network = network_of(load_topology(TOPOLOGY, {"machines": machines, "ranks": ranks}), machines * ranks, by)
    profile = _profile(gradient)
    found = {name: _predicted(text.format(ranks=ranks), profile, network, by) for name, text in SCHEMES.items()}
    seconds = {name: each.seconds for name, each in found.items()}
    return TierPoint(gradient, machines, ranks, seconds, {name: each.carried for name, each in found.items()})


def kept() -> list[dict[str, Any]]:
    """Return the numbers that were written."""
    found: list[dict[str, Any]] = json.loads(KEPT.read_text())
    return found


def tiers_table(points: list[dict[str, Any]]) -> str:
    """Return the page's table of these numbers."""
    heads = ["gradient", "machines x ranks", *(f"`{name}`, ms" for name in ("balanced", "holders"))]
    heads += [
        "`balanced` across, ms",
        "`holders` across, ms",
        "over the best other",
        "MB, `balanced` across",
        "`holders` across",
    ]
    rows = []
    for point in points:
        seconds, carried = point["seconds"], point["carried"]
        others = min(seconds[name] for name in SCHEMES if name != "holders_across")
        rows.append(
            [
                point["gradient"],
                f"{point['machines']} x {point['ranks']}",
                *(f"{1e3 * seconds[name]:.2f}" for name in SCHEMES),
                f"{seconds['holders_across'] / others:.3f}",
                *(f"{carried[name] / 1e6:.2f}" for name in ("balanced_across", "holders_across")),
            ]
        )
    return table(heads, [LEFT, *[RIGHT] * (len(heads) - 1)], rows)


def _profile(gradient: str) -> Profile:
    density, exponent = GRADIENTS[gradient]
    return zipf(density, exponent, UNITS, WIDTH) if exponent else uniform(density, UNITS, WIDTH)


def _predicted(tiers: str, profile: Profile, network: Any, by: Calibration) -> Prediction:
    plan = lower(resolve(load_text(f"scheme tiered {{ {tiers} }}", "tiers"))[0])
    return predict_on(plan, profile, network, by)


def main() -> None:
    """Predict, and write if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    data = [asdict(tier_point(gradient, *cluster)) for gradient in GRADIENTS for cluster in CLUSTERS]
    print(tiers_table(data))
    if write:
        KEPT.write_text(json.dumps(data, indent=1) + "\n")
        PAGE.write_text(between(PAGE.read_text(), tiers_table(data), BEGIN, END))


if __name__ == "__main__":
    main()
