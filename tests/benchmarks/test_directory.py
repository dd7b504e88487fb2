"""Numbers of holders among many ranks: the page has those that were written, and they are predicted now."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.directory import GRADIENTS, PAGE, RANKS, kept, scale_point, tables


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


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-6)


def test_holders_scale():
    """With a directory no slower than balanced; the bytes of the bound and at most 2 % more."""
    for point in kept()["scale"]:
        has_directory = point["ranks"] > 16
        assert point["holders"] < point["balanced"] * (1 if has_directory else 1.2)
        assert (point["holders"] < point["gathering"]) == has_directory
        assert 1 <= point["holders_over_bound"] < 1.02 or point["ranks"] > 1024
    assert max(each["by_directory"] for each in kept()["owned"]) < 1.5
