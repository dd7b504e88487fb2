"""Numbers of holders across machines: the page has those that were written, and they are predicted now."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.tiers import CLUSTERS, GRADIENTS, PAGE, SCHEMES, kept, tier_point, tiers_table


def test_the_page_has_the_numbers_that_were_written():
    written = kept()
    assert tiers_table(written) in PAGE.read_text()
    places = [(each["gradient"], each["machines"], each["ranks"]) for each in written]
    assert places == [(gradient, *cluster) for gradient in GRADIENTS for cluster in CLUSTERS]


@pytest.mark.parametrize("number", [0, len(CLUSTERS) + 1])
def test_they_are_what_is_predicted_now(number):
    written = kept()[number]
    found = asdict(tier_point(written["gradient"], written["machines"], written["ranks"]))
    for kind in ("seconds", "carried"):
        assert found[kind] == {name: pytest.approx(written[kind][name], rel=1e-6) for name in SCHEMES}


def test_holders_across_machines_carry_least_and_take_least_time():
    for point in kept():
        for kind in ("seconds", "carried"):
            of_all = point[kind]
            assert min(of_all, key=of_all.get) == "holders_across", point
