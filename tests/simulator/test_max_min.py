"""Fair rates, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from zenc.simulator.network import Switch, fair_rates


def test_the_textbook_example() -> None:
    """Three flows share two links: the narrow link halves its bandwidth, and the wide one gives the rest."""
    flow, link = np.array([0, 0, 1, 2]), np.array([0, 1, 0, 1])
    assert fair_rates(flow, link, np.ones(4), 3, np.array([2.0, 6.0])).tolist() == [1.0, 1.0, 5.0]


def test_links_of_a_switch_are_called_by_rank_and_direction() -> None:
    labels = [Switch(2, 1e9).label(link) for link in range(4)]
    assert labels == ["rank 0 -> switch", "rank 1 -> switch", "switch -> rank 0", "switch -> rank 1"]


def test_a_flow_that_stands_for_several() -> None:
    assert fair_rates(np.array([0, 1]), np.array([0, 0]), np.array([3.0, 1.0]), 2, np.array([8.0])).tolist() == [2, 2]


@pytest.mark.parametrize("seed", range(20))
def test_rates_are_max_min_fair(seed: int) -> None:
    """No link carries more than it can, and every flow has a full link on which none is faster."""
    random = np.random.default_rng(seed)
    links, flows = int(random.integers(2, 12)), int(random.integers(1, 30))
    on = [random.choice(links, int(random.integers(1, min(4, links) + 1)), replace=False) for _ in range(flows)]
    flow, link = np.repeat(np.arange(flows), [len(each) for each in on]), np.concatenate(on)
    bandwidths = random.uniform(1, 10, links)
    rates = fair_rates(flow, link, np.ones(len(flow)), flows, bandwidths)
    load = np.bincount(link, rates[flow], minlength=links)
    assert (load <= bandwidths * (1 + 1e-9)).all()
    full = load >= bandwidths * (1 - 1e-9)
    fastest = np.array([rates[flow[link == each]].max(initial=0.0) for each in range(links)])
    for number, ways in enumerate(on):
        assert any(full[way] and rates[number] >= fastest[way] * (1 - 1e-9) for way in ways)
