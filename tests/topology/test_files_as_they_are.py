"""Files of other programs as they are, and the shapes of builders: ranks, links, widths and levels."""

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from tests.support.refusals import refusals
from tests.support.survival import facts
from zenc.errors import TopologyError
from zenc.topology import link_specs
from zenc.topology.load import load_topology, load_with_warnings
from zenc.topology.model import Link, Topology
from zenc.topology.shapes import dgx, dragonfly, fat_tree, nodes, ring, torus

SAMPLES = Path(__file__).parent / "samples"
SWITCHED = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'


def gpu(busid: str, inside: str = "", dev: int = 0, sm: int = 90, more: str = "", slot: str = "") -> str:
    element = f'<gpu dev="{dev}" sm="{sm}" {more}>{inside}</gpu>'
    return f'<pci busid="{busid}" class="0x030200" {slot}>{element}</pci>'


def read(folder: Path, *cpus: str) -> tuple[Topology, list[str]]:
    (folder / "it.xml").write_text(f'<system version="1">{"".join(cpus)}</system>\n')
    topology, warnings = load_with_warnings(folder / "it.xml")
    return topology, [each.message for each in warnings]


def widths(topology: Topology, kind: str) -> list[float]:
    return [link.bandwidth for link in topology.links if link.kind == kind]


@pytest.mark.parametrize("affinities", ["44-51\t0\t\tN/A", "\t0\t\tN/A", "\t0"])
def test_an_empty_cell_shifts_no_column(tmp_path: Path, affinities: str) -> None:
    rows = [[" X " if g == h else "SYS" for h in range(4)] for g in range(4)]
    lines = [f"GPU{g}\t" + "\t".join(row) + "\t" + affinities.replace("0", str(g // 2)) for g, row in enumerate(rows)]
    head = "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    (tmp_path / "it.txt").write_text("\n".join([head, *lines]) + "\n")
    topology = load_topology(tmp_path / "it.txt")
    assert [topology.route(0, 1)[0].target, topology.route(2, 3)[0].target] == ["cpu(0)", "cpu(1)"]  # type: ignore[index]
    assert len([name for name in topology.switches if str(name).startswith("cpu")]) == 2


PASTED: dict[str, Callable[[str], bytes]] = {
    "quoted": lambda text: re.sub("^", "> ", text, flags=re.MULTILINE).encode(),
    "quoted twice, below a line": lambda text: b"You wrote:\n" + re.sub("^", ">> ", text, flags=re.MULTILINE).encode(),
    "cat -n": lambda text: "".join(f"{n:6}\t{line}\n" for n, line in enumerate(text.split("\n"), 1)).encode(),
    "grep -n": lambda text: "".join(f"{n}:{line}\n" for n, line in enumerate(text.split("\n"), 1)).encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "lines of Windows": lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
}


@pytest.mark.parametrize("form", PASTED)
@pytest.mark.parametrize("name", ["dgx_a100.txt", "v100_cube_mesh.txt", "virtual.xml"])
def test_pasted_text_is_read(tmp_path: Path, name: str, form: str) -> None:
    (tmp_path / name).write_bytes(PASTED[form]((SAMPLES / name).read_text()))
    assert facts(load_topology(tmp_path / name))[1:] == facts(load_topology(SAMPLES / name))[1:]


def test_a_slot_of_width_0_has_16_lanes(tmp_path: Path) -> None:
    slots = [
        gpu(f"0000:a{n}:00.0", dev=n, slot=f'link_speed="32.0 GT/s PCIe" link_width="{w}"')
        for n, w in enumerate((0, 16))
    ]
    topology, _ = read(tmp_path, f'<cpu numaid="0">{"".join(slots)}</cpu>')
    assert widths(topology, "pcie") == [16 * link_specs.PCIE_LANE_BY_GTS[32.0]] * 4


def test_trays_of_one_domain_are_hosts(tmp_path: Path) -> None:
    card = '<nic><net name="mlx5_0" speed="400000"/></nic>'
    slots = [gpu("0008:01:00.0", SWITCHED, 0, 100) + card, gpu("0009:01:00.0", SWITCHED, 1, 100)]
    trays = [
        f'<cpu host_hash="{host}" numaid="{numa}">{slots[numa]}</cpu>' for host in ("0xa", "0xb") for numa in (0, 1)
    ]
    topology, told = read(tmp_path, *trays)
    assert not told and topology.level_sizes == {"node": 2, "gpu": 2}
    assert [host.ranks for host in topology.hosts] == [(0, 1), (2, 3)]
    joined = {(link.source, link.target) for link in topology.links if link.kind == "system"}
    assert joined == {("cpu(0)", "cpu(1)"), ("cpu(1)", "cpu(0)"), ("cpu(2)", "cpu(3)"), ("cpu(3)", "cpu(2)")}
    assert widths(topology, "nvlink") == [900e9] * 8 and widths(topology, "network") == [50e9] * 4


def test_parts_of_a_gpu_share_its_links(tmp_path: Path) -> None:
    inside = SWITCHED.replace("18", "36") + '<c2c bw="56376" count="7"/>'
    halves = "".join(f'<gpu dev="0" sm="107" mlopart="{part}">{inside}</gpu>' for part in (1, 0))
    topology, _ = read(tmp_path, f'<cpu numaid="0"><pci busid="0002:81:00.0" class="0x030200">{halves}</pci></cpu>')
    assert topology.size == 2
    assert widths(topology, "nvlink") == [18 * 50e9] * 4 and widths(topology, "c2c") == [56376e6 * 7 / 2] * 4


@pytest.mark.parametrize(("sm", "each", "count"), [(121, 43125, 8), (90, 44712, 10)])
def test_superchips_have_a_link_to_their_cpu(tmp_path: Path, sm: int, each: int, count: int) -> None:
    inside, slot = f'<c2c bw="{each}" count="{count}"/>', 'link_speed="2.5 GT/s PCIe" link_width="16"'
    cpus = [f'<cpu numaid="{n}">{gpu(f"000{n}:01:00.0", inside, n, sm, slot=slot)}</cpu>' for n in (0, 1)]
    topology, told = read(tmp_path, *cpus)
    assert not told
    assert [topology.link(rank, f"cpu({rank})").bandwidth for rank in (0, 1)] == [each * count * 1e6] * 2
    assert not widths(topology, "pcie")  # of the same ends, and narrower


def test_a_link_back_to_its_own_gpu_is_left_out(tmp_path: Path) -> None:
    own = [f"000{n}:00:00.0" for n in (1, 2)]
    links = [f'<nvlink target="{busid}" count="12" tclass="0x030200"/>' for busid in own]
    topology, told = read(
        tmp_path,
        *(f"<cpu>{gpu(busid, link, n, 80)}</cpu>" for n, (busid, link) in enumerate(zip(own, links, strict=True))),
    )
    assert topology.size == 2 and not widths(topology, "nvlink")
    assert [message for message in told if "leads back to its own GPU" in message] == told and len(told) == 2


@pytest.mark.parametrize("numbers", [(0, 0, 0), None])
def test_gpus_without_numbers_are_numbered_by_bus_id(tmp_path: Path, numbers: tuple[int, ...] | None) -> None:
    order = ["0000:b1:00.0", "0000:0a:00.0", "0000:9:00.0"]
    empty = "".join(f'<pci busid="{busid}" class="0x030200"/>' for busid in order)
    listed = "".join(gpu(busid, dev=n) for busid, n in zip(order, numbers or (0, 0, 0), strict=True))
    slots = [f'<pci busid="0000:c{n}:00.0" class="0x060400">{each}</pci>' for n, each in enumerate(
        re.findall(r"<pci.*?(?:/>(?!<)|</pci>|/>(?=<pci))", listed if numbers else empty)
    )]  # fmt: skip
    topology, _ = read(tmp_path, f'<cpu numaid="0">{"".join(slots)}</cpu>')
    above = [topology.graph.nodes[next(iter(topology.graph.successors(rank)))]["about"] for rank in range(3)]
    assert above == ["0000:c2:00.0", "0000:c1:00.0", "0000:c0:00.0"]


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
        (lambda: ring(0), "wrong-range"), (lambda: fat_tree(3), "wrong-range"), (lambda: torus(), "wrong-arguments"),
        (lambda: torus(3, 0), "wrong-range"), (lambda: dragonfly(1, 2, 1, groups=4), "wrong-range"),
        (lambda: nodes(2, gpus=-1), "wrong-range"), (lambda: ring(10**6), "topology-too-large"),
        (lambda: torus(1000, 1000), "topology-too-large"), (lambda: fat_tree(1000), "topology-too-large"),
        (lambda: dragonfly(1, 400, 1, groups=100), "topology-too-large"),
        (lambda: ring(3, bandwidth=0), "bad-bandwidth"), (lambda: ring(3, bandwidth=float("nan")), "bad-bandwidth"),
        (lambda: dgx(2, network_latency=-1e-6), "bad-latency"),
    ],
)  # fmt: skip
def test_what_is_no_cluster(build: object, id: str) -> None:
    assert callable(build)
    assert {diagnostic.id for diagnostic in refusals(TopologyError, build)} == {id}
