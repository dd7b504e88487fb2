"""The tables of hierarchical hashing: every unit in one place, by h0 alone, and parts as even as Theorem 2 says."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.targets.cpu.test_compress import DTYPES, KINDS, SEEDS, SIZES, Drawn, at, magnitudes
from zenc.errors import TensorError
from zenc.runtime.lossy.kernels import CompressionKernels, Threshold, compression_kernels
from zenc.runtime.lossy.parameters import AT_RANDOM, BISECTED, FROM, OF_BLOCKS, SAMPLED, TOP, UnitChoice
from zenc.scheme.model import HierarchicalHash
from zenc.wire.partitioning import part_sizes, parts_of_units

SEED = 0x5EED
MAPPING = HierarchicalHash(3, 2.0, 0.2, SEED)
KNOWN_PARTS = [[2, 1, 2, 0, 2, 0, 2, 1], [11, 10, 13, 3, 11, 3, 14, 7]]


def slots_of(kernels, at, geometry):
    units, out = np.arange(geometry.units), np.empty(geometry.units, np.int64)
    kernels.slots_of_units(geometry, at.address(units), len(units), at.address(out))
    return out


def units_of(kernels, at, geometry, slots):
    slots, out = np.ascontiguousarray(slots, np.int64), np.empty(len(slots), np.int64)
    kernels.units_of_slots(geometry, at.address(slots), len(slots), at.address(out))
    return out


@settings(max_examples=tried(200), deadline=None)
@given(units=st.integers(0, 3000), parts=st.integers(1, 200))
def test_every_unit_has_one_slot_by_rank_in_the_part_of_its_hash(hashing, at, units, parts):
    geometry = hashing.geometry(units, 1, parts)
    slots = slots_of(hashing, at, geometry)
    assert np.array_equal(units_of(hashing, at, geometry, slots), np.arange(units))
    expected = parts_of_units(MAPPING, np.arange(units, dtype=np.uint64), parts).astype(np.int64)
    step = max(geometry.part_slots, 1)
    assert np.array_equal(slots // step, expected)
    for part in range(parts):
        local = slots[expected == part] % step
        assert np.array_equal(local, np.arange(geometry.slots_of(part)))
    assert [geometry.slots_of(part) for part in range(parts)] == part_sizes(MAPPING, units, 1, parts)


def test_known_values_never_change():
    """Ranks with different builds of zenc must agree: a change here is a change of ZENC_ABI_VERSION."""
    found = [parts_of_units(MAPPING, np.arange(8, dtype=np.uint64), parts).tolist() for parts in (3, 16)]
    assert found == KNOWN_PARTS


def test_numbers_in_the_gap_behind_a_small_part_are_no_slots(hashing, at):
    geometry = hashing.geometry(1000, 1, 7)
    for part in range(7):
        gap = part * geometry.part_slots + geometry.slots_of(part)
        if geometry.slots_of(part) < geometry.part_slots:
            with pytest.raises(TensorError):
                units_of(hashing, at, geometry, np.array([gap]))


def test_tables_are_shared_while_they_are_in_use(hashing):
    first, second = hashing.geometry(5000, 1, 3), hashing.geometry(5000, 64, 3)
    assert first.tables is second.tables and first.tables is not hashing.geometry(5000, 1, 4).tables
    assert hashing.geometry(5001, 1, 3).tables is not first.tables
    del first, second
    gc.collect()
    assert (5000, 3) not in hashing._tables


def test_threads_that_ask_at_once_get_the_same_tables(hashing, at):
    with ThreadPoolExecutor(8) as pool:
        cuts = list(pool.map(lambda parts: hashing.geometry(300_000, 1, parts), [5, 6] * 8))
    assert len({id(geometry.tables) for geometry in cuts}) == 2
    for geometry in cuts[:2]:
        assert np.array_equal(units_of(hashing, at, geometry, slots_of(hashing, at, geometry)), np.arange(300_000))


def test_tensors_beyond_32_bits_are_refused(hashing, permuting):
    with pytest.raises(TensorError, match="hierarchical_hash") as raised:
        hashing.geometry(1 << 32, 1, 4)
    assert raised.value.diagnostics[0].id == "tensor-too-large"
    assert permuting.geometry(1 << 32, 1, 4).tables is None


def gradients(size):
    """Draw sets of units as gradients have them: skewed, regular, or both."""
    rng = np.random.default_rng(12)
    yield "everything", np.arange(size)
    yield "head", np.arange(size // 20)
    yield "tail", np.arange(size - size // 20, size)
    for stride in (2, 3, 64, 512):
        yield f"every {stride}", np.arange(0, size, stride)
    yield "powers of two and near", np.unique((1 << np.arange(17))[:, None] + np.arange(64))
    yield "blocks", np.unique((rng.zipf(1.3, 5000) % (size // 16))[:, None] * 16 + np.arange(16))
    yield "random", rng.permutation(size)[: size // 20]


def theorem_2(units, parts):
    """Return the most units of the fullest part, with a probability of at least 1 - 1
    parts (Bernstein's inequality).

    mean + t, where parts * exp(-t^2
    (2 (mean + t
    3))) = 1
    parts: mean + Theta(sqrt(units * log(parts)
    parts)).
    """
    mean, log = units / parts, 2 * np.log(parts)
    return mean + log / 3 + np.sqrt((log / 3) ** 2 + 2 * log * mean)


@pytest.mark.parametrize("parts", [2, 3, 16, 128])
def test_parts_are_as_even_as_theorem_2_says(parts):
    failures = []
    for seed in range(40):
        mapping = HierarchicalHash(3, 2.0, 0.2, seed)
        for _, units in gradients(200_000):
            counts = np.bincount(parts_of_units(mapping, units.astype(np.uint64), parts).astype(np.int64))
            failures.append(counts.max() > theorem_2(len(units), parts))
    assert np.mean(failures) <= 1 / parts


@pytest.mark.parametrize("parts", [2, 5, 16, 128])
def test_the_hash_has_no_bias(parts):
    """Chi-square of the units in each part, over gradients and seeds, is that of random functions."""
    scores = []
    for seed in range(40):
        mapping = HierarchicalHash(3, 2.0, 0.2, seed << 32)
        for _, units in gradients(200_000):
            counts = np.bincount(
                parts_of_units(mapping, units.astype(np.uint64), parts).astype(np.int64), minlength=parts
            )
            mean, freedom = len(units) / parts, parts - 1
            scores.append((((counts - mean) ** 2 / mean).sum() - freedom) / np.sqrt(2 * freedom))
    scores = np.array(scores)
    assert scores.max() < 12.0  # the upper tail of chi-square with one degree of freedom is long
    assert abs(scores.mean()) < 4 / np.sqrt(len(scores))
    assert 0.7 < scores.std() < 1.4


def test_other_seeds_are_other_functions():
    units = np.arange(100_000, dtype=np.uint64)
    chosen = [parts_of_units(HierarchicalHash(3, 2.0, 0.2, seed), units, 16) for seed in range(8)]
    for i, mine in enumerate(chosen):
        for other in chosen[:i]:
            assert (mine == other).mean() == pytest.approx(1 / 16, abs=0.005)


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
