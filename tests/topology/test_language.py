"""Meanings of the texts of topologies."""

import time
from pathlib import Path

import pytest
from hypothesis import example, given

from tests.support.clusters import topologies
from tests.support.damage import WORDS, damaged
from tests.support.fuzz import fuzzed
from tests.support.refusals import refusals
from tests.support.survival import import_faults
from zenc.errors import TopologyError, ZencError
from zenc.language.files import load_text
from zenc.scheme.units import Kind, unit_problem
from zenc.topology.levels import summarize
from zenc.topology.load import load_topology, resolve_topology
from zenc.topology.model import Topology
from zenc.topology.shapes import nodes

TWO_BOXES = """topology two_boxes(boxes = 2, gpus = 4) {
    "Two machines, NVSwitch inside, one slow cable between."
    levels: node(boxes), gpu(gpus)
    memory gpu: 80 GB
    memory node: 2 TiB
    memory gpu(1, 0): 40 GB
    for n in 0 .. boxes - 1 {
        switch nvswitch(n)
        for g in 0 .. gpus - 1 { link gpu(n, g) - nvswitch(n): 300 GB/s, 1 us }
    }
    link nvswitch(0) -> nvswitch(1): 100 Gbit/s, 5 us
    link nvswitch(1) -> nvswitch(0): 2.5 Gbit/s
}
"""


def links(topology: Topology) -> dict[str, tuple[float, float]]:
    return {
        f"{topology.label(link.source)} {topology.label(link.target)}": (link.bandwidth, link.latency)
        for link in topology.links
    }


def ids(text: str) -> list[str]:
    return [diagnostic.id for diagnostic in refusals(TopologyError, load_topology, text)]


def test_two_boxes() -> None:
    topology = load_topology(TWO_BOXES)
    assert (topology.name, topology.size) == ("two_boxes", 8)
    assert topology.doc == "Two machines, NVSwitch inside, one slow cable between."
    assert topology.level_sizes == {"node": 2, "gpu": 4}
    found = links(topology)
    assert len(found) == 2 * 8 + 2
    assert found["gpu(0, 3) nvswitch(0)"] == found["nvswitch(0) gpu(0, 3)"] == (300e9, 1e-6)
    assert found["nvswitch(0) nvswitch(1)"] == (12.5e9, 5e-6)
    assert found["nvswitch(1) nvswitch(0)"] == (2.5e9 / 8, 0.0)
    assert [topology.memory(rank) for rank in (3, 4)] == [80 * 10**9, 40 * 10**9]
    host = topology.hosts[1]
    assert (host.name, host.memory, host.ranks) == ("node(1)", 2 * 2**40, (4, 5, 6, 7))


def test_places_of_links_are_remembered() -> None:
    span = load_topology(TWO_BOXES).link("nvswitch(0)", "nvswitch(1)").span
    assert span is not None
    assert (span.line, span.column) == (11, 5)


def test_parameters() -> None:
    assert load_topology(TWO_BOXES, {"boxes": 2, "gpus": "0x3"}).size == 6
    assert ids(TWO_BOXES.replace("boxes = 2", "boxes")) == ["missing-parameter"]
    with pytest.raises(TopologyError, match="did you mean 'boxes'"):
        load_topology(TWO_BOXES, {"boxs": 3})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("like ring(5)", 10),
        ("like ring(n = 5, bandwidth = 10 GB/s) unlink gpu(0) - gpu(1)", 8),
        ("like ring(5) unlink gpu(0) -> gpu(1)", 9),
        ("like torus(3, 3, latency = 1 us)", 36),
        ("like nodes(2, gpus = 4, nics = 2)", 2 * (8 + 4 + 4)),
        ("like dgx(1)", 16),
    ],
)
def test_like_a_builder(text: str, count: int) -> None:
    assert len(load_topology(f"topology t {{ {text} }}").links) == count


def test_like_another_topology() -> None:
    text = TWO_BOXES + "topology three { like two_boxes(3, gpus = 2) link nvswitch(1) - nvswitch(2): 1 GB/s }"
    topology, warnings = resolve_topology(load_text(text), "three")
    assert topology.level_sizes == {"node": 3, "gpu": 2} and warnings == ()


def test_conditions_and_names() -> None:
    text = """topology t(n = 4, closed = 1) {
        let last = n - 1
        levels: gpu(n)
        require n > 1 "a chain has two ends"
        for g in 0 .. last - 1 { let next = g + 1 link gpu(g) - gpu(next): 1 GB/s }
        if closed { link gpu(last) - gpu(0): 1 GB/s } else { switch unused }
    }"""
    assert len(load_topology(text).links) == 8
    assert len(load_topology(text, {"closed": 0}).links) == 6
    with pytest.raises(TopologyError, match="a chain has two ends"):
        load_topology(text, {"n": 1, "closed": 0})


@pytest.mark.one_in(1)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("levels: gpu(0)", ["wrong-range"]),
        ("levels: gpu(2), gpu(2)", ["duplicate-name"]),
        ("levels: gpu(1) levels: gpu(2)", ["duplicate-key"]),
        ("levels: gpu(2) link gpu(0) - gpu(1): 1 us", ["unknown-unit"]),
        ("levels: gpu(2) link gpu(0) - gpu(1): 1 GB/s, 1 GB/s", ["unknown-unit"]),
        ("levels: gpu(2) link gpu(0) - gpu(1): 1 GB/s, 2 s", ["bad-latency"]),
        ("levels: gpu(2) link gpu(0) - gpu(k): 1 GB/s", ["unknown-name"]),
        ("levels: gpu(2) link gpu(0) - gpu(1 / 0): 1 GB/s", ["division-by-zero"]),
        ("levels: gpu(2) link gpu(0) - gpu(-1): 1 GB/s link gpu(0) - hub: 1 GB/s", ["no-such-node"] * 2),
        ("levels: node(1), gpu(2) link node(0) - gpu(0, 1): 1 GB/s", ["no-such-node"]),
        ("levels: gpu(2) memory rack: 1 GB", ["no-such-node"]),
        ("levels: gpu(2) memory gpu(2): 1 GB", ["no-such-node"]),
        ("levels: gpu(2) memory gpu: 0 GB", ["wrong-range"]),
        ("levels: a(1), b(1), gpu(2) memory a: 1 GB memory b: 1 GB", ["no-such-node"]),
        ("link gpu(0) - gpu(1): 1 GB/s", ["no-such-node"] * 2),
        ("switch gpu levels: gpu(2) link gpu(0) - gpu: 1 GB/s", ["island"]),
        ("switch gpu(1) levels: gpu(2) link gpu(0) - gpu(1): 1 GB/s", ["duplicate-node"]),
        ("let rank = 1", ["shadowed-name"]),
        ("for i in 0 .. 1 { let i = 2 }", ["shadowed-name"]),
        ("like ring(4, width = 3)", ["wrong-arguments"]),
        ("like ring(4, width = 3, width = 4)", ["wrong-arguments"] * 2),
        ("like ring(4, 5)", ["wrong-arguments"]),
        ("like ring(4, n = 5)", ["wrong-arguments"]),
        ("like ring(4, bandwidth = 5)", ["unknown-unit"]),
        ("like ring(4 GB)", ["wrong-type"]),
        ("like ring", ["wrong-arguments"]),
        ('like "nowhere.xml"', ["unreadable-file"]),
        ("for i in 0 .. 1 << 40 { }", ["topology-too-large"]),
        ("levels: gpu(1000000)", ["topology-too-large"]),
        ("for i in 0 .. 1 << 30 { switch hub(i) }", ["topology-too-large"]),
        ("levels: gpu(2) link gpu(0) -> gpu(1): 1 GB/s", ["island"]),
    ],
)
def test_what_is_wrong(body: str, expected: list[str]) -> None:
    assert ids(f"topology t {{ {body} }}") == expected


def chain(count: int, body: str) -> str:
    """Return topologies ``t0``, which starts like ``t1``, and so on; ``body`` says how."""
    texts = [f"topology t{n} {{ {body.replace('NEXT', f't{n + 1}')} }}" for n in range(count)]
    return "\n".join([*texts, f"topology t{count} {{ like ring(2) }}"])


@pytest.mark.parametrize("body", ["like NEXT", "if 1 { if 1 { if 1 { like NEXT } } }"])
def test_long_chains(body: str, tmp_path: Path) -> None:
    (tmp_path / "chain.zen").write_text(chain(20, body))
    assert load_topology(f"{tmp_path}/chain.zen:t0").size == 2
    (tmp_path / "chain.zen").write_text(chain(1500, body))
    assert ids(f"{tmp_path}/chain.zen:t0") == ["nesting"]


def test_a_chain_has_no_more_declarations_than_one() -> None:
    with pytest.raises(TopologyError, match="more than a million declarations"):
        resolve_topology(load_text(chain(3, "like NEXT for i in 0 .. 300000 { let _a = i }")), "t0")


@pytest.mark.slow
def test_memory_of_loops() -> None:
    """Loops set one machine or device at a time, or all of them repeatedly; the last statement holds."""
    start = time.process_time()
    topology = load_topology("""topology t {
        levels: node(8000), gpu(1)
        switch hub
        memory gpu(3, 0): 3 GB
        for n in 0 .. 7999 { link gpu(n, 0) - hub: 1 GB/s  memory gpu: 1 GB  memory node(n): (n + 1) GB }
        memory gpu(4, 0): 4 GB
    }""")
    assert [topology.memory(rank) for rank in (3, 4, 7999)] == [10**9, 4 * 10**9, 10**9]
    assert [topology.hosts[n].memory for n in (0, 7999)] == [10**9, 8000 * 10**9]
    assert time.process_time() - start < 10


def test_errors_after_many_warnings() -> None:
    unused = " ".join(f"let a{n} = {n}" for n in range(30))
    assert ids(f"topology t {{ like ring(2) {unused} link gpu(0) - gpu(0): 1 GB/s }}") == ["self-link"]


@pytest.mark.parametrize("text", ["a" * 300, 'topology t { like "' + "a" * 300 + '" }', "box.txt" + " " * 10**5])
def test_paths_that_cannot_be(text: str) -> None:
    assert ids(text) in (["unknown-topology"], ["unreadable-file"])


def test_a_great_loop_is_refused_at_once() -> None:
    start = time.process_time()
    assert ids("topology t { levels: gpu(1 << 40) }") == ["topology-too-large"]
    assert ids("topology t { for i in 0 .. 1000000 { switch hub(i) } }") == ["topology-too-large"]
    assert time.process_time() - start < 5


def test_warnings() -> None:
    text = "topology t(spare = 1) { let other = 2 like ring(2) }"
    _, warnings = resolve_topology(load_text(text))
    assert [(w.id, w.severity) for w in warnings] == [("unused-name", "warning")] * 2


@fuzzed(100)
@given(topologies())
@example("topology t { levels: gpu(2) link gpu(0) - gpu(1): 1e308 TB/s }")
@example("topology t { levels: gpu(1) memory gpu: 1e308 TB }")
@example("topology t { like dgx(2, memory = 1e308 TB) }")
@example("topology t { like torus }")
@example("topology t { like torus(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1) }")
def test_any_topology_is_one_or_an_error(tmp_path: Path, text: str) -> None:
    assert import_faults(tmp_path / "given", text.encode()) == []


@fuzzed(50)
@given(damaged(topologies(), WORDS))
def test_any_damaged_topology_is_one_or_an_error(tmp_path: Path, text: str) -> None:
    assert import_faults(tmp_path / "given", text.encode()) == []


TWO_MATRICES = """topology pair {
    like "a.txt", "b.txt"
    for n in 0 .. 1 { unlink nic(n, 0) - network }
    link nic(0, 0) - nic(1, 0): 25 Gbit/s
}"""


def matrix(gpus: int) -> str:
    names = [*(f"GPU{g}" for g in range(gpus)), "NIC0"]
    rows = [[name, *("X" if name == other else "PHB" for other in names)] for name in names]
    return "\n".join(" ".join(row) for row in [["", *names], *rows]) + "\n"


def test_a_switch_that_loses_its_last_link_goes_with_it(tmp_path: Path) -> None:
    for name, gpus in (("a.txt", 2), ("b.txt", 3)):
        (tmp_path / name).write_text(matrix(gpus))
    (tmp_path / "pair.zen").write_text(TWO_MATRICES)
    topology = load_topology(tmp_path / "pair.zen")
    assert "network" not in topology.graph
    assert [host.ranks for host in topology.hosts] == [(0, 1), (2, 3, 4)], "machines in the order of the files"
    assert topology.level_sizes == {"gpu": 5}
    declared = load_topology("topology t { levels: gpu(2) switch hub link gpu(0) - gpu(1): 1 GB/s }")
    assert "hub" in declared.graph, "one that never had a link is what its author wrote"


def test_machines_of_different_sizes_have_a_narrowest(tmp_path: Path) -> None:
    for name, gpus in (("a.txt", 2), ("b.txt", 3)):
        (tmp_path / name).write_text(matrix(gpus))
    (tmp_path / "pair.zen").write_text(TWO_MATRICES)
    summary = summarize(load_topology(tmp_path / "pair.zen"))
    assert summary.narrowest is not None and summary.narrowest[1] == 25e9 / 8 == summary.bisection
    assert "narrowest" not in summary.text(), "the halves are the machines"
    three = TWO_MATRICES.replace('"b.txt"', '"b.txt", "a.txt"').replace("0 .. 1", "0 .. 2")
    three = three.replace("25 Gbit/s", "25 Gbit/s link nic(1, 0) - nic(2, 0): 1 GB/s")
    (tmp_path / "pair.zen").write_text(three)
    summary = summarize(load_topology(tmp_path / "pair.zen"))
    assert "narrowest  1 GB/s between ranks 5 and 6, node(2), and the others" in summary.text()
    assert summary.to_json()["narrowest"] == {"host": "node(2)", "bandwidth": 1e9}
    assert summarize(nodes(2, gpus=2)).narrowest is not None


def test_a_builder_that_was_changed_is_not_described_by_its_own_words() -> None:
    assert load_topology("ring(3)").doc.startswith("3 devices")
    changed = load_topology("topology t { like ring(4) unlink gpu(0) - gpu(1) }")
    assert changed.doc == "Starts like ring."


@pytest.mark.parametrize(
    ("arguments", "id"),
    [("(boxes = 3)", None), ("(3)", "wrong-arguments"), ("(boxes = 1, boxes = 2)", "wrong-arguments"),
     ("(boxs = 3)", "unknown-parameter"), ("(boxes = )", "syntax"), ("(boxes = 3", "syntax")],
)  # fmt: skip
def test_values_after_a_name(arguments: str, id: str | None) -> None:
    if id is None:
        assert load_topology(f"two_boxes{arguments}").size == 12
        return
    assert [found.id for found in refusals(ZencError, load_topology, f"two_boxes{arguments}")] == [id]


def test_values_given_apart_come_first() -> None:
    assert load_topology("two_boxes(boxes = 3)", {"boxes": 1}).size == 4


@pytest.mark.parametrize(
    ("kind", "written", "meant"),
    [
        ("bandwidth", "Gb/s", "Gbit/s"), ("bandwidth", "Gbps", "Gbit/s"), ("bandwidth", "GBps", "GB/s"),
        ("bandwidth", "mbit/sec", "Mbit/s"), ("bandwidth", "MiB/sec", "MiB/s"), ("bandwidth", "kb", "kbit/s"),
        ("latency", "usec", "us"), ("latency", "Microseconds", "us"), ("latency", "msecs", "ms"),
        ("latency", "second", "s"), ("memory", "gb", "GB"), ("memory", "gib", "GiB"), ("memory", "Gbytes", "GB"),
    ],
)  # fmt: skip
def test_other_spellings_of_a_unit_are_told_the_right_one(kind: Kind, written: str, meant: str) -> None:
    problem = unit_problem(kind, written)
    assert problem is not None and problem.endswith(f"(did you mean '{meant}'?)")


@pytest.mark.parametrize(
    ("call", "place", "id", "line"),
    [
        ("dgx(4, gpus = 0)", "<builder>:1:1", "wrong-range", "dgx(4, gpus = 0)"),
        ("dgx(4, gpu = 8)", "<builder>:1:8", "wrong-arguments", "dgx(4, gpu = 8)"),
        ("dgx(four)", "<builder>:1:5", "unknown-name", "dgx(four)"),
        ("dgx(4,", "<builder>:1:7", "syntax", "dgx(4,"),
        ("dgx(4))", "<builder>:1:7", "syntax", "dgx(4))"),
        ("SAMPLE(3)", "<topology>:1:8", "wrong-arguments", "SAMPLE(3)"),
        ("SAMPLE(nodes = )", "<topology>:1:16", "syntax", "SAMPLE(nodes = )"),
    ],
)
def test_errors_in_a_call_show_what_was_written(
    call: str, place: str, id: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("SAMPLE").write_text('<system version="1"><cpu><pci><gpu/></pci></cpu></system>')
    (found,) = refusals(ZencError, load_topology, call)
    assert (str(found.span), found.id) == (place, id)
    assert found.span is not None and found.span.source.text == line
    assert "like" not in found.render() and "found '}'" not in found.message
