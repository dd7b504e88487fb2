"""Bytes follow the formulas of the papers: M bytes of values, density d, n ranks, gamma the densification.

All are counted for float32 elements with COO indices of 4 bytes, so that an entry weighs twice its value, as the papers
have it. What the papers leave out is added by hand: 48 bytes a message, 16 a segment, and up to 8 of padding for each
index and each array of values. Against the model of random subsets (gamma^k = (1 - (1 - q)^k) / q at an overlap of q)
there is chance too.
"""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from tests.support.plans import plan_of
from zenc.analysis.exact_traffic import CallTraffic, weigh
from zenc.gradients.index_sets import Gradients, drawn, figures, gradients
from zenc.gradients.spec import GradientSpec
from zenc.verify.proof import verify

UNITS, DENSITY, OVERLAP = 3_276_800, 0.02, 0.25
M = 4 * UNITS
SIZES = (2, 4, 8, 16)
HEADERS, PADDING = 48 + 16, 16
BLOCKS = 0.04
"""Excess of an owner over the mean: elements are drawn from ranges whose blocks have one owner each."""


def scheme(communication: str, aggregation: str, cut: str, push: str = "coo", pull: str = "coo") -> str:
    return (
        f"scheme s {{ communication: {communication} aggregation: {aggregation} {cut} "
        f"push: {push} pull: {pull} unit: element }}"
    )


WHOLE = "partition: centralization"
RANGES = "partition: parallelism balance: imbalanced"
BALANCED = "partition: parallelism balance: balanced by permutation"


def counted(text: str, of: Gradients) -> CallTraffic:
    plan = plan_of(text, of.size)
    return weigh(plan, verify(plan, of.size)[0], of)


def overlapping(size: int) -> Gradients:
    return drawn(GradientSpec(UNITS, 1, "f32", DENSITY, overlap=OVERLAP), size)


def gamma(ranks: int) -> float:
    return (1 - (1 - OVERLAP) ** ranks) / OVERLAP


def follows(bytes: np.ndarray, formula: float, messages: int, chance: float = 0.0) -> bool:
    """Return whether bytes lie between the formula and the formula with headers, padding and ``chance``."""
    assert messages * (HEADERS + PADDING) < 0.003 * formula, "what the formula leaves out is small"
    least, most = formula * (1 - chance) + messages * HEADERS - 1, formula * (1 + chance)
    return bool(((least <= bytes) & (bytes <= most + messages * (HEADERS + PADDING) + 1)).all())


@pytest.mark.parametrize("size", SIZES)
def test_agsparse(size):
    traffic = counted(scheme("point_to_point", "one_shot", WHOLE), overlapping(size)).traffic["push"]
    for bytes in (traffic.received, traffic.sent):
        assert follows(bytes, (size - 1) * 2 * DENSITY * M, size - 1)


@pytest.mark.parametrize("communication", ["ring", "hierarchy"])
def test_agsparse_costs_the_same_whatever_the_way(communication):
    """A ring forwards n - 1 messages of one segment; recursive doubling sends log2 n messages of growing size."""
    size = 8
    traffic = counted(scheme(communication, "one_shot", WHOLE), overlapping(size)).traffic["push"]
    headers = {"ring": 7 * 64, "hierarchy": 3 * 48 + 7 * 16}[communication]
    assert (traffic.received == round((size - 1) * 2 * DENSITY * M) + headers).all()


@pytest.mark.parametrize("size", SIZES)
def test_sparcml(size):
    """The formula is the sum over i = 1 .. log2 n of gamma^(2^(i - 1)) 2 d M (Hierarchical Centralization)."""
    traffic = counted(scheme("hierarchy", "incremental", WHOLE), overlapping(size)).traffic["push"]
    steps = int(log2(size))
    formula = sum(gamma(2**i) for i in range(steps)) * 2 * DENSITY * M
    assert follows(traffic.received, formula, steps, chance=0.01)


def skewed(size: int, skewness: float) -> Gradients:
    """Return index sets where each rank has ``skewness`` / n of its units in the first of n ranges."""
    width, count, held = UNITS // size, round(UNITS * DENSITY), []
    first = round(count * skewness / size)
    counts = [first] + [round((count - first) / (size - 1))] * (size - 1)
    for rank in range(size):
        random = np.random.default_rng(rank)
        ranges = [part * width + random.choice(int(c / OVERLAP), c, replace=False) for part, c in enumerate(counts)]
        held.append(np.concatenate(ranges))
    return gradients(UNITS, 1, "f32", held)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("skewness", [1.0, 1.9])
def test_sparse_ps(size, skewness):
    """Push 2 (n - 1) s d M / n, pull 2 (n - 1) s d^n M / n, at the server of the fullest range."""
    of = skewed(size, skewness)
    found = figures(of)
    assert found.skewness == pytest.approx(skewness, rel=0.001)
    assert found.density_out == pytest.approx(gamma(size) * DENSITY, rel=0.01)
    traffic = counted(scheme("point_to_point", "incremental", RANGES), of).traffic
    push = 2 * (size - 1) * skewness * DENSITY * M / size
    pull = 2 * (size - 1) * skewness * gamma(size) * DENSITY * M / size
    assert follows(traffic["push"].received.max(keepdims=True), push, size - 1, chance=0.001)
    assert follows(traffic["pull"].sent.max(keepdims=True), pull, size - 1, chance=0.02)


@pytest.mark.parametrize("size", SIZES)
def test_balanced_parallelism(size):
    """Each rank moves (n - 1) / n (gamma + 1) 2 d M, whatever the skew."""
    for of in (overlapping(size), skewed(size, 1.9)):
        traffic = counted(scheme("point_to_point", "incremental", BALANCED), of).traffic
        for bytes in (traffic["push"].received + traffic["pull"].received, traffic["push"].sent + traffic["pull"].sent):
            formula = (size - 1) / size * (gamma(size) + 1) * 2 * DENSITY * M
            assert follows(bytes, formula, 2 * (size - 1), chance=BLOCKS)
            assert bytes.mean() == pytest.approx(formula, rel=0.01)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cut", [BALANCED, "partition: parallelism balance: balanced by hierarchical_hash"])
def test_zen_with_its_bitmap(size, cut):
    """Each rank moves (n - 1) / n (2 d + gamma d + 1 / 32) M: COO in the push, a bit for each slot of an owner in the
    pull.
    """
    traffic = counted(scheme("point_to_point", "incremental", cut, "coo", "bitmap"), overlapping(size)).traffic
    received = traffic["push"].received + traffic["pull"].received
    formula = (size - 1) / size * (2 * DENSITY + gamma(size) * DENSITY + 1 / 32) * M
    assert follows(received, formula, 2 * (size - 1), chance=0.02)
    assert received.mean() == pytest.approx(formula, rel=0.01)
    assert traffic["pull"].formats_received["bitmap"].sum() == traffic["pull"].received.sum() - size * (size - 1) * 64


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("density", [0.001, 1.0])
def test_dense_ring(size, density):
    """Each rank moves 2 (n - 1) / n M, whatever the density."""
    of = drawn(GradientSpec(UNITS // 100, 1, "f32", density), size)
    weight = counted(scheme("ring", "incremental", RANGES, "dense", "dense"), of)
    for bytes in (
        sum(traffic.received for traffic in weight.traffic.values()),
        sum(traffic.sent for traffic in weight.traffic.values()),
    ):
        assert (bytes == 2 * (size - 1) / size * M / 100 + 2 * (size - 1) * HEADERS).all()
