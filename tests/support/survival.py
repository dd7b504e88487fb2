"""Properties of readers for any input: a result that makes sense, or a ZencError with a reason.

For tests on random inputs, and for ``tests/fuzz``.
"""

import json
from pathlib import Path
from typing import Any

from zenc.draw.topology import draw_topology
from zenc.errors import ArtifactError, DrawingError, VerificationError, ZencError
from zenc.language.files import load_text
from zenc.plan.from_json import plan_from_json
from zenc.scheme.resolve import resolve
from zenc.topology.importers.graph_files import node_link
from zenc.topology.levels import summarize
from zenc.topology.load import load_topology, resolve_topology
from zenc.topology.model import Topology
from zenc.verify.proof import verify

Faults = list[str]
"""Sentences about faults; none where all is well."""


def faults_of(**holds: object) -> Faults:
    """Return the names of the properties that do not hold, as sentences."""
    return [name.replace("_", " ") for name, held in holds.items() if not held]


def error_faults(error: ZencError) -> Faults:
    """Return faults of an error, which has to give a reason, in words and for programs."""
    return faults_of(
        it_says_nothing=error.diagnostics and all(diagnostic.message for diagnostic in error.diagnostics),
        it_speaks_of_tokens="Expected one of" not in str(error),
        it_is_no_json=json.dumps([diagnostic.to_json() for diagnostic in error.diagnostics]),
    )


def reading_faults(text: str) -> Faults:
    """Return faults where neither scheme nor topology of a text has a meaning, nor is there an error for each."""
    try:
        program = load_text(text)
    except ZencError as error:
        return error_faults(error)
    found = []
    for read in (resolve, resolve_topology):
        try:
            found += faults_of(it_has_no_meaning=read(program))
        except ZencError as error:
            found += error_faults(error)
    return found


def import_faults(path: Path, data: bytes) -> Faults:
    """Return faults of ``zenc topo show`` and ``convert`` with a file of ``data``."""
    path.write_bytes(data)
    try:
        topology = load_topology(path)
    except ZencError as error:
        return error_faults(error)
    path.write_text(json.dumps(node_link(topology)))
    return drawing_faults(topology) + faults_of(
        it_has_no_ranks=topology.size >= 1,
        its_summary_is_empty=summarize(topology).text().encode(),
        its_summary_is_no_json=json.dumps(summarize(topology).to_json()),
        it_is_another_one_when_read_again=facts(load_topology(path)) == facts(topology),
    )


def drawing_faults(topology: Topology) -> Faults:
    """Return faults of a topology's picture, if it is not too large for one."""
    try:
        return faults_of(its_picture_is_empty=draw_topology(topology).svg().encode())
    except DrawingError as error:
        return error_faults(error)


def facts(topology: Topology) -> tuple[Any, ...]:
    """Return all properties of a topology, but for its name and its places in a text."""
    nodes = {
        topology.label(node): (topology.kind(node), data.get("memory"))
        for node, data in topology.graph.nodes(data=True)
    }
    links = {
        (topology.label(e.source), topology.label(e.target), e.bandwidth, e.latency, e.kind) for e in topology.links
    }
    hosts = [(host.name, host.ranks, host.memory) for host in topology.hosts]
    return topology.doc, topology.levels, nodes, links, hosts


def plan_faults(data: Any) -> Faults:
    """Return faults of reading JSON: neither an error, nor a plan that can be proved or refused."""
    try:
        plan = plan_from_json(data)
    except ArtifactError as error:
        return error_faults(error) + faults_of(
            it_is_another_error=error.diagnostics[0].id in ("bad-plan", "other-version")
        )
    found = faults_of(it_is_another_one_when_read_again=plan_from_json(plan.to_json()) == plan)
    try:
        verify(plan, 5)
    except VerificationError as error:
        found += error_faults(error)
    return found
