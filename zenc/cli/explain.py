"""``zenc explain``: what a scheme does and costs, before anything runs."""

from __future__ import annotations

from typing import Annotated

import typer

from zenc.cli.common import (
    JsonOption,
    NameOption,
    SchemeArgument,
    SetOption,
    TopologyOption,
    locate,
    on_topology,
    parameters,
    print_json,
    reporting,
    show_diagnostics,
)

EXAMPLES = """\b
Examples:
  zenc explain balanced --ranks 8 --density 0.002
  zenc explain balanced --topology 'nodes(2, gpus = 4)'
  zenc explain dense_ring --ranks 4 --rank 1 --units 60000 --width 65
"""


def explain(
    file: SchemeArgument,
    ranks: Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of ranks. [default: 4]")] = None,
    rank: Annotated[int, typer.Option(min=0, metavar="R", help="Whose messages to list.")] = 0,
    density: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="D", help="Share of units that one rank's gradient holds.")
    ] = 0.01,
    units: Annotated[
        int, typer.Option(min=0, metavar="U", help="Units of the tensor: rows of an embedding, or elements.")
    ] = 1_000_000,
    width: Annotated[int, typer.Option(min=1, metavar="W", help="Values in a unit: columns of an embedding.")] = 64,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="f32, f64, f16 or bf16.")] = "f32",
    assignments: SetOption = None,
    scheme: NameOption = None,
    topology: TopologyOption = None,
    json: JsonOption = False,
) -> None:
    """Say who sends what to whom, and how many bytes to expect.

    The bytes are a prediction for gradients that hold the given share of units, at random on every rank.

    Below them stands the cost for any number of ranks n, as formulas that were found by counting and checked at many n:
    M is the size of the dense tensor, d_k the density of the sum of k ranks. With --topology the ranks are those of the
    topology, and the loads of its links follow.
    """
    path, params = locate(file), parameters(assignments)
    if topology is None and rank >= (ranks or 4):
        raise typer.BadParameter(f"--rank {rank} is not among the ranks 0 to {(ranks or 4) - 1}")
    with reporting(json):
        from zenc import compiler

        cluster, size = on_topology(topology, ranks)
        size = 4 if size is None else size
        explanation = compiler.explain(
            path,
            ranks=size,
            rank=rank,
            density=density,
            units=units,
            width=width,
            dtype=dtype,
            params=params,
            scheme=scheme,
            topology=cluster,
        )
    show_diagnostics(explanation.placement.warnings if explanation.placement else ())
    if json:
        print_json({"ok": True, **explanation.to_json()})
    else:
        print(explanation.text())
