"""Topology files of other programs."""

import json
from pathlib import Path

import pytest

from tests.support.survival import facts
from zenc.errors import TopologyError
from zenc.topology import link_specs
from zenc.topology.importers.graph_files import node_link
from zenc.topology.load import load_topology, load_with_warnings
from zenc.topology.model import Topology

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted(SAMPLES.iterdir())
SHIPPED = ["two_boxes", "p3"]
PCIE_5 = 16 * link_specs.PCIE_LANE_BY_GTS[32.0]


def sample(name: str, **values: int | float | str) -> Topology:
    return load_topology(SAMPLES / name, values)


def labels(topology: Topology, source: int, target: int) -> list[str]:
    route = topology.route(source, target)
    assert route is not None
    return [topology.label(link.target) for link in route]


def bandwidths(topology: Topology, kind: str) -> list[float]:
    return [link.bandwidth for link in topology.links if link.kind == kind]


def test_nccl() -> None:
    topology = sample("hgx_h100.xml")
    assert topology.level_sizes == {"gpu": 8}
    assert labels(topology, 1, 6) == ["nvswitch", "gpu(6)"]
    assert bandwidths(topology, "nvlink") == [450e9] * 16
    assert bandwidths(topology, "pcie") == [PCIE_5] * 2 * 24
    assert bandwidths(topology, "system") == [link_specs.SYSTEM] * 2
    assert topology.graph.nodes["nic(3)"]["about"] == "mlx5_3"
    assert [str(s) for s in topology.switches if s.startswith("pci")] == [f"pci({n})" for n in range(8)]
    span = topology.link(0, "nvswitch").span
    assert span is not None and span.source.line_at(span.start).strip().startswith("<nvlink target=")


def test_nccl_on_four_machines() -> None:
    topology = sample("hgx_h100.xml", nodes=4)
    assert topology.level_sizes == {"node": 4, "gpu": 8}
    way = ["pci(0, 2)", "nic(0, 2)", "network", "nic(3, 2)", "pci(3, 2)", "gpu(3, 2)"]
    assert labels(topology, 2, 26) == way
    assert bandwidths(topology, "network") == [50e9] * 2 * 4 * 8
    slow = sample("hgx_h100.xml", nodes="2", network_bandwidth="100 Gbit/s", network_latency="5 us")
    assert bandwidths(slow, "network") == [12.5e9] * 2 * 2 * 8


def test_nccl_where_the_guest_sees_no_pcie() -> None:
    topology = sample("virtual.xml", nodes=2)
    assert topology.link(0, 1).bandwidth == 12 * 25e9
    assert topology.link(0, "cpu(0, 0)").bandwidth == link_specs.PCIE
    card = topology.link("nic(1, 0)", "network")
    assert (card.bandwidth, card.latency) == (12.5e9, 25.5e-6)
    assert sample("virtual.xml", pcie_bandwidth="8 GB/s").link(0, "cpu(0)").bandwidth == 8e9


def test_machines_of_different_kinds(tmp_path: Path) -> None:
    text = f'topology t {{ like "{SAMPLES}/hgx_h100.xml", "{SAMPLES}/dgx_a100.txt" (network_bandwidth = 10 GB/s) }}'
    topology = load_topology(text)
    assert topology.level_sizes == {"node": 2, "gpu": 8}
    assert bandwidths(topology, "nvlink") == [450e9] * 8 + [300e9] * 8 + [450e9] * 8 + [300e9] * 8
    assert labels(topology, 3, 15) == [
        "pci(0, 3)", "nic(0, 3)", "network", "nic(1, 3)", "pci(1, 3)", "gpu(1, 7)"
    ]  # fmt: skip
    uneven = load_topology(text.replace("dgx_a100.txt", "virtual.xml"))
    assert uneven.level_sizes == {"gpu": 10}
    assert [host.ranks for host in uneven.hosts] == [tuple(range(8)), (8, 9)]


def test_nccl_before_it_has_looked_into_the_slots(tmp_path: Path) -> None:
    """Clouds write such files for NCCL_TOPO_FILE: slots by their class, and nothing in them."""
    slots = "".join(
        f'<pci busid="000{n}:00:00.0" class="{kind}" link_speed="16 GT/s" link_width="16"/>'
        for n, kind in enumerate(["0x030200", "0x020700", "0x030200"])
    )
    bridge = f'<pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">{slots}</pci>'
    (tmp_path / "topo.xml").write_text(f'<system version="1"><cpu numaid="0">{bridge}</cpu></system>')
    topology = load_topology(tmp_path / "topo.xml", {"nodes": 2})
    assert topology.level_sizes == {"node": 2, "gpu": 2}
    assert labels(topology, 1, 2) == ["pci(0, 0)", "nic(0, 0)", "network", "nic(1, 0)", "pci(1, 0)", "gpu(1, 0)"]


def amd(gcn: str, *links: tuple[int, int, int]) -> str:
    """Return RCCL's XML of four GPUs on one CPU; ``links`` are (one, other, count), each listed at both ends."""
    slots = []
    for one in range(4):
        ends = [(b if a == one else a, count) for a, b, count in links if one in (a, b)]
        listed = "".join(f'<xgmi target="0000:0{end}:00.0" count="{count}" tclass="0x038000"/>' for end, count in ends)
        gpu = f'<gpu dev="{one}" sm="104" gcn="{gcn}" arch="1" rank="{one}" gdr="1">{listed}</gpu>'
        slots.append(f'<pci busid="0000:0{one}:00.0" class="0x038000" link_speed="" link_width="0">{gpu}</pci>')
    return f'<system version="2"><cpu numaid="0" vendor="AuthenticAMD">{"".join(slots)}</cpu></system>'


@pytest.mark.parametrize(
    ("gcn", "each"),
    [("906", 46e9), ("908", 46e9), ("910", 50e9), ("gfx90a", 50e9), ("gfx942", 64e9), ("gfx950:sramecc+", 76.8e9)],
)
def test_links_of_amd_come_with_their_counts(tmp_path: Path, gcn: str, each: float) -> None:
    (tmp_path / "box.xml").write_text(amd(gcn, (0, 1, 4), (0, 2, 2), (1, 3, 1)))
    topology, warnings = load_with_warnings(tmp_path / "box.xml")
    assert warnings == () and topology.level_sizes == {"gpu": 4}
    found = {(link.source, link.target): link.bandwidth for link in topology.links if link.kind == "xgmi"}
    counts = {(0, 1): 4, (0, 2): 2, (1, 3): 1}
    assert found == {pair: n * each for (a, b), n in counts.items() for pair in ((a, b), (b, a))}
    assert labels(topology, 0, 1) == ["gpu(1)"] and labels(topology, 0, 3) == ["cpu(0)", "gpu(3)"]
    slow = load_topology(tmp_path / "box.xml", {"xgmi_bandwidth": "24 GB/s"})
    assert slow.link(0, 1).bandwidth == 4 * 24e9


def test_what_is_not_read_of_links_is_named_once(tmp_path: Path) -> None:
    text = amd("gfx942", (0, 1, 1)).replace("<xgmi", "<ualink").replace('sm="104"', 'sm="104" nvlinks="3" uuid="x"')
    (tmp_path / "box.xml").write_text(text.replace("<pci", "<note text='x'/><pci", 1))
    told = [warning.message for warning in load_with_warnings(tmp_path / "box.xml")[1]]
    ends = " is not read: what it says of links is missing here"
    assert told == [f"'nvlinks' of <gpu>{ends} (4 places)", f"<ualink>{ends} (2 places)"]


def test_nvlinks_that_a_file_leaves_out_can_be_added(tmp_path: Path) -> None:
    """Clouds describe slots by their class, and leave out NVSwitches."""
    slots = "".join(f'<pci busid="0000:1{n}:00.0" class="0x030200"/>' for n in range(4))
    card = '<pci busid="0000:1b.00.0" class="0x020000"/>'
    (tmp_path / "p4d.xml").write_text(f'<system version="1"><cpu numaid="0">{slots}{card}</cpu></system>')
    ((warning,), given) = load_with_warnings(tmp_path / "p4d.xml")[1], "(nvswitch_bandwidth = 300 GB/s, nodes = 2)"
    assert warning.id == "links-not-in-file" and "nvswitch_bandwidth = 300 GB/s" in (warning.help or "")
    topology, none = load_with_warnings(f"{tmp_path}/p4d.xml{given}")
    assert none == () and labels(topology, 4, 7) == ["nvswitch(1)", "gpu(1, 3)"]
    assert bandwidths(topology, "nvlink") == [300e9] * 16
    with pytest.raises(TopologyError, match="links between its GPUs, so there is no 'nvswitch_bandwidth'"):
        sample("hgx_h100.xml", nvswitch_bandwidth="300 GB/s")


def test_nvidia_smi_with_a_switch() -> None:
    """NV12 to seven others is more than a GPU has, so it is an NVSwitch; the header is underlined, as on terminals."""
    topology = sample("dgx_a100.txt", nodes=2)
    assert topology.level_sizes == {"node": 2, "gpu": 8}
    assert bandwidths(topology, "nvlink") == [300e9] * 2 * 16
    assert labels(topology, 0, 7) == ["nvswitch(0)", "gpu(0, 7)"]
    assert labels(topology, 2, 8 + 7) == [
        "pci(0, 1)", "nic(0, 1)", "network", "nic(1, 3)", "pci(1, 3)", "gpu(1, 7)"
    ]  # fmt: skip
    assert topology.graph.nodes["nic(1, 3)"]["about"] == "mlx5_3"


def test_nvidia_smi_without_nvlinks() -> None:
    topology = sample("a100_pcie.txt")
    assert labels(topology, 0, 1) == ["pci(0)", "gpu(1)"]
    assert labels(topology, 2, 3) == ["cpu(1)", "gpu(3)"]
    assert labels(topology, 0, 2) == ["pci(0)", "cpu(0)", "cpu(1)", "gpu(2)"]
    assert sample("a100_pcie.txt", pcie_bandwidth="16 GB/s").link(2, "cpu(1)").bandwidth == 16e9


def test_nvidia_smi_of_a_cube_mesh() -> None:
    """Without a NUMA affinity, quads are told by which pairs are SYS."""
    topology = sample("v100_cube_mesh.txt")
    assert sorted(bandwidths(topology, "nvlink")) == [25e9] * 16 + [50e9] * 16
    assert labels(topology, 0, 5) == ["cpu(0)", "cpu(1)", "gpu(5)"]
    nvlinks = [link for link in topology.links if link.kind == "nvlink"]
    assert all(sum(link.bandwidth for link in nvlinks if link.source == gpu) == 150e9 for gpu in range(8))
    assert sample("v100_cube_mesh.txt", nvlink_bandwidth="20 GB/s").link(0, 3).bandwidth == 40e9


@pytest.mark.parametrize("name", ["star.edges.json", "star.links.json"])
def test_node_link(name: str) -> None:
    topology = sample(name)
    assert (topology.size, topology.switches) == (3, ("hub",))
    assert len(topology.links) == 6
    assert topology.link(0, "hub").bandwidth == 12.5e9 and topology.link("hub", 2).latency == 2e-6
    assert [topology.memory(rank) for rank in topology.ranks] == [40 * 10**9, 40 * 10**9, None]
    assert labels(topology, 0, 2) == ["hub", "c"]


def test_graphml() -> None:
    topology = sample("square.graphml")
    assert topology.level_sizes == {"row": 2, "gpu": 2}
    assert topology.link(2, 0).bandwidth == topology.link(0, 2).bandwidth == 25e9
    assert topology.link(0, 1).latency == 300e-9 and topology.link(1, 3).latency == 0.0


def test_graphml_as_networkx_writes_it(tmp_path: Path) -> None:
    import networkx as nx

    graph = nx.path_graph(4)
    nx.set_edge_attributes(graph, 1e9, "bandwidth")
    nx.write_graphml(graph, tmp_path / "path.graphml")
    path = load_topology(tmp_path / "path.graphml").graph
    assert [path.out_degree(rank) for rank in range(4)] == [1, 2, 2, 1]
    (tmp_path / "path.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    assert load_topology(tmp_path / "path.json").size == 4


def test_the_name_of_a_file_says_nothing(tmp_path: Path) -> None:
    for place, path in enumerate(FILES):
        other = tmp_path / f"{place}.dat"
        other.write_bytes(b"\n" * (path.suffix == ".json") + path.read_bytes())
        assert len(load_topology(other).links) == len(load_topology(path).links)


@pytest.mark.parametrize("what", [*FILES, *SHIPPED, "fat_tree(4)", "torus(2, 3)", "dgx(2)"], ids=str)
def test_what_is_written_is_read_back(what: Path | str, tmp_path: Path) -> None:
    topology = load_topology(what)
    (tmp_path / "out.json").write_text(json.dumps(node_link(topology)))
    assert facts(load_topology(tmp_path / "out.json")) == facts(topology)


def test_no_two_nodes_are_called_the_same(tmp_path: Path) -> None:
    """Nodes may share a label, have ids too long to tell them apart, or an id that is another one's label."""
    switches = [{"id": n, "kind": "switch", "label": "hub"} for n in range(3)]
    switches += [{"id": id, "kind": "switch"} for id in ("x" * 200 + "0", "x" * 200 + "1", "gpu(0)", "²")]
    nodes = [{"id": 10, "kind": "gpu"}, {"id": "hub", "kind": "gpu"}, *switches]
    edges = [{"source": "hub", "target": node["id"], "bandwidth": 1} for node in nodes if node["id"] != "hub"]
    (tmp_path / "twins.json").write_text(json.dumps({"nodes": nodes, "edges": edges}))
    topology = load_topology(tmp_path / "twins.json")
    found = [topology.label(node) for node in topology.graph]
    assert found[:5] == ["gpu(0)", "hub", "hub'2", "hub'3", "hub'4"]
    assert found[5:] == ["x" * 100, "x" * 100 + "'2", "gpu(0)'2", "²"] and topology.routes
    (tmp_path / "again.json").write_text(json.dumps(node_link(topology)))
    assert len(facts(load_topology(tmp_path / "again.json"))[2]) == len(found)


def test_what_no_terminal_can_show_is_replaced(tmp_path: Path) -> None:
    """JSON can hold half of a character, and codes that move the cursor."""
    bad = "a\ud800\x1b[2J"
    nodes = [{"id": bad}, {"id": bad + "b", "label": bad}]
    about = {"doc": bad, "levels": [[bad, 2]], "hosts": [{"name": bad, "ranks": [0]}]}
    edges = [{"source": bad, "target": bad + "b", "bandwidth": 1, "kind": bad}]
    (tmp_path / "bad.json").write_text(json.dumps({"graph": about, "nodes": nodes, "edges": edges}))
    doc, levels, labels, links, hosts = facts(load_topology(tmp_path / "bad.json"))
    good = "a??[2J"
    assert (doc, levels[0].name, hosts[0][0], {link[4] for link in links}) == (good, good, good, {good})
    assert set(labels) == {good, good + "b"}
    assert load_topology('topology t { "a\x1b[2J" like ring(2) }').doc == "a?[2J"


def test_networkx_reads_what_is_written() -> None:
    import networkx as nx

    graph = nx.node_link_graph(node_link(load_topology("dgx(2)")), edges="edges")
    assert graph.number_of_nodes() == 16 + 16 + 8 + 2 + 1
    assert graph.edges["gpu(0, 0)", "nvswitch(0)"]["bandwidth"] == 450e9


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_topologies_are_laid_out(name: str) -> None:
    from zenc.common.resources import directory
    from zenc.language.formatter import format_text

    text = (directory("schemes") / "topologies" / f"{name}.zen").read_text()
    assert format_text(text, name) == text
    assert load_topology(name).doc
