"""``zenc explain``: what a scheme does and costs, before anything runs."""

from __future__ import annotations

from typing import Annotated

import typer

from zenc.cli.common import (
    JsonOption,
    NameOption,
    SchemeArgument,
    SetOption,
    locate,
    parameters,
    print_json,
    reporting,
)

EXAMPLES = """\b
Examples:
  zenc explain balanced --ranks 8 --density 0.002
  zenc explain dense_ring --ranks 4 --rank 1 --units 60000 --width 65
"""


def explain(
    file: SchemeArgument,
    ranks: Annotated[int, typer.Option(min=1, metavar="N", help="Number of ranks.")] = 4,
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
    json: JsonOption = False,
) -> None:
    """Say who sends what to whom, and how many bytes to expect.

    The bytes are a prediction for gradients that hold the given share of units, at random on every rank.
    """
    path, params = locate(file), parameters(assignments)
    if rank >= ranks:
        raise typer.BadParameter(f"--rank {rank} is not among the ranks 0 to {ranks - 1}")
    with reporting(json):
        from zenc import compiler

        explanation = compiler.explain(
            path,
            ranks=ranks,
            rank=rank,
            density=density,
            units=units,
            width=width,
            dtype=dtype,
            params=params,
            scheme=scheme,
        )
    if json:
        print_json({"ok": True, **explanation.to_json()})
    else:
        print(explanation.text())
