"""The fits of ``overlap`` as tables: parameters, what follows from them, and by how much one for all would be off."""

from collections.abc import Callable, Sequence
from math import log
from typing import Any

from benchmarks.reproduce import SPARSITY, where
from benchmarks.reproduce.overlap import core, core_with, words, words_with
from benchmarks.reproduce.workloads import GPUS, NATURAL, density_of, fitted, rows_of, sum_of_128
from zenc.gradients.profile import Profile

POINTS: dict[str, tuple[int, Callable[[], float], str]] = {
    "NMT": (128, lambda: sum_of_128("NMT") / density_of("NMT"), "nmt_below_dense_at_128"),
    "BERT": (128, lambda: sum_of_128("BERT") / density_of("BERT"), "bert_density_of_128"),
    "DeepFM": (GPUS, lambda: SPARSITY["deepfm_density_of_8"] / density_of("DeepFM"), "deepfm_density_of_8"),
}
"""Facts of a model: ranks, their published densification, and its source."""


def chosen() -> list[dict[str, Any]]:
    """Return the profile of each model, and the characteristics that it was not fitted to."""
    to = {name: f"gamma^{point[0]} = {point[1]():.3g}" for name, point in POINTS.items()}
    to["LSTM"] = f"skewness of 128 ranges = {SPARSITY['lstm_skewness_at_128']:g}"
    rows = [(name, to[name]) for name in (*NATURAL, "BERT")]
    return [of(name, source) for name, source in [*rows, ("OPT-2.7B", "first eighth = 60 %, no core")]]


def of(name: str, source: str) -> dict[str, Any]:
    profile = fitted(name)
    ranks = (2, 8, 16, 128)
    return {
        "model": name,
        "family": profile.name,
        "fitted to": source,
        "overlap": profile.overlap,
        "first eighth": profile.skewness(8) / 8,
        "skewness at 128": profile.skewness(128),
        "gamma": {str(k): float(g) for k, g in zip(ranks, profile.densification(ranks), strict=True)},
        "density": profile.density,
    }


def families() -> list[dict[str, Any]]:
    """Return both families fitted to the same point, and Zen's gain on 16 machines of 8, by volume."""
    found = []
    for name, (ranks, gamma, place) in POINTS.items():
        density, units = density_of(name), rows_of(name)
        wanted = gamma() * density

        def union(profile: Profile, ranks: int = ranks) -> float:
            return float(profile.union(ranks))

        made = words(density, words_with(density, units, union, wanted), units)
        cored = core(density, core_with(density, units, union, wanted), units)
        found += [family(name, place, each) for each in (made, cored)]
    return found


def family(name: str, place: str, profile: Profile) -> dict[str, Any]:
    d8, d128 = (float(profile.union(k)) for k in (8, 128))
    first = profile.skewness(8) / 8
    return {
        "model": name,
        "where": where(place),
        "family": profile.name,
        "gamma 8": d8 / profile.density,
        "gamma 128": d128 / profile.density,
        "overlap": profile.overlap,
        "first eighth": first,
        "zen": 2 / (2 * d8 + d128 + 1 / 32),
    }


def common(names: Sequence[str]) -> dict[str, Any]:
    """Return one exponent for ``names``, by least squares of log gamma, and the residuals."""

    def logs(exponent: float) -> list[float]:
        return [log(gamma_of(name, exponent) / POINTS[name][1]()) for name in names]

    low, high = 0.3, 4.0
    for _ in range(40):  # the sum of squares has one valley: each log falls with the exponent
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if sum(x * x for x in logs(a)) < sum(x * x for x in logs(b)) else (a, high)
    rows = [{"model": n, "ranks": POINTS[n][0], "published": POINTS[n][1](), "ours": gamma_of(n, low)} for n in names]
    return {"exponent": low, "points": rows}


def gamma_of(name: str, exponent: float) -> float:
    return float(words(density_of(name), exponent, rows_of(name)).densification(POINTS[name][0]))
