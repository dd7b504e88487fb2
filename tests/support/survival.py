"""Whatever comes in, what comes out is something that makes sense, or a ZencError that says what is wrong.

For tests on inputs at random, and for ``tests/fuzz``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from zenc.codegen.artifact import load_artifact
from zenc.draw.render import svg
from zenc.draw.topology import draw_topology
from zenc.errors import ArtifactError, DrawingError, VerificationError, ZencError
from zenc.language.files import load_text
from zenc.plan.from_json import plan_from_json
from zenc.plan.to_json import plan_to_json
from zenc.scheme.resolve import resolve
from zenc.topology.importers.graph_files import node_link
from zenc.topology.levels import summarize
from zenc.topology.load import load_topology, resolve_topology
from zenc.topology.model import Topology
from zenc.verify.proof import verify


def assert_said(error: ZencError) -> None:
    """A ``ZencError`` says what is wrong, in words and for programs."""
    assert error.diagnostics and all(diagnostic.message for diagnostic in error.diagnostics)
    assert "Expected one of" not in str(error)
    assert json.dumps([diagnostic.to_json() for diagnostic in error.diagnostics])


def assert_read(text: str) -> None:
    """Scheme and topology of a text have a meaning, or there is an error for each."""
    try:
        program = load_text(text)
    except ZencError as error:
        assert_said(error)
        return
    for read in (resolve, resolve_topology):
        try:
            assert read(program)
        except ZencError as error:
            assert_said(error)


def assert_imported(path: Path, data: bytes) -> None:
    """What ``zenc topo show`` and ``convert`` do with a file of ``data``."""
    path.write_bytes(data)
    try:
        topology = load_topology(path)
    except ZencError as error:
        assert_said(error)
        return
    assert topology.size >= 1
    assert summarize(topology).text().encode()
    assert json.dumps(summarize(topology).to_json())
    assert_drawn(topology)
    path.write_text(json.dumps(node_link(topology)))
    assert facts(load_topology(path)) == facts(topology)


def assert_drawn(topology: Topology) -> None:
    try:
        assert svg(draw_topology(topology)).encode()
    except DrawingError as error:
        assert_said(error)


def facts(topology: Topology) -> tuple[Any, ...]:
    """All that a topology says, but for its name and its places in a text."""
    nodes = {
        topology.label(node): (topology.kind(node), data.get("memory"))
        for node, data in topology.graph.nodes(data=True)
    }
    links = {
        (topology.label(e.source), topology.label(e.target), e.bandwidth, e.latency, e.kind) for e in topology.links
    }
    hosts = [(host.name, host.ranks, host.memory) for host in topology.hosts]
    return topology.doc, topology.levels, nodes, links, hosts


def assert_planned(data: Any) -> None:
    """JSON is a plan, which can be proved or refused, or it is none."""
    try:
        plan = plan_from_json(data)
    except ArtifactError as error:
        assert error.diagnostics[0].id in ("bad-plan", "other-version")
        assert_said(error)
        return
    assert plan_from_json(plan_to_json(plan)) == plan
    try:
        verify(plan, 5)
    except VerificationError as error:
        assert_said(error)


def assert_loaded(directory: str | os.PathLike[str]) -> None:
    """A directory holds an artifact, or it does not."""
    try:
        artifact = load_artifact(directory)
    except ArtifactError as error:
        assert_said(error)
    else:
        assert json.dumps(artifact.manifest) and artifact.plan.digest
