"""``zenc synthesize``: the bound of a cluster, and a proved scheme that comes near it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import zenc.cli.common as common
from zenc.cli.given import Progress

EXAMPLES = """\b
Examples:
  zenc synthesize 'dgx(2)' -o two.zen
  nvidia-smi topo -m > box.txt && zenc synthesize box.txt -o box.zen
  zenc synthesize 'box.txt(nodes = 4, network_bandwidth = 100 Gbit/s)' -o boxes.zen
  zenc synthesize cluster.graphml --chunks 16 --json
  zenc synthesize cluster.graphml --bytes 50e6 --density 0.02 -o sparse.zen

\b
What it answers: how fast an all-reduce can be on this cluster at all, and which scheme comes near that.
  1. The bound is proved: no scheme sends more through the cut than its links carry.
  2. The scheme is trees, as a text to read and commit; `zenc check` proves it again, on links with --topology.
  3. "predicted" is of a dense gradient of --bytes, by the simulator: bytes and links, without kernels and headers.
     At a --density the quickest form is taken: trees in few or many chunks, permuted or by holders, or owners alone.
Ranks pass on what they receive, so they need no links to all others; any ranks, switches, links and ways will do.
"""


def synthesize(
    topology: Annotated[
        str, typer.Argument(metavar="TOPOLOGY", help="A file, FILE:NAME, a shipped topology or a builder.")
    ],
    output: Annotated[
        Path | None, common.output_option(".zen", "--output", "-o", help="Write the scheme to this file.")
    ] = None,
    bytes: Annotated[
        float, typer.Option(min=1e3, max=1e15, metavar="B", help="Bytes of the dense gradient that is predicted.")
    ] = 64e9,
    chunks: Annotated[
        int | None,
        typer.Option(min=1, max=304, metavar="N", help="Pieces that a tree cuts its data in. [default: by depth]"),
    ] = None,
    density: Annotated[
        float, typer.Option(min=1e-9, max=1.0, metavar="D", help="Share of rows of 64 values that a rank holds.")
    ] = 1.0,
    json: common.JsonOption = False,
) -> None:
    """Find the bound of a cluster, and write a scheme that comes near it.

    An all-reduce takes at least the time in which the narrowest cut of the cluster carries what has to cross it. Trees
    are packed into the links from every rank to all others; sums go up the trees, and down again, in chunks.
    """
    with common.reporting(json, "synthesize"):
        from zenc.gradients.profile_generators import uniform
        from zenc.synthesize.synthesis import synthesize as made

        cluster, _ = common.on_topology(topology, None)
        assert cluster is not None
        gradient = uniform(density, max(1, round(bytes / 256)), 64) if density < 1 else None
        found = made(cluster, bytes, chunks, Progress("synthesize", pause=2.0), gradient)
        told = [f"{name:9}  {value}" for name, value in found.rows()]
        common.show_made(json, found, output, told, (), "has the scheme")
