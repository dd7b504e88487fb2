"""A topology -> node-link JSON, as networkx reads it, and as ``load_topology`` reads it back."""

from __future__ import annotations

from typing import Any

from zenc.topology.model import Topology


def node_link(topology: Topology) -> dict[str, Any]:
    """The topology as networkx's node-link data: bytes, bytes a second, seconds. Places in texts are left out."""
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
