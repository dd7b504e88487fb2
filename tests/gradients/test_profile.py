"""Profiles: figures derived from them, against each other and against drawn gradients."""

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refusals
from zenc.errors import CostError, SchemeError
from zenc.gradients.index_sets import drawn, figures, gradients, occupancy, read_gradients
from zenc.gradients.profile import MOST_RANGES, Profile
from zenc.gradients.profile_generators import common_core, random_subset, uniform, zipf
from zenc.gradients.spec import GradientSpec
from zenc.scheme.model import Contiguous, Permutation
from zenc.wire.formats import block_of
from zenc.wire.partitioning import cut, part_sizes, slots_of_units

probabilities = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 1e-9, 1 - 1e-12])


@st.composite
def ranges(draw):
    classes = draw(st.lists(st.tuples(probabilities, st.floats(0.01, 1)), min_size=1, max_size=5))
    total = sum(share for _, share in classes)
    return tuple((p, share / total) for p, share in classes)


profiles = st.builds(
    Profile,
    name=st.just("any"),
    units=st.integers(1, 10**7),
    width=st.integers(1, 300),
    dtype=st.sampled_from(["f32", "f64", "f16", "bf16"]),
    ranks=st.none() | st.integers(1, 9),
    ranges=st.lists(ranges(), min_size=1, max_size=6).map(tuple),
)


@settings(deadline=None)
@given(profiles)
def test_the_sum_of_more_ranks_is_denser_and_not_too_dense(profile):
    k = np.array([0, 0.5, 1, 2, 3, 7, 64, 4096])
    union = profile.union(k)
    assert union[0] == 0 and union[2] == pytest.approx(profile.density, rel=1e-9, abs=1e-12)
    assert (np.diff(union) >= -1e-12).all() and (union <= 1).all()
    assert (union[2:] <= k[2:] * profile.density * (1 + 1e-9) + 1e-12).all()
    assert 1 - 1e-9 <= profile.densification(8) <= 8 + 1e-9
    assert profile.density - 1e-9 <= profile.overlap <= 1 + 1e-9


@settings(deadline=None)
@given(profiles, st.integers(0, 40))
def test_holders_are_all_units_and_agree_with_the_union(profile, n):
    holders = profile.holders(n)
    assert holders.shape == (n + 1,) and (holders >= 0).all()
    assert holders.sum() == pytest.approx(1)
    assert holders @ np.arange(n + 1) == pytest.approx(n * profile.density, rel=1e-6, abs=1e-9)
    assert 1 - holders[0] == pytest.approx(profile.union(n), abs=1e-9)


@settings(deadline=None)
@given(profiles, st.integers(1, 9), st.lists(st.floats(0, 1), max_size=6))
def test_parts_make_up_the_whole(profile, k, inner):
    edges = np.array([0, *sorted(inner), 1]) * profile.units
    parts = profile.union_between(edges[:-1], edges[1:], k)
    assert ((parts >= 0) & (parts <= 1)).all()
    assert parts @ np.diff(edges) / profile.units == pytest.approx(profile.union(k), abs=1e-9)
    assert profile.union_between(0, profile.units, k) == pytest.approx(profile.union(k), abs=1e-9)
    assert 1 - 1e-9 <= profile.skewness(4) <= 4 + 1e-9


def test_parts_and_ranks_are_broadcast():
    profile = random_subset(0.1, 0.4, 1000, contiguous=True)
    found = profile.union_between(np.array([[0], [500]]), np.array([[500], [1000]]), np.array([1, 2, 4]))
    assert found.shape == (2, 3)
    assert found[0] == pytest.approx(2 * profile.union([1, 2, 4]))
    assert (found[1] == 0).all()
    assert profile.union_between([7, 0], [7, 250], 1) == pytest.approx([0, 0.4])


@settings(deadline=None)
@given(profiles, st.integers(1, 600))
def test_blocks_are_as_dense_as_units_or_denser(profile, block):
    assert profile.blocks(3, 1) == pytest.approx(profile.union(3), abs=1e-12)
    assert profile.union(3) - 1e-9 <= profile.blocks(3, block) <= 1


def test_holders_among_thousands_of_ranks():
    holders = zipf(0.02, 1.05, 200_000).holders(4096)
    assert holders.sum() == pytest.approx(1, rel=1e-9)
    assert holders @ np.arange(4097) == pytest.approx(4096 * 0.02, rel=1e-6)


def test_nothing_and_everything():
    nothing, everything = uniform(0.0, 10), uniform(1.0, 10)
    assert (nothing.density, nothing.overlap, nothing.skewness(4), float(nothing.densification(3))) == (0, 0, 1, 1)
    assert (everything.density, everything.overlap, everything.skewness(4)) == (1, 1, 1)
    assert nothing.holders(2).tolist() == [1, 0, 0] and everything.holders(2).tolist() == [0, 0, 1]


def test_it_can_be_copied_and_sent():
    profile = common_core(0.1, 0.5, 100)
    for other in (pickle.loads(pickle.dumps(profile)), copy.deepcopy(profile)):
        assert other.ranges == profile.ranges and other.union(3) == profile.union(3)


BAD = [
    ({"units": 0}, "0 units"), ({"units": 1 << 63}, "units; a profile has 1 to"), ({"width": 0}, "0 values"),
    ({"dtype": "i8"}, "unknown dtype 'i8'"), ({"ranks": 0}, "recorded on 0 ranks"), ({"ranges": ()}, "0 ranges"),
    ({"ranges": (((0.5, 1.0),),) * (MOST_RANGES + 1)}, "257 ranges"), ({"ranges": ((),)}, "0 classes"),
    ({"ranges": (((-0.1, 1.0),),)}, "not between 0 and 1"),
    ({"ranges": (((float("nan"), 1.0),),)}, "not between 0 and 1"),
    ({"ranges": (((0.1, 0.5), (0.2, 0.6)),)}, "the sum 1, but 1.1"),
    ({"ranges": (((0.1, float("nan")),),)}, "the sum 1, but nan"),
    ({"ranges": (((0.1, 2.0), (0.2, -1.0)),)}, "0 or more"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_what_can_not_be_is_refused(change, words):
    good = {"name": "x", "units": 9, "width": 1, "dtype": "f32", "ranks": None, "ranges": (((0.5, 1.0),),)}
    assert Profile(**good).density == 0.5
    with pytest.raises(CostError, match="bad-profile") as caught:
        Profile(**{**good, **change})
    assert words in str(caught.value)


def test_of_many_bad_ranges_three_are_told():
    refused = refusals(CostError, Profile, "x", 9, 1, "f32", None, (((2.0, 1.0),),) * 5)
    told = [found.message.partition(" has")[0] for found in refused]
    assert told == [f"profile 'x': range {number}" for number in range(3)]


def test_ranks_are_drawn_alike_and_apart():
    load = GradientSpec(10_000, 1, "f32", 0.1)
    first, again = drawn(load, 4), drawn(load, 4)
    assert all(len(ids) == 1000 and np.array_equal(ids, b) for ids, b in zip(first.held, again.held, strict=True))
    assert not np.array_equal(first.held[0], first.held[1])
    assert figures(first).overlap == pytest.approx(0.1, abs=0.02)
    assert figures(first).skewness == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("overlap", [0.05, 0.3, 0.9, 1.0])
def test_ranks_overlap_as_much_as_they_should(overlap):
    """Sums densify as the random-subset model says: (1 - (1 - q)^n) / q."""
    found = figures(drawn(GradientSpec(100_000, 1, "f32", 0.05, overlap=overlap), 8))
    assert found.overlap == pytest.approx(overlap, rel=0.05)
    assert found.densification == pytest.approx((1 - (1 - overlap) ** 8) / overlap, rel=0.02)


def test_zipf_makes_low_units_hot():
    """V = 200k at 2 % and Zipf 1.05 give 1.56 holders per row on average for 8 ranks."""
    of = drawn(GradientSpec(200_000, 64, "f32", 0.02, zipf=1.05), 8)
    holders = of.holders()
    assert (holders[:100] >= 7).all()
    assert holders[holders > 0].mean() == pytest.approx(1.56, abs=0.05)
    assert figures(of).skewness > 3


@pytest.mark.parametrize("density", [0.0, 1e-6, 0.5, 1.0])
def test_every_density_can_be_drawn(density):
    for options in ({}, {"zipf": 2.0}, {"overlap": 1.0}):
        of = drawn(GradientSpec(1000, 1, "f32", density, **options), 3)
        assert [len(ids) for ids in of.held] == [round(1000 * density)] * 3


@settings(deadline=None)
@given(units=st.integers(1, 700), parts=st.integers(1, 9), share=st.floats(0, 1), seed=st.none() | st.integers(0, 9))
def test_bitmaps_have_the_bits_of_the_slots(units, parts, share, seed):
    mapping = Contiguous() if seed is None else Permutation(seed)
    of = gradients(units, 1, "f32", [np.flatnonzero(np.random.default_rng(r).random(units) < share) for r in range(3)])
    bitmaps = occupancy(of, cut(mapping, units, 1, parts))
    block = block_of(mapping, units, 1, parts)
    per_part = part_sizes(mapping, units, 1, parts)[0]
    for rank, ids in enumerate(of.held):
        slots = np.sort(slots_of_units(mapping, units, ids, block))
        for part in range(parts):
            bits = np.flatnonzero(np.unpackbits(bitmaps[rank, part].view(np.uint8), bitorder="little"))
            assert np.array_equal(bits + part * per_part, slots[slots // per_part == part])


def test_recorded_files_are_read(tmp_path):
    ranks = [[3, 1, 3], [], [9]]
    (tmp_path / "a.json").write_text(json.dumps({"units": 10, "width": 4, "dtype": "f16", "ranks": ranks}))
    arrays = {f"rank{rank}": np.array(ids, np.int32) for rank, ids in enumerate(ranks)}
    np.savez(tmp_path / "a.npz", units=10, width=4, dtype="f16", **arrays)
    for name in ("a.json", "a.npz"):
        of = read_gradients(tmp_path / name)
        assert (of.units, of.width, of.dtype, of.unit_bytes) == (10, 4, "f16", 8)
        assert [ids.tolist() for ids in of.held] == [[1, 3], [], [9]]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "3", "{", '{"units": 10}', '{"ranks": [[1]]}', '{"units": 10, "ranks": []}',
        '{"units": 10, "ranks": [[10]]}', '{"units": 10, "ranks": [[-1]]}', '{"units": 10, "ranks": [[1.5]]}',
        '{"units": 10, "ranks": [["a"]]}', '{"units": 10, "ranks": [[[1], [2, 3]]]}', '{"units": 10, "ranks": 7}',
        '{"units": 1e3, "ranks": [[1]]}', '{"units": true, "ranks": [[1]]}',
        '{"units": 10, "width": 0, "ranks": [[1]]}',
        '{"units": 10, "dtype": "f8", "ranks": [[1]]}', '{"units": 10, "ranks": [[99999999999999999999]]}',
        '{"units": 4294967297, "ranks": [[1]]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_files_that_hold_no_index_sets(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    assert {d.id for d in refusals(SchemeError, read_gradients, tmp_path / "bad.json")} == {"bad-load"}


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "objects.npz", units=10, rank0=np.array([Bomb()], dtype=object))
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no archive")
    for name in ("objects.npz", "pickle.npz", "broken.npz", "missing.npz", "missing.json"):
        with pytest.raises(SchemeError, match="bad-load"):
            read_gradients(tmp_path / name)
