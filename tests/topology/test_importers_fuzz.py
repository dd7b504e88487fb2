"""Importers on arbitrary bytes: damaged samples, and random structures."""

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.damage import FOREIGN, WORDS, damaged_bytes, damaged_json
from tests.support.fuzz import fuzzed
from tests.support.survival import error_faults, import_faults
from zenc.common.resources import directory
from zenc.errors import ZencError
from zenc.topology.importers import IMPORT_OPTIONS
from zenc.topology.load import load_topology
from zenc.topology.shapes import BUILDERS

SAMPLES = Path(__file__).parent / "samples"
FILES = sorted([*SAMPLES.iterdir(), *(directory("schemes") / "topologies").glob("*.zen")])
STAR = json.loads((SAMPLES / "star.edges.json").read_text())
STARTS = [
    *(b"", b"<system>", b'<system version="1"><cpu>'),
    *(b"<graphml>", b'{"nodes":', b"\tGPU0\tGPU1\n", b"topology t {"),
]


@fuzzed(30)
@given(st.sampled_from(STARTS), st.binary(max_size=300))
@example(b"\xff\xfe", b"<\0s\0y\0s\0t\0e\0m\0>\0")
@example(b'<?xml version="1.0" encoding="utf-7"?>', b"<system/>")
@example(b'<?xml version="1.0" encoding="no such"?>', b"<graphml/>")
def test_any_bytes(tmp_path: Path, start: bytes, data: bytes) -> None:
    assert import_faults(tmp_path / "given", start + data) == []


@fuzzed(40)
@given(damaged_bytes([path.read_bytes() for path in FILES], [*WORDS, *FOREIGN]))
def test_damaged_samples(tmp_path: Path, data: bytes) -> None:
    assert import_faults(tmp_path / "given", data) == []


@fuzzed(30)
@given(st.sampled_from(FILES), st.data())
def test_samples_with_another_word(tmp_path: Path, path: Path, data: st.DataObject) -> None:
    text = path.read_text()
    values = list(re.finditer(r'(?<=")[^"<>]*(?=")|[0-9]+|NV[0-9]+|SYS|PIX', text))
    chosen = data.draw(st.sampled_from(values))
    new = data.draw(
        st.sampled_from(["", "0", "-1", "1e999", "9" * 30, "NV0", "NV99", "X", "nan", "true", "GPU0", "0x068000", "é"])
    )
    assert import_faults(tmp_path / "given", (text[: chosen.start()] + new + text[chosen.end() :]).encode()) == []


@fuzzed(30)
@given(damaged_json(STAR, ["a", "hub", "rank", "kind", "1 GB/s", "2 us", "gpu", "source", "id", "\ud800", "\x1b[31m"]))
def test_damaged_node_link(tmp_path: Path, value: Any) -> None:
    assert import_faults(tmp_path / "given", json.dumps(value).encode()) == []


tags = st.sampled_from(
    ["system", "cpu", "pci", "gpu", "nvlink", "nic", "net", "graphml", "graph", "node", "edge", "key", "data"]
)
names = [
    "busid", "target", "count", "tclass", "dev", "sm", "speed", "latency", "link_speed", "link_width", "id",
    "source",
]  # fmt: skip
names += ["attr.name", "attr.type", "for", "key", "edgedefault"]
texts = [
    "8 GT/s",
    *["0", "1", "-1", "999999999999999", "16", "0000:01:00.0", "0x068000", "0x068001", "bandwidth", "double"],
]
attributes = st.dictionaries(st.sampled_from(names), st.sampled_from([*texts, "edge", "undirected", "é"]), max_size=4)


def element(tag: str, given: dict[str, str], inner: list[str]) -> str:
    written = "".join(f' {name}="{value}"' for name, value in given.items())
    return f"<{tag}{written}>{''.join(inner)}</{tag}>"


elements = st.recursive(
    st.builds(element, tags, attributes, st.just([])),
    lambda inner: st.builds(element, tags, attributes, st.lists(inner, max_size=4)),
    max_leaves=12,
)


@fuzzed(30)
@given(st.sampled_from(["system", "graphml"]), st.lists(elements, max_size=4))
def test_any_elements(tmp_path: Path, root: str, inner: list[str]) -> None:
    assert import_faults(tmp_path / "given", element(root, {}, inner).encode()) == []


connections = ["NV1", "NV12", "PIX", "PXB", "PHB", "NODE", "SYS"]
words = st.sampled_from(
    ["GPU0", "GPU1", "GPU2", "NIC0", "X", "CPU", "NUMA", "0-3", "0", "1", "N/A", "NIC0:", "mlx5_0", *connections]
)


@fuzzed(30)
@given(st.lists(st.lists(words, max_size=8).map("\t".join), max_size=6), st.integers(0, 4), st.data())
def test_any_matrix(tmp_path: Path, lines: list[str], size: int, data: st.DataObject) -> None:
    assert import_faults(tmp_path / "given", "\n".join(["\tGPU0\tGPU1", *lines]).encode()) == []
    names = [f"GPU{n}" for n in range(size + 1)] + ["NIC0"]
    cells = st.sampled_from(connections)
    rows = [
        [a, *("X" if a == b else data.draw(cells) for b in names), "0-3", data.draw(st.sampled_from("01"))]
        for a in names
    ]
    assert import_faults(tmp_path / "given", "\n".join("\t".join(row) for row in [["", *names], *rows]).encode()) == []


SHIPPED = ["two_boxes", "p3", "p3:p3", "schemes/topologies/p3.zen:p3", *BUILDERS, *map(str, FILES)]
PIECES = [
    "(", ")", "=", ",", ":", " ", "\n", "{", "}", "nodes", "boxes", "k", "2", "-1", "1e999", "3 GB/s", "1 us", "\0",
    "a" * 300, "(nodes = 2)", "(boxes = 3)", "(2, 3)", "(network_bandwidth = 1 GB/s)",
]  # fmt: skip
OPTIONS = st.sampled_from([*IMPORT_OPTIONS, "boxes", "k", ""]) | st.text(max_size=3)
AMOUNTS = st.sampled_from(["2", "1 GB/s", "2 us", "1e999 TB/s", "", "9" * 200, 10**400])


@fuzzed(40)
@given(
    st.sampled_from(["", *SHIPPED]),
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=8).map("".join),
    st.dictionaries(OPTIONS, AMOUNTS | st.integers(-3, 5) | st.floats() | st.text(max_size=5), max_size=2),
)
@example("ring", "(1 << 64)", {})
@example("dgx", "(2, memory = 1 PB)", {"nodes": 2})
def test_any_name_and_any_values(what: str, more: str, values: dict[str, Any]) -> None:
    try:
        assert load_topology(what + more, values).size
    except ZencError as error:
        assert error_faults(error) == []
