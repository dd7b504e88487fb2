"""Refusals of other programs' files: no topology, a danger, or too much."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from zenc.errors import TopologyError
from zenc.topology.load import load_topology

SAMPLES = Path(__file__).parent / "samples"


def refusal(path: Path, **values: int | float | str) -> tuple[list[str], str]:
    with pytest.raises(TopologyError) as refused:
        load_topology(path, values)
    return [diagnostic.id for diagnostic in refused.value.diagnostics], str(refused.value)


@pytest.mark.parametrize(
    ("files", "id"),
    [
        ('"hgx_h100.xml", "star.edges.json"', "wrong-arguments"),
        ('"hgx_h100.xml", "virtual.xml" (nodes = 2)', "wrong-arguments"),
        ('"hgx_h100.xml", "a100_pcie.txt"', "island"),
        ('"hgx_h100.xml", "nowhere.xml"', "unreadable-file"),
    ],
)
def test_files_that_are_no_machines(files: str, id: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.zen"
    path.write_text(f"topology t {{ like {files} }}".replace('"', f'"{SAMPLES}/', 1).replace(', "', f', "{SAMPLES}/'))
    assert refusal(path)[0] == [id]


BILLION = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "ha"}">' for n in range(10))
DANGEROUS = [
    f'<!DOCTYPE system [{BILLION}]><system version="1"><cpu vendor="&a9;"/></system>',
    '<!DOCTYPE system SYSTEM "http://127.0.0.1:9/topology.dtd"><system version="1"/>',
    '<!DOCTYPE system [<!ENTITY file SYSTEM "file:///etc/passwd">]><system version="1">&file;</system>',
    '<!DOCTYPE system [<!ENTITY % all SYSTEM "http://127.0.0.1:9/x"> %all;]><system/>',
    '<?xml version="1.0"?>\n\n<!DOCTYPE graphml><graphml><graph/></graphml>',
    '<!DOCTYPE graphml SYSTEM "x"><graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph/></graphml>',
]


@pytest.mark.parametrize("text", DANGEROUS, ids=range(len(DANGEROUS)))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_refused(text: str, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr("socket.socket.connect", connect)
    path = tmp_path / "system.xml"
    path.write_bytes(text.encode(encoding))
    start = time.process_time()
    assert refusal(path)[0] == ["unsafe-xml"]
    assert time.process_time() - start < 2


OF_OTHERS = {
    "the XML of hwloc": '<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology><object type="Machine"/></topology>',
    "XML of hwloc, which": '<topology version="2.0">\n  <object type="Machine"/></topology>',
    "rocm-smi": "==== Weight between two GPUs ====\n       GPU0    GPU1\nGPU0   0       15\nGPU1   15      0\n",
    "amd-smi": "ACCESS TABLE:\n       GPU0    GPU1\nGPU0   ENABLED ENABLED\n",
    "nvidia-smi topo -p2p prints": " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n",
}
HGX = (SAMPLES / "hgx_h100.xml").read_text()
MATRIX = (SAMPLES / "a100_pcie.txt").read_text()
STAR = json.loads((SAMPLES / "star.edges.json").read_text())
SQUARE = (SAMPLES / "square.graphml").read_text()


def star(**changes: Any) -> str:
    return json.dumps({**STAR, **changes})


@pytest.mark.parametrize(
    ("text", "id", "words"),
    [
        ("", "unknown-format", "no topology that zenc knows"),
        *((text, "unknown-format", words) for words, text in OF_OTHERS.items()),
        ("a,b\n1,2\n", "unknown-format", "no topology that zenc knows"),
        ("<html></html>", "malformed-topology", "<html>"),
        ("<system", "malformed-topology", "no XML"),
        ("<system></cpu>", "malformed-topology", "no XML"),
        ("<system>" + "<cpu>" * 200 + "</cpu>" * 200 + "</system>", "malformed-topology", "nests"),
        ('<system version="1"/>', "no-ranks", "no GPUs: no <gpu>, and no empty <pci>"),
        ('<system><cpu><pci class="0x0200"/></cpu></system>', "no-ranks", "it has 1 <cpu>, 1 <pci>"),
        ("<system><cpu><gpu/></cpu></system>", "no-ranks", "this <gpu> is in no <pci>"),
        (HGX.replace('count="5"', 'count="five"'), "malformed-topology", "'five'"),
        (HGX.replace('count="5"', 'count="-5"').replace('count="4"', 'count="5"'), "bad-bandwidth", "nvswitch"),
        (HGX.replace('tclass="0x068000"', 'tclass="0x030200"'), "malformed-topology", "where there is no GPU"),
        (MATRIX.replace("PHB", "PHP"), "malformed-topology", "'PHP', which means nothing"),
        (MATRIX.replace("GPU3\tSYS", "GPU3"), "malformed-topology", "GPU3"),
        ("\n".join(MATRIX.split("\n")[:3]), "malformed-topology", "no row for GPU2"),
        ("\tGPU0\tGPU0\nGPU0\t X \tSYS\n", "malformed-topology", "twice"),
        ("{", "malformed-topology", "no JSON"),
        ('{"nodes": NaN}', "malformed-topology", "no JSON"),
        ("{" + '"a":[' * 10**5, "malformed-topology", "no JSON"),
        ('{"nodes": 3, "edges": []}', "malformed-topology", "no node-link JSON"),
        ('{"nodes": [{"id": 1}], "edges": [[1, 1]]}', "malformed-topology", "no node-link JSON"),
        ('{"nodes": [], "edges": []}', "no-ranks", "no ranks"),
        (star(edges=[]), "island", "no way"),
        (star(edges=[{"source": "a", "target": "b"}]), "malformed-topology", "has no bandwidth"),
        (star(edges=[{"source": "a", "target": "z", "bandwidth": 1}]), "malformed-topology", "no node"),
        (star(edges=[{"source": "a", "target": "b", "bandwidth": "1 GBps"}]), "unknown-unit", "GBps"),
        (star(edges=[{"source": "a", "target": "b", "bandwidth": True}]), "malformed-topology", "no number"),
        (star(edges=[{"source": "a", "target": "b", "bandwidth": -1}]), "bad-bandwidth", "-1 bytes/s"),
        (star(edges=[{"source": "a", "target": "b", "bandwidth": 1, "latency": -1}]), "bad-latency", "-1 s"),
        (star(edges=[{"source": "a", "target": "a", "bandwidth": 1}]), "self-link", "itself"),
        (star(edges=[*STAR["edges"], STAR["edges"][0]]), "duplicate-link", "twice"),
        (star(nodes=[*STAR["nodes"], {"id": "a"}]), "malformed-topology", "twice"),
        (star(nodes=[{"id": "a", "rank": 1}, {"id": "b", "rank": 1}]), "malformed-topology", "each once"),
        (star(nodes=[{"id": "a", "rank": 0}, {"id": "b", "kind": "gpu"}]), "malformed-topology", "without a rank"),
        (star(nodes=[{"id": "a", "rank": 0}, {"id": "b", "kind": "rank"}]), "malformed-topology", "without a rank"),
        (star(nodes=[{"id": "a", "memory": 0}]), "malformed-topology", "memory"),
        (star(graph={"levels": [["gpu", 4]]}), "malformed-topology", "come to 3 ranks"),
        (star(graph={"levels": "gpu"}), "malformed-topology", "node(4), gpu(8)"),
        (star(nodes=[{"id": 1}, {"id": 1}]), "malformed-topology", "twice"),
        ('{"nodes": [{"id": ' + "[" * 500 + "]" * 500 + '}], "edges": []}', "malformed-topology", "deeper than"),
        (star(graph={"hosts": [{"name": "x", "ranks": [7]}]}), "malformed-topology", "hosts"),
        (SQUARE.replace('target="n1"', 'target="n9"'), "malformed-topology", "come to 5 ranks"),
        (SQUARE.replace("5e10", "much"), "malformed-topology", "networkx can't read"),
        (SQUARE.replace("300 ns", "300 GB"), "unknown-unit", "latency"),
        (SQUARE.replace("<graph ", "<graph/><graph "), "malformed-topology", "2 graphs"),
    ],
)
def test_what_is_no_topology(text: str, id: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text(text)
    ids, said = refusal(path)
    assert set(ids) == {id}, said
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize("form", ["json", "graphml", "xml"])
def test_a_million_nodes_are_refused_quickly(form: str, tmp_path: Path) -> None:
    count = 10**6
    if form == "json":
        text = '{"nodes": [' + ",".join(f'{{"id":{n}}}' for n in range(count)) + '], "edges": []}'
    elif form == "graphml":
        text = "<graphml><graph>" + "<node id='1'/>" * count + "</graph></graphml>"
    else:
        text = "<system>" + "<cpu/>" * count + "</system>"
    path = tmp_path / f"large.{form}"
    path.write_text(text)
    start = time.process_time()
    assert refusal(path)[0] == ["topology-too-large"]
    assert time.process_time() - start < 4


def matrix(names: list[str], cell: str) -> str:
    rows = [[name, *("X" if name == other else cell for other in names)] for name in names]
    return "\n".join("\t".join(row) for row in [["", *names], *rows])


def slots(inside: str, count: int) -> str:
    return '<system version="1"><cpu>\n<pci><gpu/></pci>\n' + f"{inside}\n" * count + "</cpu></system>"


TWINS = [{"id": f"s{n}", "kind": "switch", "label": "hub"} for n in range(20_000)]
LONG = {
    "spaces": lambda: " " * 100_000,
    "escapes": lambda: "\x1b[0m " * 50_000,
    "many CPUs": lambda: slots("</cpu><cpu>", 60_000),
    "many cards": lambda: slots("<nic><net/></nic>", 15_000),
    "many slots": lambda: slots("<pci><pci/></pci>", 15_000),
    "one long line": lambda: slots("<nic><net/></nic>", 15_000).replace("\n", " " * 100),
    "NVLinks": lambda: matrix([f"GPU{n}" for n in range(400)], "NV1"),
    "one PCIe switch": lambda: matrix([f"GPU{n}" for n in range(400)], "PIX"),
    "one card each": lambda: matrix(["GPU0", *(f"NIC{n}" for n in range(2000))], "SYS"),
    "one name": lambda: json.dumps({"nodes": [{"id": "a", "kind": "gpu"}, *TWINS], "edges": []}),
}
"""Long texts, made on demand."""


@pytest.mark.parametrize("kind", LONG)
def test_long_files(kind: str, tmp_path: Path) -> None:
    """Time grows with the length; quadratic time would take a minute and more."""
    (tmp_path / "long").write_text(LONG[kind]())
    start = time.process_time()
    try:
        assert load_topology(tmp_path / "long").size
    except TopologyError as error:
        assert {found.id for found in error.diagnostics} <= {"topology-too-large", "unknown-format"}
    assert time.process_time() - start < 10


def test_a_great_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(10**9)
    assert refusal(path)[0] == ["topology-too-large"]


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    assert refusal(SAMPLES / "hgx_h100.xml", nodes=0)[0] == ["wrong-range"]
    assert refusal(SAMPLES / "hgx_h100.xml", nodes="many")[0] == ["wrong-type"]
    assert refusal(SAMPLES / "hgx_h100.xml", speed=3)[0] == ["unknown-parameter"]
    assert refusal(SAMPLES / "hgx_h100.xml", network_bandwidth="fast")[0] == ["unknown-unit"]
    assert refusal(SAMPLES / "a100_pcie.txt", nodes=2)[0] == ["island"], "it has no network card"
    assert refusal(SAMPLES / "square.graphml", nodes=2)[0] == ["wrong-arguments"]
    assert refusal(SAMPLES / "hgx_h100.xml", nodes=999_999_999)[0] == ["topology-too-large"]
