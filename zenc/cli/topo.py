"""``zenc topo``: levels, links and routes of a cluster."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

import zenc.cli.common as common
from zenc.cli.common import JsonOption, answer, parameters, print_json, reporting, show_diagnostics
from zenc.common.resources import write_text
from zenc.common.wording import count

_HELP = """Topologies: ranks, switches and links.

A TOPOLOGY is a file: a text with a topology, NCCL_TOPO_DUMP_FILE's XML, the output of nvidia-smi topo -m, node-link
JSON or GraphML. FILE:NAME chooses one of several in a text. It is also a shipped topology, or a builder.
"""
_SHOW = """\b
Examples:
  zenc topo show mine.zen
  zenc topo show mine.zen:two_boxes --set boxes=4
  zenc topo show 'nodes(4, gpus = 8)' -o cluster.svg
  nvidia-smi topo -m > box.txt && zenc topo show box.txt --set nodes=4 --set 'network_bandwidth=100 Gbit/s'
"""
_CONVERT = """\b
Examples:
  zenc topo convert box.xml -o box.json
  zenc topo convert 'fat_tree(4)' -o - | python -m json.tool
"""
_LIST = """\b
Examples:
  zenc topo list
  zenc topo list --json
"""

topo = typer.Typer(no_args_is_help=True, help=_HELP, rich_markup_mode=None)

TopologyArgument = Annotated[str, typer.Argument(metavar="TOPOLOGY", help="A file, FILE:NAME, a name or a builder.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A value for a parameter of the topology; may be repeated."),
]


@topo.command("show", epilog=_SHOW)
def show(
    topology: TopologyArgument,
    assignments: SetOption = None,
    output: Annotated[Path | None, common.output_option(".svg", "-o", "--output", help="Draw it, too.")] = None,
    json: JsonOption = False,
) -> None:
    """Print levels, machines, links and how much they carry."""
    values = parameters(assignments)
    with reporting(json):
        from zenc.topology.levels import summarize
        from zenc.topology.load import load_with_warnings

        loaded, warnings = load_with_warnings(topology, values)
        summary = summarize(loaded)
        if output:
            from zenc.draw.topology import draw_topology

            write_text(output, draw_topology(loaded).svg())
    show_diagnostics(warnings)
    found = {**summary.to_json(), "diagnostics": [warning.to_json() for warning in warnings]}
    drawn = f"\ndrawing    {output}" if output else ""
    answer(json, {"file": str(output) if output else None, **found}, summary.text() + drawn)


@topo.command("convert", epilog=_CONVERT)
def convert(
    topology: TopologyArgument,
    output: Annotated[str, common.output_option(".json", "-o", "--output", help="File; - is standard output.")],
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Write a topology as node-link JSON, which networkx reads."""
    values = parameters(assignments)
    with reporting(json):
        from zenc.topology.importers.graph_files import node_link
        from zenc.topology.load import load_with_warnings

        loaded, warnings = load_with_warnings(topology, values)
        show_diagnostics(warnings)
        text = json_text.dumps(node_link(loaded), indent=1) + "\n"
        found = {"topology": loaded.name, "ranks": loaded.size, "links": len(loaded.links)}
        ranks, links = count(loaded.size, "rank"), count(len(loaded.links), "link")
        said = f"{output}: {loaded.name}, {ranks}, {links}, each direction counted"
        common.deliver(json, output, text, found, said)


@topo.command("list", epilog=_LIST)
def list_(json: JsonOption = False) -> None:
    """List the topologies that come with zenc, and the builders."""
    with reporting(json):
        from zenc.topology.load import load_topology, names
        from zenc.topology.shapes import BUILDERS, signature, summary

        shipped = [{"name": name, "summary": load_topology(name).doc} for name in names()]
        builders = [{"name": signature(name), "summary": summary(fill)} for name, fill in BUILDERS.items()]
    if json:
        print_json({"ok": True, "topologies": shipped, "builders": builders})
        return
    for entry in (*shipped, *builders):
        print(f"{entry['name']}\n  {entry['summary']}")
