"""Profiles of recorded gradients: as dense, overlapping and skewed as counted, also of a sample of the units."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.errors import CostError
from zenc.gradients.index_sets import drawn, figures, gradients
from zenc.gradients.profile_fit import (
    HolderCounts,
    by_range,
    counted_union,
    fitted,
    from_gradients,
    misfit,
    nonnegative,
    sample_ids,
)
from zenc.gradients.profile_generators import random_subset, uniform, zipf
from zenc.gradients.profile_io import dump_profiles, read_profiles
from zenc.gradients.spec import GradientSpec

LOADS = [
    (GradientSpec(100_000, 64, "f32", 0.02, zipf=1.05), 8), (GradientSpec(100_000, 64, "f32", 0.02), 16),
    (GradientSpec(20_000, 1, "f16", 0.3, overlap=0.5), 5), (GradientSpec(20_000, 1, "f32", 0.05, overlap=1.0), 40),
    (GradientSpec(50_000, 1, "f32", 0.001, zipf=1.0), 128), (GradientSpec(999, 1, "f32", 0.1, zipf=1.0), 4),
    (GradientSpec(1000, 1, "f32", 0.1), 1), (GradientSpec(10, 1, "f32", 1.0), 3),
    (GradientSpec(10, 1, "f32", 0.0), 3),
]  # fmt: skip


def mean_union(of, k):
    """Return d_k of ``k`` neighbours in a circle of the ranks, on average."""
    sets = [[of.held[(start + i) % of.size] for i in range(k)] for start in range(of.size)]
    return np.mean([len(np.unique(np.concatenate(held))) for held in sets]) / of.units


@pytest.mark.parametrize(("load", "size"), LOADS, ids=str)
def test_it_is_as_dense_as_what_was_counted(load, size):
    of = drawn(load, size)
    profile = from_gradients(of)
    assert (profile.units, profile.width, profile.dtype, profile.ranks) == (load.units, load.width, load.dtype, size)
    assert profile.recorded is not None
    assert (profile.recorded.steps, profile.recorded.bytes_mean, profile.recorded.bytes_busiest) == (1, 0, 0)
    k = np.arange(1, size + 1)
    counted = counted_union(by_range(of.holders(), size, 1), k)
    assert profile.union(k) == pytest.approx(counted, rel=0.01)
    assert profile.density == pytest.approx(of.density, rel=1e-3)
    for some in {1, size // 2, size} - {0}:
        assert counted[some - 1] == pytest.approx(mean_union(of, some), rel=0.01)
    assert misfit(profile, by_range(of.holders(), size, len(profile.ranges))) < 0.01


@pytest.mark.parametrize(("load", "size"), LOADS[:4], ids=str)
def test_its_characteristics_are_those_of_the_gradients(load, size):
    of = drawn(load, size)
    profile, found = from_gradients(of), figures(of)
    assert profile.densification(size) == pytest.approx(found.densification, rel=0.01)
    assert profile.overlap == pytest.approx(found.overlap, abs=0.01)
    assert profile.skewness(4) == pytest.approx(max_density(of, 4) / of.density, rel=0.05)


def max_density(of, parts):
    edges = np.linspace(0, of.units, parts + 1).astype(int)
    return (np.add.reduceat(of.holders(), edges[:-1]) / np.diff(edges)).max() / of.size


def test_it_extends_to_more_ranks():
    """Units that few of 8 ranks hold show how many there are: predictions for 32 ranks are right to 3 %."""
    profile = from_gradients(drawn(GradientSpec(200_000, 1, "f32", 0.02, zipf=1.05), 8))
    assert profile.union(32) == pytest.approx(zipf(0.02, 1.05, 200_000).union(32), rel=0.03)


@settings(max_examples=tried(60), deadline=None)
@given(units=st.integers(1, 300), held=st.lists(st.lists(st.integers(0, 10**6), max_size=40), min_size=1, max_size=9))
def test_any_gradients_have_a_profile(units, held):
    """A fit has the right density, and sums at most as dense; ranks that avoid each other have no exact one."""
    of = gradients(units, 1, "f32", [[i % units for i in ids] for ids in held])
    profile = from_gradients(of)
    assert profile.density == pytest.approx(of.density, rel=0.02, abs=1e-6)
    union = np.count_nonzero(of.holders()) / units
    assert profile.density <= profile.union(of.size) + 1e-9
    assert profile.union(of.size) <= union * 1.1 + 1e-6


def test_ranges_share_the_units_on_their_edges():
    histogram = by_range(np.array([2, 0, 1]), 2, 2)
    assert histogram.tolist() == [[0.5, 0, 1], [0.5, 1, 0]]
    assert by_range(np.array([1, 1]), 1, 2).tolist() == [[0, 1], [0, 1]]


@settings(max_examples=tried(100), deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 8), columns=st.integers(1, 12))
def test_least_squares_can_not_be_improved(seed, rows, columns):
    """The conditions of Karush, Kuhn and Tucker hold: no free column pulls, and no fixed one pulls up."""
    random = np.random.default_rng(seed)
    matrix, target = random.random((rows, columns)), random.normal(size=rows)
    found = nonnegative(matrix, target)
    pull = matrix.T @ (target - matrix @ found)
    assert (found >= 0).all() and (pull < 1e-7).all()
    assert np.abs(pull[found > 0]).max(initial=0) < 1e-7


@pytest.mark.parametrize("histogram", [[[0, 0]], [[1]], [[1, -1]], [[float("nan"), 1]]])
def test_histograms_of_nothing_are_refused(histogram):
    with pytest.raises(CostError, match="histogram of holders"):
        fitted("x", 10, 1, "f32", np.array(histogram, dtype=np.float64))


@settings(deadline=None)
@given(units=st.integers(1, 1 << 61), most=st.integers(1, 500))
def test_every_neighbourhood_has_one(units, most):
    ids = sample_ids(units, most)
    assert len(ids) == min(units, most) and (np.diff(ids) >= 0).all() and 0 <= ids[0] <= ids[-1] < units
    if most < units < 1 << 50:
        assert (np.abs(ids - np.arange(most) * (units / most)) <= units / most + 1).all()


def test_they_hit_no_pattern():
    """The sample holds half of every second unit, whatever the distance of its neighbourhoods."""
    for units in (1 << 17, 1 << 18, 300_000):
        assert np.mean(sample_ids(units, 1 << 14) % 2) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("units", [5_000, 200_000])
def test_a_few_steps_show_more_ranks_than_there_were(units):
    """A sample of 4,096 units from 4 ranks in 12 steps gives d_k for 48 ranks within 4 %."""
    truth, tally = zipf(0.02, 1.05, units), HolderCounts("words", units, 8, "f32", 4, 4096)
    for step in range(12):
        held = drawn(GradientSpec(units, 8, "f32", 0.02, zipf=1.05, seed=step), 4).holders()
        tally.add(held[tally.ids], np.array([100, 200, 300, 400]))
    profile = tally.profile()
    assert (profile.name, profile.units, profile.width, profile.ranks) == ("words", units, 8, 4)
    assert (profile.recorded.bytes_mean, profile.recorded.bytes_busiest) == (250, 400)
    assert profile.recorded.misfit < 0.01
    k = np.array([1, 2, 4, 12, 48])
    assert profile.union(k) == pytest.approx(truth.union(k), rel=0.04)
    assert profile.skewness(4) == pytest.approx(truth.skewness(4), rel=0.08)


def test_steps_are_no_ranks_where_ranks_share_what_a_step_draws():
    """Ranks share negative samples that change with every step: d_k for up to 4 ranks is as counted."""
    units, tally, sums = 5_000, HolderCounts("negatives", 5_000, 8, "f32", 4, 5_000), []
    for step in range(8):
        random = np.random.default_rng(step)
        shared, own = random.random(units) < 0.05, random.random((4, units)) < 0.02
        held = own | shared
        sums.append([held[:k].any(axis=0).mean() for k in (1, 2, 3, 4)])
        tally.add(held.sum(axis=0), np.zeros(4, dtype=np.int64))
    profile = tally.profile()
    assert profile.recorded.misfit < 0.01
    assert profile.union([1, 2, 3, 4]) == pytest.approx(np.mean(sums, axis=0), rel=0.02)


def test_a_profile_takes_a_step():
    with pytest.raises(CostError, match="bad-profile"):
        HolderCounts("none", 100, 1, "f32", 3, 50).profile()


def test_what_is_written_is_read(tmp_path):
    written = [zipf(0.02, 1.05, 50_000, 64, "bf16", name="a"), random_subset(0.1, 0.3, 77, name="b")]
    path = tmp_path / "model.json"
    path.write_text(dump_profiles(written))
    read = read_profiles(path)
    assert list(read) == ["a", "b"]
    for one, other in zip(written, read.values(), strict=True):
        assert other.to_json() == one.to_json()


def test_one_of_several_is_chosen_by_name(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(dump_profiles([uniform(0.1, 9, name="words"), uniform(0.1, 9, name="tags")]))
    with pytest.raises(CostError, match=r"no profile 'word', but 'words', 'tags'(.|\n)*did you mean 'words'"):
        read_profiles(path, ["tags", "word"])
    assert list(read_profiles(path, ["tags"])) == ["tags"]


def changed(**entry):
    data = json.loads(dump_profiles([uniform(0.5, 9)]))
    data["profiles"][0].update(entry)
    return json.dumps(data)


def without(key):
    data = json.loads(dump_profiles([uniform(0.5, 9)]))
    del data["profiles"][0][key]
    return json.dumps(data)


BAD = {
    "": "holds no profiles",
    "[" * 100_000: "holds no profiles",
    "[]": "holds no profiles",
    '{"zenc_profiles": 1}': "lists no profiles",
    '{"zenc_profiles": 1, "profiles": [3]}': "profile 0: expected dict, found 3",
    without("width"): "lacks width",
    changed(colour="red"): "profile 0: unknown keys: 'colour'",
    changed(units=9.5): "units: expected int, found 9.5",
    changed(units=True): "units: expected int, found True",
    changed(units=10**40): "units; a profile has 1 to",
    changed(dtype="i8"): "unknown dtype",
    changed(ranges=[]): "0 ranges",
    changed(ranges=[[0.5]]): "ranges: 0: 0: expected list, found 0.5",
    changed(ranges=[[[0.5, "1"]]]): "ranges: 0: 0: 1: '1' is no number",
    changed(ranges=[0.5]): "ranges: 0: expected list",
    changed(ranges=[[[10**400, 1]]]): "a number of 401 digits is too great",
    changed(ranges=[[[-0.5, 1.0]]]): "not between 0 and 1",
    changed(ranges=[[[0.5, 0.9]]]): "the sum 1, but 0.9",
    changed(ranges=[[[0.5, 1e999]]]).replace("Infinity", "1e999"): "inf is no number",
    changed(ranges=[[[float("nan"), 1.0]]]): "NaN is no number",
    dump_profiles([uniform(0.5, 9)] * 2): "two profiles of one name",
}


@pytest.mark.parametrize(("text", "words"), BAD.items(), ids=BAD.values())
def test_anything_else_is_refused(tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(CostError, match="bad-profile") as caught:
        read_profiles(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("number", ["2", "true", "null"])
def test_profiles_of_another_version_are_told_from_what_is_none(tmp_path, number):
    path = tmp_path / "other.json"
    path.write_text(f'{{"zenc_profiles": {number}, "profiles": []}}')
    with pytest.raises(CostError, match=f"other-version.*version {json.loads(number)} of profiles"):
        read_profiles(path)


def test_files_that_are_none(tmp_path):
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "missing", binary):
        with pytest.raises(CostError, match="holds no profiles"):
            read_profiles(path)
