"""GraphML, read by networkx once it is known to hold nothing dangerous."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from typing import Any

from zenc.errors import Diagnostic, Source, Span, TopologyError
from zenc.topology.builder import TopologyBuilder
from zenc.topology.check import MOST_LINKS, MOST_NODES, too_large
from zenc.topology.importers.graph import Graph, fill_from_graph
from zenc.topology.importers.xml import line_span, parse_xml


def fill(draft: TopologyBuilder, data: bytes, source: Source) -> None:
    """Fill ``draft`` from GraphML; raises TopologyError (``malformed-topology``, ``topology-too-large``)."""
    start = Span(source, 0, 1)
    found = too_large(data.count(b"<node"), data.count(b"<edge"), start)
    if found:
        raise TopologyError(found)
    root = parse_xml(data, source, 4 * (MOST_NODES + MOST_LINKS))
    start = line_span(source, root.line)
    tags = Counter(element.tag for element in root.walk())
    found = too_large(tags["node"], tags["edge"], start)
    if found:
        raise TopologyError(found)
    if tags["graph"] != 1:
        message = f"this GraphML holds {tags['graph']} graphs, and a topology is one"
        raise TopologyError(Diagnostic("malformed-topology", message, start))
    fill_from_graph(draft, _graph(_read(data, start), start))


def _read(data: bytes, start: Span) -> Any:
    import networkx as nx

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of keys without a type, which are then texts
            return nx.read_graphml(io.BytesIO(data))
    except Exception as error:  # of many kinds, by what it stumbles over
        message = f"networkx can't read this GraphML: {type(error).__name__}: {str(error)[:200]}"
        raise TopologyError(Diagnostic("malformed-topology", message, start)) from error


def _graph(graph: Any, start: Span) -> Graph:
    return Graph(
        list(graph.nodes(data=True)),
        [(source, target, data) for source, target, data in graph.edges(data=True)],
        bool(graph.is_directed()),
        dict(graph.graph),
        start,
    )
