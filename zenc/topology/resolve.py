"""Syntax tree -> topology: which one of a file is meant, with which values of its parameters."""

from __future__ import annotations

from collections.abc import Mapping

from zenc.did_you_mean import did_you_mean
from zenc.errors import Diagnostic, Span, TopologyError
from zenc.language import topology_syntax
from zenc.language.files import SourceFiles
from zenc.scheme.arguments import bind_parameters
from zenc.scheme.collector import Collector
from zenc.topology.builder import TopologyBuilder
from zenc.topology.elaborate import Declarer
from zenc.topology.model import Topology
from zenc.topology.name_check import Names


def resolve_topology(
    program: SourceFiles, name: str | None = None, parameters: Mapping[str, int | float | str] | None = None
) -> tuple[Topology, tuple[Diagnostic, ...]]:
    """The topology of ``program``, and warnings about it.

    Args:
        program: what ``zenc.language.files`` read.
        name: the name of the topology, needed where the file has several.
        parameters: values for parameters of the topology, also as strings (``"7"``, ``"2.5"``).

    Raises:
        TopologyError: with all problems that can be told at once.
    """
    chosen = choose_topology(program, name)
    draft = TopologyBuilder(chosen.name.text, chosen.doc or "", chosen.name.span)
    report = Collector(draft.problems)
    _report_twins(program, report)
    Names(report).check(chosen)
    environment = bind_parameters(chosen, parameters or {}, report)
    if not report.failed:
        Declarer(draft, report, _known(program), environment, (chosen.name.text,)).declare(chosen.body)
    return draft.finish(), tuple(found for found in draft.problems if found.severity == "warning")


def _known(program: SourceFiles) -> dict[str, topology_syntax.TopologySyntax]:
    return {topology.name.text: topology for file in reversed(program.files) for topology in file.topologies}


def choose_topology(program: SourceFiles, name: str | None) -> topology_syntax.TopologySyntax:
    """The topology called ``name``, or the only one of the main file.

    Raises:
        TopologyError: if it is not there, or there are several and none was named.
    """
    here, known, file = program.main.topologies, _known(program), program.main.source.name
    listed = (f"topologies: {', '.join(known)}",) if known else ()
    if name is not None:
        if name in known:
            return known[name]
        message = f"{file} has no topology '{name}'{did_you_mean(name, known)}"
        raise TopologyError(Diagnostic("unknown-topology", message, notes=listed))
    if len({topology.name.text for topology in here}) == 1:
        return here[0]
    if not here:
        help = "write topology NAME { ... }"
        raise TopologyError(Diagnostic("no-topology", f"{file} has no topology", _start_of(program), help=help))
    message = f"{file} has several topologies"
    help = f"choose one by its name: {file}:{here[0].name.text}"
    raise TopologyError(Diagnostic("several-topologies", message, here[1].name.span, listed, help))


def _start_of(program: SourceFiles) -> Span | None:
    main = program.main
    spans = [*(s.span for s in main.schemes), *(s.span for s in main.schedules), *(i.span for i in main.imports)]
    return spans[0] if spans else None


def _report_twins(program: SourceFiles, report: Collector) -> None:
    first: dict[str, topology_syntax.TopologySyntax] = {}
    for topology in program.main.topologies:
        other = first.setdefault(topology.name.text, topology)
        if other is not topology:
            message = f"there is another topology '{topology.name.text}'"
            report.error("duplicate-name", message, topology.name.span, notes=(f"the other one: {other.name.span}",))
