"""Graphs of any origin -> a draft: the common part of node-link JSON and GraphML.

node   rank: 0 and up, or kind: rank | gpu | device makes it a rank; any other kind, such as switch, does not.
       Where one has rank, all ranks must. Where no node has either, all are ranks, in the order of the file.
       memory: bytes, or "80 GB"
link   bandwidth: bytes a second, or "100 Gbit/s"; latency: seconds, or "2 us", 0 where it is not given; kind
graph  name, doc, levels: [["node", 4], ["gpu", 8]], or "node(4), gpu(8)"
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from zenc.common.wording import count
from zenc.errors import Diagnostic, Span, TopologyError, printable
from zenc.scheme.units import Kind, amount_of_text
from zenc.topology.builder import TopologyBuilder, ensure_small
from zenc.topology.model import Host, Node

Attributes = Mapping[str, Any]
_Key = tuple[str, str]

_RANK_KINDS = ("rank", "gpu", "device")
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Graph:
    """A graph: ``nodes`` are (id, attributes), ``edges`` (id, id, attributes); ``span`` is the start of the file."""

    nodes: Sequence[tuple[Any, Attributes]]
    edges: Sequence[tuple[Any, Any, Attributes]]
    directed: bool
    about: Attributes
    span: Span


def fill_from_graph(draft: TopologyBuilder, graph: Graph) -> None:
    """Fill ``draft`` from ``graph``; raises TopologyError for nonsense, but numbers and links are left to the draft."""
    ensure_small(len(graph.nodes), len(graph.edges), graph.span)
    _ensure_different(graph)
    places = _ranks(graph)
    levels = _levels(graph, len(places))
    if isinstance(graph.about.get("doc"), str):
        draft.doc = draft.doc or " ".join(graph.about["doc"].split())
    if places:
        draft.set_levels(*levels)
        draft.hosts += _hosts(graph, len(places))
    names = _add_nodes(draft, graph, places)
    for source, target, data in graph.edges:
        if _key(source) not in names or _key(target) not in names:
            raise _malformed(graph, f"a link leads from {_shown(source)} to {_shown(target)}, and one is no node")
        ends = names[_key(source)], names[_key(target)]
        what = f"the link {_shown(source)} - {_shown(target)}"
        bandwidth = _amount("bandwidth", data, what, graph)
        if bandwidth is None:
            raise _malformed(graph, f"{what} has no bandwidth")
        kind = data.get("kind")
        draft.connect(
            *ends,
            bandwidth,
            _amount("latency", data, what, graph) or 0.0,
            printable(kind[:_LONGEST_NAME]) if isinstance(kind, str) else "link",
            one_way=graph.directed,
            span=graph.span,
        )


def _malformed(graph: Graph, message: str) -> TopologyError:
    return TopologyError(Diagnostic("malformed-topology", message, graph.span))


def _key(id: Any) -> _Key:
    return type(id).__name__, repr(id)


def _shown(id: Any) -> str:
    return str(id)[:40]


def _kind(data: Attributes) -> str | None:
    kind = data.get("kind", data.get("type"))
    return printable(kind[:_LONGEST_NAME]) if isinstance(kind, str) else None


def _ensure_different(graph: Graph) -> None:
    seen: set[_Key] = set()
    for id, _ in graph.nodes:
        if _key(id) in seen:
            raise _malformed(graph, f"node {_shown(id)} is there twice")
        seen.add(_key(id))


def _ranks(graph: Graph) -> dict[_Key, int]:
    """Return the number of each node that is a rank, by the node's key."""
    numbered = {_key(id): data["rank"] for id, data in graph.nodes if data.get("rank") is not None}
    if numbered:
        ranks = [rank for rank in numbered.values() if isinstance(rank, int) and not isinstance(rank, bool)]
        if sorted(ranks) != list(range(len(numbered))):
            raise _malformed(graph, f"the ranks are not 0 to {len(numbered) - 1}, each once")
        for id, data in graph.nodes:
            if _kind(data) in _RANK_KINDS and _key(id) not in numbered:
                raise _malformed(graph, f"node {_shown(id)} is a {_kind(data)} without a rank, and others have ranks")
        return numbered
    kinds = [_kind(data) for _, data in graph.nodes]
    nameless = all(kind is None for kind in kinds)
    chosen = [id for (id, _), kind in zip(graph.nodes, kinds, strict=True) if nameless or kind in _RANK_KINDS]
    return {_key(id): place for place, id in enumerate(chosen)}


def _add_nodes(draft: TopologyBuilder, graph: Graph, ranks: Mapping[_Key, int]) -> dict[_Key, Node]:
    nodes: dict[_Key, Node] = {}
    labels = _Labels(draft.label(ranks[_key(id)]) for id, _ in graph.nodes if _key(id) in ranks and not _is_text(id))
    for id, data in graph.nodes:
        key = _key(id)
        if key in ranks:
            nodes[key] = rank = ranks[key]
            draft.nodes[rank]["memory"] = _memory(data, graph)
            if _is_text(id):
                draft.nodes[rank]["label"] = labels.new(id)
        else:
            label = data.get("label")
            name = labels.new(label if _is_text(label) else str(id))
            nodes[key] = draft.add_switch(name, _kind(data) or "switch")
    return nodes


def _is_text(id: Any) -> TypeGuard[str]:
    return isinstance(id, str) and bool(id)


class _Labels:
    """Different names for nodes: the second ``hub`` is ``hub'2``."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._count: Counter[str] = Counter(taken)

    def new(self, text: str) -> str:
        label = first = printable(text[:_LONGEST_NAME])
        while self._count[label]:
            self._count[first] += 1
            label = f"{first}'{self._count[first]}"
        self._count[label] += 1
        return label


_LEVEL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,40})\(([0-9]{1,9})\)\s*")


def _levels(graph: Graph, ranks: int) -> list[tuple[str, int]]:
    given = graph.about.get("levels")
    if given is None:
        return [("gpu", ranks)]
    if isinstance(given, str):
        matches = [_LEVEL.fullmatch(text) for text in given.split(",")]
        levels: list[Any] = [(match[1], int(match[2])) if match else None for match in matches]
    else:
        levels = list(given) if isinstance(given, list | tuple) else [None]
    for level in levels:
        pair = isinstance(level, list | tuple) and len(level) == 2
        if not pair or not isinstance(level[0], str) or type(level[1]) is not int or level[1] < 1:
            raise _malformed(graph, "'levels' is a list of names and counts: node(4), gpu(8)")
    if not levels or math.prod(count for _, count in levels) != ranks:
        raise _malformed(graph, f"the levels do not come to {count(ranks, 'rank')}")
    return [(printable(name[:_LONGEST_NAME]), count) for name, count in levels]


def _hosts(graph: Graph, ranks: int) -> list[Host]:
    """Return the machines that ``save`` writes; an empty list where the graph names none."""
    given = graph.about.get("hosts", [])
    hosts = [_host(host) for host in given] if isinstance(given, list) else [None]
    members = [rank for host in hosts if host for rank in host.ranks]
    if None in hosts or len(set(members)) < len(members) or not set(members) <= set(range(ranks)):
        raise _malformed(graph, "'hosts' is a list of objects with name, ranks and memory, and no rank is in two")
    return [host for host in hosts if host]


def _host(given: Any) -> Host | None:
    if not isinstance(given, dict) or not isinstance(given.get("ranks"), list):
        return None
    name, memory = given.get("name"), given.get("memory")
    known = memory is None or (type(memory) is int and 1 <= memory < 2**62)
    if not isinstance(name, str) or not known or any(type(rank) is not int for rank in given["ranks"]):
        return None
    return Host(printable(name[:_LONGEST_NAME]), tuple(given["ranks"]), memory)


def _amount(kind: Kind, data: Attributes, what: str, graph: Graph) -> float | None:
    """Return a number as it is, or a text converted by its unit; None where the attribute is missing."""
    value = data.get(kind)
    if value is None:
        return None
    if isinstance(value, str):
        value = amount_of_text(kind, value)
        if isinstance(value, str):
            raise TopologyError(Diagnostic("unknown-unit", f"{what}: {value}", graph.span))
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise _malformed(graph, f"the {kind} of {what} is {str(value)[:40]}, and no number")
    return float(value)


def _memory(data: Attributes, graph: Graph) -> int | None:
    value = _amount("memory", data, "a rank", graph)
    if value is not None and not 1 <= value < 2**62:
        raise _malformed(graph, f"a rank has a memory of {value:g} bytes")
    return None if value is None else int(value)
