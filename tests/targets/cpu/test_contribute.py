"""Kernels that select contributions, against independent references in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.targets.cpu.test_compress import DTYPES, KINDS, SEEDS, SIZES, Drawn, at, magnitudes
from zenc.runtime.lossy.kernels import CompressionKernels, Threshold, compression_kernels
from zenc.runtime.lossy.parameters import AT_RANDOM, BISECTED, FROM, OF_BLOCKS, SAMPLED, TOP, UnitChoice


@pytest.fixture(scope="module")
def kernels() -> CompressionKernels:
    return compression_kernels()


def top(values: np.ndarray, k: int) -> np.ndarray:
    """Return which are the k greatest; of equals the first."""
    order = np.argsort(-magnitudes(values).astype(np.int64), kind="stable")
    chosen = np.zeros(len(values), bool)
    chosen[order[:k]] = True
    return chosen


def chosen_by(kernels: CompressionKernels, choice: UnitChoice, values: np.ndarray) -> np.ndarray:
    """Return which of ``values`` [n] a choice takes."""
    sizes, n = magnitudes(values), len(values)
    if choice.kind == TOP:
        return top(values, choice.a)
    if choice.kind == FROM:
        return sizes >= choice.a
    if choice.kind == OF_BLOCKS:
        chosen = np.zeros(n, bool)
        for first in range(0, n, choice.b):
            part = values[first : first + choice.b]
            k = choice.a if len(part) == choice.b else max(1, choice.a * len(part) // choice.b)
            chosen[first : first + choice.b] = top(part, k)
        return chosen
    if choice.kind == BISECTED:
        finite, low, high = sizes.view(np.float32), np.float32(0), np.float32(sizes.view(np.float32).max())
        if not np.isfinite(finite).all():
            return ~np.isfinite(finite)
        for _ in range(choice.b):
            middle = np.float32(low + (high - low) / np.float32(2))
            low, high = (middle, high) if (finite >= middle).sum() >= choice.a else (low, middle)
        return finite >= low
    if choice.kind == SAMPLED:
        units = np.empty(choice.b, np.int64)
        kernels.draw_units(n, choice.b, choice.key, at(units))
        return sizes >= np.sort(sizes[units])[-max(1, choice.a * choice.b // n)]
    words = np.empty(n, np.uint32)
    kernels.random_words(choice.key, 0, n, at(words))
    return words & 0x7FFFFFFF >= (1 << 31) - choice.a


def choice_of(kind: int, n: int, share: float, seed: int) -> UnitChoice:
    k = max(1, round(share * n))
    return {
        TOP: UnitChoice(TOP, k),
        FROM: UnitChoice(FROM, Threshold.of(2 * share).magnitude),
        OF_BLOCKS: UnitChoice(OF_BLOCKS, max(1, round(share * 100)), 100),
        BISECTED: UnitChoice(BISECTED, k, seed % 30),
        SAMPLED: UnitChoice(SAMPLED, k, max(1, n // 3), seed),
        AT_RANDOM: UnitChoice(AT_RANDOM, round(share * 2**31), key=seed),
    }[kind]


CHOICES = st.sampled_from([TOP, TOP, FROM, OF_BLOCKS, BISECTED, SAMPLED, AT_RANDOM])
SHARES = st.sampled_from([0.01, 0.1, 0.3, 0.0, 1.0])


@settings(max_examples=tried(150), deadline=None)
@given(SIZES, SEEDS, KINDS, SHARES, CHOICES, st.sampled_from(list(DTYPES)), st.booleans())
def test_what_is_not_selected_is_kept(
    n: int, seed: int, kind: str, share: float, chooses: int, dtype: str, moves: bool
) -> None:
    """Contributions with and without momentum are selected in one pass, and by marks."""
    kernels, of, choice = compression_kernels(), DTYPES[dtype], choice_of(chooses, n, share, seed)
    stored, kept = of.narrow(Drawn.of(n, seed, kind)), Drawn.of(n, seed + 1, kind)
    gradient, speed, fresh = of.widen(stored).astype(np.float32), np.ones(n, np.float32), np.empty(n, np.float32)
    given, left, into = stored.copy(), np.empty(n, np.float32), (at(speed), at(fresh), 0.5) if moves else ()
    found, taken = kernels.contribute(dtype, n, at(given), at(kept), at(left), choice, *into)
    with np.errstate(invalid="ignore", over="ignore"):
        added = np.float32(0.5) + gradient if moves else gradient
        summed = kept + added
        chosen = chosen_by(kernels, choice, summed)
        expected = of.narrow(np.where(chosen, summed, np.float32(0)))
        rest = np.where(chosen, summed - of.widen(expected).astype(np.float32), summed)
    np.testing.assert_array_equal(of.canonical(given), of.canonical(expected))
    np.testing.assert_array_equal(left, rest)
    assert taken.count == chosen.sum() and found.finite == bool(np.isfinite(summed).all())
    if moves:
        np.testing.assert_array_equal(fresh, np.where(chosen, 0, added))
    if np.isfinite(gradient).all() and np.isfinite(rest).all():
        assert np.isclose(found.squares, (gradient.astype(np.float64) ** 2).sum(), rtol=1e-12)
        assert np.isclose(taken.squares, (rest.astype(np.float64) ** 2).sum(), rtol=1e-12)
    marks, sizes, out = np.zeros(-(-n // 64), np.uint64), magnitudes(summed).view(np.float32), np.empty_like(stored)
    kernels.mark(n, at(sizes), choice, at(marks))
    assert (sizes[chosen] == 0).all()
    assert kernels.take_rows(dtype, n, at(summed), 1, at(marks), at(out)).count == taken.count
    assert of.canonical(out).tobytes() == of.canonical(given).tobytes()  # NumPy has made other NaNs of its own
    np.testing.assert_array_equal(summed, rest)


def test_a_sample_that_misleads_costs_no_exactness(kernels: CompressionKernels) -> None:
    """A sample sees only large values, or misses much larger ones."""
    n, k, stretch = 1 << 16, 700, 16
    places = np.arange(4096) * stretch + np.arange(4096) * 37 % stretch
    for seen in (1e6, 1e-6):
        values = Drawn.of(n, 1, "normal")
        values[places] *= np.float32(seen)
        given, left, chosen = values.copy(), np.empty(n, np.float32), top(values, k)
        assert kernels.contribute("f32", n, at(given), 0, at(left), UnitChoice(TOP, k))[1].count == k
        np.testing.assert_array_equal(given, np.where(chosen, values, 0))
        np.testing.assert_array_equal(left, np.where(chosen, 0, values))


@settings(max_examples=tried(25), deadline=None)
@given(SIZES, SEEDS, KINDS, st.integers(1, 5), st.integers(2, 100), st.integers(1, 20))
def test_rows_by_parts_whose_units_lie_anywhere(n: int, seed: int, kind: str, width: int, parts: int, k: int) -> None:
    kernels, values, rng = compression_kernels(), Drawn.of(n * width, seed, kind), np.random.default_rng(seed)
    sizes = np.empty(n, np.float32)
    kernels.row_magnitudes(at(values), n, width, at(sizes))
    np.testing.assert_array_equal(sizes.view(np.uint32), magnitudes(values).reshape(n, width).max(axis=1))
    chosen, marks = np.zeros(n, bool), np.zeros(-(-n // 64), np.uint64)
    for units in np.array_split(rng.permutation(n), parts):
        wanted = min(k, len(units))
        if wanted:
            chosen[units[top(sizes[units], wanted)]] = True
            kernels.mark_part(at(units), len(units), at(sizes), wanted, at(marks))
    left, out = values.copy(), np.empty(n * width, np.float32)
    taken = kernels.take_rows("f32", n, at(left), width, at(marks), at(out))
    assert taken.count == chosen.sum()
    np.testing.assert_array_equal(out, np.where(np.repeat(chosen, width), values, 0))


def test_thresholds(kernels: CompressionKernels) -> None:
    n, k = 50_000, 500
    values, listed = Drawn.of(n, 5, "normal"), np.empty(k, np.int64)
    exact = kernels.exact_threshold(at(values), n, k)
    assert kernels.list_taken(at(values), n, exact, at(listed)) == k
    np.testing.assert_array_equal(listed, np.flatnonzero(top(values, k)))
    reached = lambda found: (magnitudes(values) >= found.magnitude).sum()  # noqa: E731
    assert 300 < reached(kernels.sampled_threshold(at(values), n, k, n // 10, 7)) < 800
    assert kernels.sampled_threshold(at(values), n, k, n, 7) == Threshold(exact.magnitude, n)
    assert k <= reached(kernels.bisected_threshold(at(values), n, k, 30)) < k + 20
