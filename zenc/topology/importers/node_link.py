"""Node-link JSON, as networkx writes it: with its edges under ``edges`` (since 3.4) or ``links`` (before)."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from zenc.errors import Diagnostic, Source, Span, TopologyError
from zenc.topology.builder import TopologyBuilder
from zenc.topology.check import too_large
from zenc.topology.importers.graph import Graph, fill_from_graph, pairs

_DEEPEST = 100


def fill(draft: TopologyBuilder, data: bytes, source: Source) -> None:
    """Fill ``draft`` from JSON; raises TopologyError (``malformed-topology``, ``topology-too-large``)."""
    start = Span(source, 0, 1)
    found = too_large(data.count(b'"id"'), data.count(b'"source"'), start)
    if found:
        raise TopologyError(found)
    try:
        value = json.loads(source.text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        place = getattr(error, "pos", 0)
        where = Span(source, place, place + 1)
        raise TopologyError(Diagnostic("malformed-topology", f"this is no JSON: {error}", where)) from error
    if _nests(value):
        raise TopologyError(Diagnostic("malformed-topology", f"this nests deeper than {_DEEPEST} levels", start))
    graph = _graph(value, start)
    if graph is None:
        message = "this is no node-link JSON: it has 'nodes', and 'edges' or 'links', each a list of objects"
        help = "networkx writes it: json.dump(networkx.node_link_data(graph), file)"
        raise TopologyError(Diagnostic("malformed-topology", message, start, help=help))
    fill_from_graph(draft, graph)


def _nests(value: Any) -> bool:
    """Whether ``value`` is deeper than ``_DEEPEST``: what shows values does it by recursion."""
    held = [value]
    for _ in range(_DEEPEST):
        lists = [item for item in held if isinstance(item, list | dict) and item]
        held = [inner for item in lists for inner in (item.values() if isinstance(item, dict) else item)]
        if not held:
            return False
    return True


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _graph(value: Any, start: Span) -> Graph | None:
    nodes = value.get("nodes")
    edges = value.get("edges", value.get("links"))
    about = value.get("graph", {})
    if not (isinstance(nodes, list) and isinstance(edges, list) and pairs(nodes) and pairs(edges)):
        return None
    if not all("id" in node for node in nodes) or not all("source" in edge and "target" in edge for edge in edges):
        return None
    return Graph(
        [(node["id"], node) for node in nodes],
        [(edge["source"], edge["target"], edge) for edge in edges],
        bool(value.get("directed", False)),
        about if isinstance(about, dict) else {},
        start,
    )
