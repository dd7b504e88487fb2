"""The fits of ``overlap`` as tables: parameters, and what follows from them."""

from collections.abc import Callable
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
        "model": name, "where": where(place), "family": profile.name, "gamma 8": d8 / profile.density,
        "gamma 128": d128 / profile.density, "overlap": profile.overlap, "first eighth": first,
        "zen": 2 / (2 * d8 + d128 + 1 / 32),
    }  # fmt: skip
