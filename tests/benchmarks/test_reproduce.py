"""``benchmarks/reproduce``: the fits, the statements of the paper, costs beside the paper's formulas, and the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import sqrt
from typing import Any

import pytest

from benchmarks.markdown import END
from benchmarks.reproduce import __main__ as reproduce_zen
from benchmarks.reproduce import claims
from benchmarks.reproduce.checks import checks
from benchmarks.reproduce.compare import row
from benchmarks.reproduce.cost import best, by_gpu, cost, inside
from benchmarks.reproduce.figures import FIGURES, figures
from benchmarks.reproduce.fits import POINTS
from benchmarks.reproduce.overlap import core, densest_sum, of_machine, words
from benchmarks.reproduce.page import BEGIN, part, with_results
from benchmarks.reproduce.published import PUBLISHED, SPARSITY
from benchmarks.reproduce.reasons import explained, of_densest
from benchmarks.reproduce.results import crossovers, losses, overflows, pair, results, rounded
from benchmarks.reproduce.steps import FITTED, throughput
from benchmarks.reproduce.workloads import GPUS, MACHINES, PRUNED, fitted, workload

COMMITTED: dict[str, Any] = json.loads(reproduce_zen.JSON.read_text(encoding="utf-8"))
MOST = GPUS * MACHINES


@pytest.mark.parametrize("name", POINTS)
def test_a_fit_meets_the_published_point(name: str) -> None:
    ranks, gamma, _ = POINTS[name]
    assert float(fitted(name).densification(ranks)) == pytest.approx(gamma(), rel=1e-6)


def test_the_other_fits() -> None:
    assert fitted("LSTM").skewness(128) == pytest.approx(SPARSITY["lstm_skewness_at_128"], rel=1e-6)
    assert fitted("LSTM").density == pytest.approx(0.0113, rel=1e-6)
    for name in (*PRUNED, "DeepFM"):
        assert fitted(name).skewness(8) / 8 == pytest.approx(SPARSITY["first_eighth"])
        assert fitted(name).density == pytest.approx(PUBLISHED["workloads"][name]["density"])


def test_machines_sum_up_their_gpus() -> None:
    profile = fitted("NMT")
    assert float(of_machine(profile, 8).union(16)) == pytest.approx(float(profile.union(128)), rel=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.871])
def test_no_profile_is_denser_than_the_densest_sum(share: float) -> None:
    for profile in (core(0.028, share, 100_000), words(0.028, 3 * share, 100_000)):
        d8, d128 = (float(profile.union(k)) for k in (8, 128))
        assert d8 <= d128 <= densest_sum(profile.density, 8, d8, 128) + 1e-9
    assert densest_sum(0.01, 2, 0.02, 50) == pytest.approx(0.5), "ranks that share nothing"


@pytest.mark.parametrize(("ranks", "overlap"), [(2, None), (4, 3 / 5), (8, 7 / 17), (16, 15 / 49)])
def test_crossover_with_a_common_core(ranks: int, overlap: float | None) -> None:
    """Solved by hand: log2(n) q + (n - 1) (1 - q) = (n - 1) / n (1 + q + n (1 - q))."""
    found = claims.crossover(claims.common_core, ranks)
    assert found is None if overlap is None else found == pytest.approx(overlap)


def test_the_stated_overlap_depends_on_the_model() -> None:
    stated = SPARSITY["overlap_that_suffices"]
    subset, shared = (claims.crossover(model, 16) for model in (claims.random_subset, claims.common_core))
    assert subset is not None and shared is not None and subset < stated < shared
    gamma = claims.random_subset(subset)
    assert claims.balanced(gamma, 16) == pytest.approx(claims.hierarchical(gamma, 16))
    with_words = claims.crossover_of_zipf(16)
    assert with_words is not None and subset < with_words < shared
    assert claims.crossover_of_zipf(2) is None


@pytest.mark.parametrize("load", [0.025, 0.1, 0.4, 1.0])
def test_lost_as_drawn(load: float) -> None:
    share = claims.lost(load)
    assert abs(claims.lost_drawn(load) - share) < 5 * sqrt(share / claims.ITEMS)


@pytest.mark.parametrize("functions", [1, 2, 3, 4])
def test_overflow_as_drawn(functions: int) -> None:
    share = claims.overflow(0.5, functions)
    assert abs(claims.overflow_drawn(0.5, functions) - share) < 5 * sqrt(share / claims.ITEMS)
    assert claims.overflow_in_turn(0.5, functions) <= share * (1 + 1e-6)


def test_one_function_overflows_by_what_a_hash_loses() -> None:
    assert claims.overflow(0.4, 1) == pytest.approx(claims.lost(0.4))
    assert claims.overflow_in_turn(0.4, 1) == pytest.approx(claims.lost(0.4), rel=1e-6)


def test_the_stated_losses_do_not_follow() -> None:
    """A quarter of the stated memory makes them right; four functions collide more often at the load of the paper."""
    for point in losses():
        assert point["ours"] < point["value"] / 2
        assert point["slots that fit"] == pytest.approx(point["slots"] / 4, rel=0.02)
    stated = PUBLISHED["collisions"]
    assert claims.overflow_in_turn(stated["load"], stated["functions"]) > stated["value"]


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


def test_machines_as_ranks_are_like_tiers() -> None:
    of = workload("LSTM")
    for scheme in ("Zen", "AllReduce"):
        assert cost(scheme, of, 25).seconds == pytest.approx(by_gpu(scheme, of, 25).seconds, rel=1e-3)
    assert inside(of) == pytest.approx(2 * 7 / 8 * of.values * 4 / 150e9, rel=1e-3)


def test_a_fitted_ratio_is_the_published_one_and_others_are_not() -> None:
    for point in PUBLISHED["throughput"]:
        if point["model"] == "NMT":
            is_fitted = FITTED[point["model"]] == (point["gbits"], point["over"])
            found = row("throughput", point, throughput(point))
            assert found.fitted is is_fitted
            assert (found.ours == pytest.approx(point["value"])) is is_fitted
            assert found.best >= found.ours, "zenc's best is not slower than Zen"


def test_what_is_near_is_not_explained_and_what_is_not_is() -> None:
    point = {"model": "DeepFM", "over": "AllReduce", "value": 2.1}
    assert explained("communication", point, 2.15) == "within 10%"
    assert explained("communication", point, 4.0).endswith(of_densest(2.1))
    assert "and not 2.10" in of_densest(2.1)


def test_the_best_is_the_fastest() -> None:
    of = workload("NMT")
    assert best(of, 25)[1].seconds < cost("Zen", of, 25).seconds


def test_the_page_is_what_its_json_says(assert_plot: Callable[[str, str], None]) -> None:
    page = reproduce_zen.PAGE.read_text(encoding="utf-8")
    assert page == with_results(page, COMMITTED)
    assert part(COMMITTED) in page
    for name in FIGURES:
        assert f"reproduction/{name}.svg" in page
    for name, svg in figures(COMMITTED).items():
        assert_plot(f"reproduction/{name}", svg)


def test_the_json_is_what_is_computed() -> None:
    """Of what is quick to compute; ``test_everything_again`` has the rest."""
    for name, compute in (("crossover", crossovers), ("losses", losses), ("overflow", overflows), ("pair", pair)):
        assert COMMITTED[name] == rounded(compute())
    assert COMMITTED["checks"] == checks()


@pytest.mark.slow
def test_everything_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = results()
    alike(found, COMMITTED, "")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    for name, path in (("PAGE", page), ("JSON", tmp_path / "page.json"), ("FOLDER", tmp_path / "figures")):
        monkeypatch.setattr(reproduce_zen, name, path)
    reproduce_zen.write(found)
    assert json.loads((tmp_path / "page.json").read_text(encoding="utf-8")) == found
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\n{part(found)}\n\n{END}\nafter\n"
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == set(FIGURES)


def alike(found: Any, kept: Any, where: str) -> None:
    """Numbers to 1 in 1,000: other versions of numpy add in another order."""
    if isinstance(kept, dict):
        assert found.keys() == kept.keys(), where
        for key in kept:
            alike(found[key], kept[key], f"{where}.{key}")
    elif isinstance(kept, list):
        assert len(found) == len(kept), where
        for number, each in enumerate(kept):
            alike(found[number], each, f"{where}[{number}]")
    else:
        assert found == (pytest.approx(kept, rel=1e-3) if isinstance(kept, float) else kept), where
