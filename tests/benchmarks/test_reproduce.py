"""``benchmarks/reproduce``: its fits, costs beside the paper's formulas, and its JSON against a new computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.pages import rounded
from benchmarks.reproduce import __main__ as reproduce_zen
from benchmarks.reproduce.claims import checks
from benchmarks.reproduce.cost import cost
from benchmarks.reproduce.fits import POINTS
from benchmarks.reproduce.results import crossovers, losses, overflows, pair, results
from benchmarks.reproduce.workloads import fitted, workload

COMMITTED: dict[str, Any] = reproduce_zen.PART.kept()


@pytest.mark.parametrize("name", POINTS)
def test_a_fit_meets_the_published_point(name: str) -> None:
    ranks, gamma, _ = POINTS[name]
    assert float(fitted(name).densification(ranks)) == pytest.approx(gamma(), rel=1e-6)


FORMULAS: dict[str, Callable[[Any], float]] = {
    "AllReduce": lambda d: 2 * 15 / 16,
    "AGsparse": lambda d: 15 * 2 * d(8),
    "SparCML": lambda d: 2 * (d(8) + d(16) + d(32) + d(64)),
    "Zen with COO": lambda d: 15 / 16 * 2 * (d(8) + d(128)),
    "Zen": lambda d: 15 / 16 * (2 * d(8) + d(128) + 1 / 32),
}
"""Bytes that cross a card, over the tensor: section 3 of the paper, for 16 machines of 8 GPUs."""


@pytest.mark.parametrize("scheme", FORMULAS)
def test_bytes_are_those_of_the_formulas(scheme: str) -> None:
    of = workload("NMT")
    expected = FORMULAS[scheme](lambda k: float(of.profile.union(k))) * of.values * 4
    assert cost(scheme, of, 25).bytes == pytest.approx(expected, rel=1e-3)


def test_times_on_the_page_are_those_of_the_cost_model() -> None:
    (kept,) = (each["published"] for each in COMMITTED["seconds"] if each["model"] == "NMT")
    for scheme, seconds in kept.items():
        assert cost(scheme, workload("NMT"), 25).seconds == pytest.approx(seconds, rel=1e-3)


def test_the_json_is_what_is_computed() -> None:
    for name, compute in (("crossover", crossovers), ("losses", losses), ("overflow", overflows), ("pair", pair)):
        assert COMMITTED[name] == rounded(compute())
    assert COMMITTED["checks"] == checks()


@pytest.mark.slow
def test_everything_again() -> None:
    assert differences(results(), COMMITTED) == []


def differences(found: Any, kept: Any, where: str = "") -> list[str]:
    """Return where ``found`` is not ``kept`` to 1 in 1,000: versions of numpy add in different orders."""
    if isinstance(kept, dict) and found.keys() == kept.keys():
        pairs = [(found[key], kept[key], f"{where}.{key}") for key in kept]
    elif isinstance(kept, list) and len(found) == len(kept):
        pairs = [(*pair, f"{where}[{number}]") for number, pair in enumerate(zip(found, kept, strict=True))]
    else:
        return [] if found == (pytest.approx(kept, rel=1e-3) if isinstance(kept, float) else kept) else [where]
    return [place for pair in pairs for place in differences(*pair)]
