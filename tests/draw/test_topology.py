"""Drawings of topologies show every node and every link, on the paper, without covering each other."""

import itertools
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draw.test_scheme import HOSTILE, NAMESPACE, off_paper
from tests.support.fuzz import tried
from tests.support.pictures import marks_of, numbers, words
from tests.support.survival import Faults, faults_of
from zenc.draw.layers import groups_of, layers_of, node_layout
from zenc.draw.links import Room
from zenc.draw.scene import Mark, Scene
from zenc.draw.sheet import LABEL_SIZE, width_of
from zenc.draw.topology import MOST_RANKS, draw_topology, rate
from zenc.errors import DrawingError
from zenc.topology.builder import TopologyBuilder
from zenc.topology.load import load_topology
from zenc.topology.model import Topology
from zenc.topology.shapes import dgx, dragonfly, fat_tree, nodes, ring, torus

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLUSTERS: dict[str, Callable[[], Topology]] = {
    "one": lambda: ring(1), "pair": lambda: ring(2), "ring": lambda: ring(7), "grid": lambda: torus(3, 4),
    "cube": lambda: torus(2, 3, 2), "nodes": lambda: nodes(3, gpus=4, nics=2), "dgx": lambda: dgx(2),
    "fat_tree": lambda: fat_tree(4), "dragonfly": lambda: dragonfly(2, 4, 1),
}  # fmt: skip


def groups(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{NAMESPACE}g") if group.get("class") == kind]


def room_of(box: Mark) -> Room:
    x, y, width, height = numbers(box, "x", "y", "width", "height")
    return Room(x + width / 2, y + height / 2, width, height)


def spots(picture: Scene) -> list[Room]:
    return [room_of(box) for box in marks_of(picture, "rect", "edge")]


def levels(picture: Scene) -> list[Room]:
    return [room_of(box) for box in marks_of(picture, "rect", "level")]


def ranks_of(picture: Scene) -> dict[str, Room]:
    """Return the places of the nodes that have a name, by name."""
    named = [spot for spot in marks_of(picture, "g", "spot") if len(spot.children) == 2]
    return {spot.children[1].words: room_of(spot.children[0]) for spot in named}


def shrunk(room: Room) -> Room:
    """Return ``room`` without its edge: neighbours may touch."""
    return Room(room.x, room.y, room.width - 1e-6, room.height - 1e-6)


def not_whole(topology: Topology) -> Faults:
    """Return faults: a node without a box, or a link without a line, where two equal directions share one."""
    root = ElementTree.fromstring(draw_topology(topology).svg())
    lines = groups(root, "link")
    both = {frozenset(ends) for ends in topology.graph.edges if alike(topology, *ends)}
    single = [ends for ends in topology.graph.edges if not alike(topology, *ends)]
    return off_paper(root) + faults_of(
        other_boxes=len(groups(root, "spot")) == len(topology.graph),
        other_lines=len(lines) == len(both) + len(single),
        other_heads=sum(len(line.findall(f"{NAMESPACE}path")) == 2 for line in lines) == len(single),
    )


def alike(topology: Topology, one: object, other: object) -> bool:
    edges = topology.graph.edges
    return (other, one) in edges and edges[one, other]["bandwidth"] == edges[other, one]["bandwidth"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_common_shapes(name: str) -> None:
    topology = CLUSTERS[name]()
    assert not_whole(topology) == []
    for one, other in itertools.combinations(spots(draw_topology(topology)), 2):
        assert not shrunk(one).meets(shrunk(other)), f"{one} lies on {other}"


def test_levels_have_boxes() -> None:
    picture = draw_topology(nodes(3, gpus=4))
    assert [each for each in words(picture) if each.startswith("node ")] == ["node 0", "node 1", "node 2"]
    boxes, named = levels(picture), ranks_of(picture)
    for rank in range(12):
        box, spot = boxes[rank // 4], named[str(rank)]
        assert abs(spot.x - box.x) <= (box.width - spot.width) / 2
    assert len(levels(draw_topology(fat_tree(4)))) == 4 + 8


def test_machines_of_different_sizes_have_boxes() -> None:
    topology = load_topology(EXAMPLES / "unequal_machines" / "cluster.zen")
    picture = draw_topology(topology)
    assert [each for each in words(picture) if each.startswith("node(")] == ["node(0)", "node(1)", "node(2)"]
    named = ranks_of(picture)
    for box, host in zip(levels(picture), topology.hosts, strict=True):
        inside = [abs(named[str(rank)].x - box.x) <= box.width / 2 for rank in topology.ranks]
        assert [rank for rank, is_inside in enumerate(inside) if is_inside] == list(host.ranks)
    assert groups_of(dgx(1)) == [[("node 0", range(8))]] and groups_of(ring(3)) == []


def test_switches_stand_above_what_they_serve() -> None:
    layers = layers_of(fat_tree(4))
    assert [len(layer) for layer in layers] == [16, 8, 8, 4]
    places = node_layout(fat_tree(4)).places
    heights = [places[layer[0]].y for layer in layers]
    assert heights == sorted(heights, reverse=True)


def test_wider_links_are_drawn_wider() -> None:
    lines = {line.attributes["data-kind"]: line for line in marks_of(draw_topology(dgx(2)), "g", "link")}
    (nvlink,), (pcie,) = (numbers(lines[kind].children[0], "stroke-width") for kind in ("nvlink", "pcie"))
    assert nvlink > pcie
    assert "450 GB/s" in lines["nvlink"].title


@given(
    size=st.integers(1, 9),
    switches=st.integers(0, 5),
    links=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13), st.sampled_from((1e8, 2e9, 9e12))), max_size=30),
)
@settings(max_examples=tried(60), deadline=None)
def test_any_graph(size: int, switches: int, links: list[tuple[int, int, float]]) -> None:
    draft = TopologyBuilder("any", "")
    draft.set_levels(("gpu", size))
    names: list[int | str] = [*range(size), *(draft.add_switch(f"s({i})") for i in range(switches))]
    for one, other in itertools.pairwise(names):
        draft.connect(one, other, 1e9, 1e-6)
    for one, other, bandwidth in links:
        a, b = names[one % len(names)], names[other % len(names)]
        if a != b and (a, b) not in draft.links:
            draft.connect(a, b, bandwidth, 1e-6, one_way=True)
    assert not_whole(draft.finish()) == []


def test_links_say_what_they_carry() -> None:
    picture = draw_topology(nodes(2, gpus=4))
    assert Counter(label.words for label in marks_of(picture, "text", "label")) == {"450 GB/s": 8, "50 GB/s": 4}
    assert {label.words for label in marks_of(draw_topology(nodes(2)), "text", "label")} == {
        "8 \N{MULTIPLICATION SIGN} 450 GB/s",
        "50 GB/s",
    }


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_label_of_a_link_lies_on_another_or_on_a_node(name: str) -> None:
    picture = draw_topology(CLUSTERS[name]())
    rooms = spots(picture)
    for label in marks_of(picture, "text", "label"):
        x, y = numbers(label, "x", "y")
        room = Room(x, y - 3.5, width_of(label.words, LABEL_SIZE), LABEL_SIZE)
        assert not any(room.meets(other) for other in rooms), label
        assert room.x - room.width / 2 >= 0 and room.x + room.width / 2 <= picture.width
        rooms.append(room)


def test_levels_are_said_by_their_numbers() -> None:
    texts = words(draw_topology(nodes(4, gpus=2)))
    assert "4 machines of 2 devices on a switch, with 1 network card each, on one network switch." in " ".join(texts)
    assert any("8 ranks \N{MIDDLE DOT} 4 nodes of 2 gpus" in text for text in texts)
    assert any("12 ranks \N{MIDDLE DOT} 3 x 4" in text for text in words(draw_topology(torus(3, 4))))


def test_text_of_a_user_is_escaped() -> None:
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_node(0, kind="rank", label=HOSTILE, memory=None)
    graph.add_node(1, kind="rank", label="ok", memory=None)
    graph.add_node(HOSTILE, kind='"><script>', label=HOSTILE)
    for one, other in ((0, HOSTILE), (HOSTILE, 0), (1, HOSTILE), (HOSTILE, 1)):
        graph.add_edge(one, other, bandwidth=1e9, latency=0.0, kind='"/><script>', span=None)
    text = draw_topology(Topology(HOSTILE, HOSTILE, (), graph)).svg()
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    assert {spot.get("data-kind") for spot in groups(root, "spot")} == {"rank", '"><script>'}


def test_limits() -> None:
    with pytest.raises(DrawingError, match=r"error\[drawing-too-large\]"):
        draw_topology(nodes(MOST_RANKS // 8 + 1))
    assert not_whole(nodes(MOST_RANKS // 8)) == []


def test_rates() -> None:
    assert [rate(x) for x in (12.0, 2.5e3, 1e6, 25e9, 1.8e12)] == [
        "12 B/s", "2.5 kB/s", "1 MB/s", "25 GB/s", "1.8 TB/s",
    ]  # fmt: skip


def test_the_picture_in_the_manual_is_what_zenc_draws(assert_golden: Callable[[str, str], None]) -> None:
    assert_golden("../../docs/images/nodes.svg", draw_topology(load_topology("nodes(2, gpus = 4)")).svg())
