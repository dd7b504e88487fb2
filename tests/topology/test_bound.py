"""The bound of a cluster is that of all of its cuts, one by one."""

from __future__ import annotations

import time
from collections.abc import Collection
from fractions import Fraction
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.errors import TopologyError
from zenc.topology.bound import bound_of
from zenc.topology.load import load_topology
from zenc.topology.model import Link, Topology


def least_cut(topology: Topology, links: Collection[Link]) -> Fraction:
    nodes = list(topology.graph)
    rates = []
    for count in range(1, len(nodes)):
        for chosen in combinations(nodes, count):
            inside = set(chosen)
            ranks = sum(isinstance(node, int) for node in inside)
            if 0 < ranks < topology.size:
                leaving = (x for x in links if x.source in inside and x.target not in inside)
                rates.append(Fraction(sum(round(link.bandwidth) for link in leaving), ranks))
    return min(rates)


@st.composite
def clusters(draw: st.DrawFn) -> str:
    """Draw a text of a connected cluster: a ring of everything, one way, and links at random."""
    ranks, switches = draw(st.integers(2, 5)), draw(st.integers(0, 3))
    names = [f"gpu({rank})" for rank in range(ranks)] + [f"s({k})" for k in range(switches)]
    order = draw(st.permutations(names))
    ends = {(a, b) for a, b in zip(order, [*order[1:], order[0]], strict=True)}
    ends |= set(draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=12)))
    links = [f"link {a} -> {b}: {draw(st.integers(1, 9))} B/s" for a, b in sorted(ends) if a != b]
    return "\n".join(
        ["topology drawn {", f"levels: gpu({ranks})", *(f"switch s({k})" for k in range(switches)), *links, "}"]
    )


@settings(max_examples=tried(60), deadline=None)
@given(text=clusters())
def test_the_bound_is_the_least_of_all_cuts(text: str) -> None:
    topology = load_topology(text)
    taken = {link for pair in permutations(topology.ranks, 2) for link in topology.route(*pair) or ()}
    for links, bound in ((taken, bound_of(topology)), (topology.links, bound_of(topology, links=topology.links))):
        assert bound.rate == least_cut(topology, links)
        leaving = sum(x.bandwidth for x in links if x.source in bound.cut and x.target not in bound.cut)
        assert (bound.leaving, bound.rate) == (leaving, Fraction(round(leaving), bound.inside))


@pytest.mark.parametrize(
    ("cluster", "gigabytes"),
    [
        ("ring(8, bandwidth = 50 GB/s)", 8 * 100 / 7 / 2),
        ("dgx(2)", 16 * 500 / 15 / 2),
        ("nodes(4, bandwidth = 300 GB/s, network_bandwidth = 400 Gbit/s)", 32 * 50 / 24 / 2),
    ],
)
def test_bounds_that_can_be_worked_out_by_hand(cluster: str, gigabytes: float) -> None:
    """A ring hears on two links, a GPU of a DGX on NVLink and its card, and a machine on its one card."""
    assert bound_of(load_topology(cluster)).all_gather / 2 == pytest.approx(gigabytes * 1e9)


def test_the_bound_of_256_ranks_takes_seconds() -> None:
    started = time.process_time()
    assert bound_of(load_topology("torus(16, 16)")).rate == Fraction(4 * 50 * 10**9, 255)
    assert time.process_time() - started < 10


def test_one_rank_and_thousands_are_refused() -> None:
    for cluster, words in (("ring(4096)", "at most 512"), ("nodes(1, gpus = 1)", "nothing to send")):
        with pytest.raises(TopologyError, match=words):
            bound_of(load_topology(cluster))
