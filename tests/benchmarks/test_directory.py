"""Numbers of holders among many ranks: the page has those that were written, and they are predicted now."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.directory import GRADIENTS, LAB_RANKS, PAGE, RANKS, kept, lab_point, scale_point, tables


def test_the_page_has_the_numbers_that_were_written():
    page, written = PAGE.read_text(), kept()
    assert tables(written) in page
    places = [(each["gradient"], each["ranks"]) for each in written["scale"]]
    assert places == [(gradient, ranks) for gradient in GRADIENTS for ranks in RANKS]


@pytest.mark.parametrize("number", [0, len(RANKS) + 1])
def test_they_are_what_is_predicted_now(number):
    written = kept()["scale"][number]
    gradient, ranks, *seconds_and_bytes = asdict(scale_point(written["gradient"], written["ranks"])).values()
    assert [gradient, ranks, *seconds_and_bytes] == [gradient, ranks, *map(near, list(written.values())[2:])]


def test_the_laboratory_would_have_a_directory_among_16_ranks_too():
    found = {(each["gradient"], each["ranks"]): each for each in kept()["lab"]}
    assert list(found) == [(gradient, ranks) for gradient in GRADIENTS for ranks in LAB_RANKS]
    for gradient in GRADIENTS:
        at = found[gradient, 16]
        assert at["directory"] < at["gathering"] < at["balanced"]
        assert asdict(lab_point(gradient, 16)) == {**at, **{name: near(at[name]) for name in list(at)[2:]}}


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-6)


def test_holders_scale():
    """From 16 ranks on no slower than balanced; the bytes of the bound and at most 2 % more."""
    for point in kept()["scale"]:
        assert point["holders"] < point["balanced"] and point["holders"] < point["gathering"]
        assert 1 <= point["holders_over_bound"] < 1.02 or point["ranks"] > 1024
    assert max(each["by_directory"] for each in kept()["owned"]) < 1.5
