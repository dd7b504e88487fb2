"""Profiles in files: a written one is read back, and damaged ones are refused by name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenc.errors import CostError
from zenc.gradients.profile_generators import random_subset, uniform, zipf
from zenc.gradients.profile_io import dump_profiles, read_profile, read_profiles


def test_what_is_written_is_read(tmp_path):
    written = [zipf(0.02, 1.05, 50_000, 64, "bf16", name="a"), random_subset(0.1, 0.3, 77, name="b")]
    path = tmp_path / "model.json"
    path.write_text(dump_profiles(written))
    read = read_profiles(path)
    assert list(read) == ["a", "b"]
    for one, other in zip(written, read.values(), strict=True):
        assert other.to_json() == one.to_json()
    assert read_profile(path, "b").units == 77


def test_one_of_several_is_chosen_by_name(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(dump_profiles([uniform(0.1, 9, name="words"), uniform(0.1, 9, name="tags")]))
    with pytest.raises(CostError, match="2 profiles: 'words', 'tags'"):
        read_profile(path)
    with pytest.raises(CostError, match="did you mean 'words'"):
        read_profile(path, "word")
    path.write_text(dump_profiles([uniform(0.1, 9, name="words")]))
    assert read_profile(path).name == "words"


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


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(key=st.sampled_from(["name", "units", "width", "dtype", "ranks", "ranges"]), value=values)
def test_any_other_value_is_read_or_refused(tmp_path_factory, key, value):
    path = tmp_path_factory.mktemp("any") / "profile.json"
    path.write_text(changed(**{key: value}), encoding="utf-8")
    try:
        (profile,) = read_profiles(path).values()
    except CostError as error:
        assert {found.id for found in error.diagnostics} == {"bad-profile"}
    else:
        assert 0 <= profile.density <= 1
