"""Gradients without values: drawn as the numbers say, read from files without trust, laid out as bitmaps."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.errors import SchemeError
from zenc.gradients.index_sets import drawn, figures, gradients, occupancy, read_gradients
from zenc.gradients.spec import GradientSpec
from zenc.scheme.model import Contiguous, Permutation
from zenc.wire.formats import block_of
from zenc.wire.partitioning import cut, part_sizes, slots_of_units


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
    with pytest.raises(SchemeError) as caught:
        read_gradients(tmp_path / "bad.json")
    assert {d.id for d in caught.value.diagnostics} == {"bad-load"}


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


@settings(max_examples=tried(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.dictionaries(
        st.sampled_from(["units", "width", "dtype", "ranks", "other"]),
        st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=6),
    )
)
def test_any_json_is_read_or_refused(tmp_path, data):
    (tmp_path / "any.json").write_text(json.dumps(data))
    try:
        read_gradients(tmp_path / "any.json")
    except SchemeError as error:
        assert {d.id for d in error.diagnostics} == {"bad-load"}
