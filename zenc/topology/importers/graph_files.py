"""Files of networkx: node-link JSON, read and written, and GraphML, read once it is known to hold nothing dangerous."""

from __future__ import annotations

import io
import json
import warnings
from collections import Counter
from typing import Any

from zenc.common.untrusted import no_number
from zenc.errors import Diagnostic, Source, Span, TopologyError
from zenc.topology.builder import MOST_LINKS, MOST_NODES, TopologyBuilder, ensure_small
from zenc.topology.importers.graph import Graph, fill_from_graph
from zenc.topology.importers.xml import line_span, parse_xml
from zenc.topology.model import Topology

_DEEPEST = 100
MOST_GRAPHML_NODES = 1 << 15
"""Most nodes of a GraphML file, which networkx reads slowly."""


def fill_from_node_link(draft: TopologyBuilder, data: bytes, source: Source) -> None:
    """Fill ``draft`` from JSON; raises TopologyError (``malformed-topology``, ``topology-too-large``)."""
    start = Span(source, 0, 1)
    ensure_small(data.count(b'"id"'), data.count(b'"source"'), start)
    try:
        value = json.loads(source.text, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        place = getattr(error, "pos", 0)
        where = Span(source, place, place + 1)
        raise TopologyError(Diagnostic("malformed-topology", f"this is no JSON: {error}", where)) from error
    if _nests(value):
        raise TopologyError(Diagnostic("malformed-topology", f"this nests deeper than {_DEEPEST} levels", start))
    graph = _graph_of(value, start)
    if graph is None:
        message = "this is no node-link JSON: it has 'nodes', and 'edges' or 'links', each a list of objects"
        help = "networkx writes it: json.dump(networkx.node_link_data(graph), file)"
        raise TopologyError(Diagnostic("malformed-topology", message, start, help=help))
    fill_from_graph(draft, graph)


def _nests(value: Any) -> bool:
    """Return whether ``value`` is deeper than ``_DEEPEST``; messages show values by recursion."""
    held = [value]
    for _ in range(_DEEPEST):
        lists = [item for item in held if isinstance(item, list | dict) and item]
        held = [inner for item in lists for inner in (item.values() if isinstance(item, dict) else item)]
        if not held:
            return False
    return True


def _graph_of(value: Any, start: Span) -> Graph | None:
    nodes = value.get("nodes")
    edges = value.get("edges", value.get("links"))
    about = value.get("graph", {})
    if not (isinstance(nodes, list) and isinstance(edges, list)):
        return None
    if not all(isinstance(item, dict) for item in (*nodes, *edges)):
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


def fill_from_graphml(draft: TopologyBuilder, data: bytes, source: Source) -> None:
    """Fill ``draft`` from GraphML; raises TopologyError (``malformed-topology``, ``topology-too-large``)."""
    start = Span(source, 0, 1)
    ensure_small(data.count(b"<node"), data.count(b"<edge"), start)
    if data.count(b"<node") > MOST_GRAPHML_NODES:
        message = f"this GraphML has more than {MOST_GRAPHML_NODES:,} nodes"
        help = "node-link JSON is read in less time: json.dump(networkx.node_link_data(graph), file)"
        raise TopologyError(Diagnostic("topology-too-large", message, start, help=help))
    root = parse_xml(data, source, 4 * (MOST_NODES + MOST_LINKS))
    start = line_span(source, root.line)
    tags = Counter(element.tag for element in root.walk())
    ensure_small(tags["node"], tags["edge"], start)
    if tags["graph"] != 1:
        message = f"this GraphML holds {tags['graph']} graphs, and a topology is one"
        raise TopologyError(Diagnostic("malformed-topology", message, start))
    fill_from_graph(draft, _read(data, start))


def _read(data: bytes, start: Span) -> Graph:
    import networkx as nx

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of keys without a type, which are then texts
            graph = nx.read_graphml(io.BytesIO(data))
    except Exception as error:  # of many kinds, by what it stumbles over
        message = f"networkx can't read this GraphML: {type(error).__name__}: {str(error)[:200]}"
        raise TopologyError(Diagnostic("malformed-topology", message, start)) from error
    return Graph(list(graph.nodes(data=True)), list(graph.edges(data=True)), graph.is_directed(), graph.graph, start)


def node_link(topology: Topology) -> dict[str, Any]:
    """Return the topology as networkx's node-link data: bytes, bytes a second, seconds; without places in texts."""
    return {
        "directed": True,
        "multigraph": False,
        "graph": {
            "name": topology.name,
            "doc": topology.doc,
            "levels": [[level.name, level.count] for level in topology.levels],
            "hosts": [{"name": h.name, "ranks": list(h.ranks), "memory": h.memory} for h in topology.hosts],
        },
        "nodes": [_node(topology, node) for node in (*topology.ranks, *topology.switches)],
        "edges": [
            {
                "source": topology.label(link.source),
                "target": topology.label(link.target),
                "bandwidth": link.bandwidth,
                "latency": link.latency,
                "kind": link.kind,
            }
            for link in topology.links
        ],
    }


def _node(topology: Topology, node: int | str) -> dict[str, Any]:
    if not isinstance(node, int):
        return {"id": node, "kind": topology.kind(node)}
    found: dict[str, Any] = {"id": topology.label(node), "kind": "rank", "rank": node}
    memory = topology.memory(node)
    return found if memory is None else {**found, "memory": memory}
