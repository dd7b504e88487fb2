"""Shapes of builders, and the routes through them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.errors import TopologyError
from zenc.topology.model import Link, Topology
from zenc.topology.shapes import dgx, dragonfly, fat_tree, nodes, ring, torus

SMALL = [
    ring(1), ring(2), ring(5), torus(4), torus(2, 3), torus(3, 3, 3), torus(2, 1, 2, 2), fat_tree(2), fat_tree(4),
    nodes(1), nodes(3, gpus=4), nodes(2, gpus=4, nics=3), dragonfly(2, 2, 1), dragonfly(1, 3, 2, groups=4),
    dgx(1), dgx(3),
]  # fmt: skip


def ends(topology: Topology, source: int, target: int) -> list[str]:
    route = topology.route(source, target)
    assert route is not None
    return [topology.label(link.target) for link in route]


@pytest.mark.parametrize("topology", SMALL, ids=lambda topology: f"{topology.name}-{topology.size}")
def test_levels_count_the_ranks(topology: Topology) -> None:
    product = 1
    for count in topology.level_sizes.values():
        product *= count
    assert product == topology.size == len(topology.ranks)
    places = [topology.coordinates(rank) for rank in topology.ranks]
    assert places == sorted(set(places))


@pytest.mark.parametrize("topology", SMALL, ids=lambda topology: f"{topology.name}-{topology.size}")
def test_every_link_has_its_twin(topology: Topology) -> None:
    links = {(link.source, link.target): link for link in topology.links}
    assert len(links) == len(topology.links) == topology.graph.number_of_edges()
    for (source, target), link in links.items():
        twin = links[target, source]
        assert (twin.bandwidth, twin.latency, twin.kind) == (link.bandwidth, link.latency, link.kind)


def check_route(topology: Topology, source: int, target: int) -> None:
    """Check that a route is links in a row, with no rank between its ends."""
    route = topology.route(source, target)
    if route is None:
        return
    nodes_met = [source, *(link.target for link in route)]
    assert [link.source for link in route] == nodes_met[:-1] and nodes_met[-1] == target
    assert all(isinstance(node, str) for node in nodes_met[1:-1])
    assert len(set(nodes_met)) == len(nodes_met)


@pytest.mark.parametrize("topology", SMALL, ids=lambda topology: f"{topology.name}-{topology.size}")
def test_routes(topology: Topology) -> None:
    for source, target in itertools.product(topology.ranks, repeat=2):
        check_route(topology, source, target)
        if topology.switches:
            assert topology.route(source, target) is not None
        neighbour = topology.graph.has_edge(source, target)
        assert (topology.route(source, target) is not None) >= neighbour


def test_a_torus_has_two_neighbours_a_dimension() -> None:
    assert [rank for rank in range(1, 12) if torus(3, 4).route(0, rank)] == [1, 3, 4, 8]
    assert torus(3, 4, 5).graph.number_of_edges() == 3 * 4 * 5 * 6
    assert torus(2, 2).graph.number_of_edges() == 2 * 4


def test_machines_send_through_their_cards() -> None:
    topology = nodes(2, gpus=4)
    assert ends(topology, 0, 3) == ["nvswitch(0)", "gpu(0, 3)"]
    assert ends(topology, 0, 5) == ["nvswitch(0)", "nic(0, 0)", "network", "nic(1, 0)", "nvswitch(1)", "gpu(1, 1)"]
    assert (topology.hosts[1].name, topology.hosts[1].ranks) == ("node(1)", (4, 5, 6, 7))


def test_a_fat_tree_is_spread_over_its_cores() -> None:
    """A shift by half the tree sends one message over each link at most: D-mod-k does not block shifts."""
    topology = fat_tree(4)
    load: dict[tuple[object, object], int] = {}
    for rank in topology.ranks:
        for link in topology.route(rank, (rank + 8) % 16) or ():
            load[link.source, link.target] = load.get((link.source, link.target), 0) + 1
    assert max(load.values()) == 1


def test_a_dragonfly_has_one_link_between_groups() -> None:
    topology = dragonfly(2, 4, 2)
    assert topology.level_sizes == {"group": 9, "router": 4, "gpu": 2}
    between = [link for link in topology.links if isinstance(link.source, str) and isinstance(link.target, str)]
    groups = [(str(link.source)[7], str(link.target)[7]) for link in between]
    assert sorted(pair for pair in groups if pair[0] != pair[1]) == sorted(itertools.permutations("012345678", 2))
    assert all(topology.graph.out_degree(switch) == 2 + 3 + 2 for switch in topology.switches)


@given(st.integers(1, 4), st.integers(2, 5), st.integers(1, 5), st.data())
@settings(deadline=None, max_examples=tried(30))
def test_routes_are_widest_then_shortest(k: int, gpus: int, nics: int, data: st.DataObject) -> None:
    """Routes are compared with networkx: all ways through switches, by narrowest link, links, latency."""
    import networkx as nx

    topology = nodes(k, gpus=gpus, nics=nics, network_bandwidth=data.draw(st.sampled_from([1e9, 450e9, 900e9])))
    source, target = data.draw(
        st.tuples(*[st.sampled_from(topology.ranks)] * 2).filter(lambda ends: len(set(ends)) == 2)
    )
    inner = topology.graph.subgraph([*topology.switches, source, target])
    ways = [tuple(nx.utils.pairwise(way)) for way in nx.all_simple_paths(inner, source, target, cutoff=8)]
    costs = [cost([topology.link(*ends) for ends in way]) for way in ways]
    route = topology.route(source, target)
    assert route is not None
    assert cost(route) == min(costs)


def cost(way: Sequence[Link]) -> tuple[float, int, int]:
    return -min(link.bandwidth for link in way), len(way), sum(round(link.latency * 1e12) for link in way)


@pytest.mark.parametrize(
    ("build", "id"),
    [
        (lambda: ring(0), "wrong-range"),
        (lambda: fat_tree(3), "wrong-range"),
        (lambda: torus(), "wrong-arguments"),
        (lambda: torus(3, 0), "wrong-range"),
        (lambda: dragonfly(1, 2, 1, groups=4), "wrong-range"),
        (lambda: nodes(2, gpus=-1), "wrong-range"),
        (lambda: ring(10**6), "topology-too-large"),
        (lambda: torus(1000, 1000), "topology-too-large"),
        (lambda: fat_tree(1000), "topology-too-large"),
        (lambda: dragonfly(1, 400, 1, groups=100), "topology-too-large"),
        (lambda: ring(3, bandwidth=0), "bad-bandwidth"),
        (lambda: ring(3, bandwidth=float("nan")), "bad-bandwidth"),
        (lambda: dgx(2, network_latency=-1e-6), "bad-latency"),
    ],
)
def test_what_is_no_cluster(build: object, id: str) -> None:
    assert callable(build)
    with pytest.raises(TopologyError) as refused:
        build()
    assert {diagnostic.id for diagnostic in refused.value.diagnostics} == {id}
