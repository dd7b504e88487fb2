"""Holders with and without a directory beside `balanced`, as ``zenc simulate`` predicts them for many ranks.

    python -m benchmarks.directory            prints the tables
    python -m benchmarks.directory --write    keeps the numbers in benchmarks/results/directory.json, and the tables in
                                              docs/reference/cost.md

Rows of 64 values of float32, 200,000 of them, on one switch with links of 25 Gbit/s, by the calibration that is
assumed where nothing was measured. Owners are counted exactly, of gradients that are drawn: by how much the rank that
owns most owns more than all do on average, if one rank after another hears all sets, or a directory names them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.lab.settings import ROOT
from benchmarks.markdown import LEFT, RIGHT, between, table
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform, zipf
from zenc.language.files import load_file, locate
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.simulator.calibration import Calibration
from zenc.simulator.predict import Prediction, predict
from zenc.wire.partitioning import named_owners, owners_of

KEPT = ROOT / "benchmarks" / "results" / "directory.json"
PAGE = ROOT / "docs" / "reference" / "cost.md"
BEGIN, END = "<!-- directory: written by benchmarks.directory -->", "<!-- end of directory -->"
UNITS, WIDTH, GBIT = 200_000, 64, 25
RANKS = (16, 64, 256, 1024, 4096)
OWNED_RANKS = (16, 64, 256)
"""Numbers of ranks whose owners are counted: gradients are drawn, and each unit's owner is chosen."""
GRADIENTS = {"1 % of the rows": (0.01, 0.0), "2 %, Zipf 1.05": (0.02, 1.05)}
"""Name -> density, and exponent of Zipf's law, 0 for none."""


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """Seconds of a call among ``ranks``, and bytes that the busiest one sends over the bound B2.

    ``holders`` as shipped, ``gathering`` where all hear all index sets.
    """

    gradient: str
    ranks: int
    balanced: float
    holders: float
    gathering: float
    holders_over_bound: float
    gathering_over_bound: float


@dataclass(frozen=True, slots=True)
class OwnedPoint:
    """Units of the rank that owns most, over the mean: chosen from all sets, and by a directory."""

    gradient: str
    ranks: int
    from_all: float
    by_directory: float


def scale_point(gradient: str, ranks: int) -> ScalePoint:
    """Return the predictions for ``ranks``."""
    profile, by = _profile(gradient), Calibration(bandwidth=GBIT * 1e9 / 8)
    plans = {"balanced": ("balanced", {}), "holders": ("holders", {}), "gathering": ("holders", {"few": ranks})}
    found = {name: _predicted(*plan, ranks, profile, by) for name, plan in plans.items()}
    least = _bound(profile, ranks)
    over = [found[name].sent / least for name in ("holders", "gathering")]
    return ScalePoint(gradient, ranks, *(found[name].seconds for name in plans), *over)


def owned_point(gradient: str, ranks: int) -> OwnedPoint:
    """Return the owners of gradients that are drawn by chance."""
    chances = _chances(_profile(gradient))
    rng = np.random.default_rng(ranks)
    held = [np.flatnonzero(rng.random(UNITS) < chances) for _ in range(ranks)]
    return OwnedPoint(gradient, ranks, *(_most(owners, ranks) for _, owners in _chosen(held)))


def kept() -> dict[str, list[dict[str, Any]]]:
    """Return the numbers that were written."""
    found: dict[str, list[dict[str, Any]]] = json.loads(KEPT.read_text())
    return found


def tables(data: dict[str, list[dict[str, Any]]]) -> str:
    """Return the page's tables of these numbers."""
    return "\n\n".join((_scale_table(data["scale"]), _owned_table(data["owned"])))


def _profile(gradient: str) -> Profile:
    density, exponent = GRADIENTS[gradient]
    return zipf(density, exponent, UNITS, WIDTH) if exponent else uniform(density, UNITS, WIDTH)


def _chances(profile: Profile) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the chance that a rank holds each unit."""
    edges = np.arange(UNITS + 1, dtype=np.float64)
    return (
        profile.union_between(edges[:-1], edges[1:], 1) if len(profile.ranges) > 1 else np.full(UNITS, profile.density)
    )


def _predicted(scheme: str, given: dict[str, int], ranks: int, profile: Profile, by: Calibration) -> Prediction:
    plan = lower(resolve(load_file(locate(scheme)), None, given, {})[0])
    return predict(plan, ranks, profile, None, by)


def _bound(profile: Profile, ranks: int) -> float:
    """Return B2 in bytes: n + c - 2 messages for a unit that c of n ranks hold, over all ranks."""
    units, held = UNITS * float(profile.union(ranks)), UNITS * profile.density
    return ((ranks - 2) * units / ranks + held) * profile.unit_bytes


def _chosen(held: list[Any]) -> Iterator[tuple[Any, Any]]:
    yield owners_of(held)
    yield named_owners(held, UNITS)


def _most(owners: Any, ranks: int) -> float:
    return float(np.bincount(owners, minlength=ranks).max() / (len(owners) / ranks))


def _scale_table(points: list[dict[str, Any]]) -> str:
    heads = ["gradient", "ranks", "`balanced`, ms", "all hear all, ms", "`holders`, ms", "over `balanced`"]
    heads += ["bytes over B2, all hear all", "`holders`"]
    rows = [
        [
            point["gradient"],
            f"{point['ranks']:,}",
            *(f"{1e3 * point[name]:.2f}" for name in ("balanced", "gathering", "holders")),
            f"{point['holders'] / point['balanced']:.3f}",
            *(f"{point[name]:.3f}" for name in ("gathering_over_bound", "holders_over_bound")),
        ]
        for point in points
    ]
    return table(heads, [LEFT, *[RIGHT] * 7], rows)


def _owned_table(points: list[dict[str, Any]]) -> str:
    heads = ["gradient", "ranks", "most units owned over the mean, from all sets", "by a directory"]
    rows = [[p["gradient"], f"{p['ranks']:,}", f"{p['from_all']:.3f}", f"{p['by_directory']:.3f}"] for p in points]
    return table(heads, [LEFT, *[RIGHT] * 3], rows)


def main() -> None:
    """Predict, count, and write if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    scale = [asdict(scale_point(gradient, ranks)) for gradient in GRADIENTS for ranks in RANKS]
    owned = [asdict(owned_point(gradient, ranks)) for gradient in GRADIENTS for ranks in OWNED_RANKS]
    data = {"scale": scale, "owned": owned}
    print(tables(data))
    if write:
        KEPT.write_text(json.dumps(data, indent=1) + "\n")
        PAGE.write_text(between(PAGE.read_text(), tables(data), BEGIN, END))


if __name__ == "__main__":
    main()
