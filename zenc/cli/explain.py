"""``zenc explain``: the steps and the costs of a scheme, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import zenc.cli.common as common

if TYPE_CHECKING:
    from zenc.analysis.explanation import Explanation
    from zenc.averaging.table import AveragingTable
    from zenc.strategy.rule_table import RuleTable

EXAMPLES = """\b
Examples:
  zenc explain balanced --ranks 8 --density 0.002
  zenc explain balanced --topology 'nodes(2, gpus = 4)'
  zenc explain balanced --ranks 8 --units 200000 --density 0.02 --zipf 1.05
  zenc explain dense_ring --ranks 4 --rank 1 --units 60000 --width 65
  zenc explain mine.zen --indices recorded.json
  zenc explain balanced --ranks 4 --rank 1 --program
  zenc explain step.zen --ranks 8 --model model.json
"""

IndicesOption = Annotated[
    Path | None,
    common.file_option(
        "--indices", help="The units of each rank, as recorded in a .json or .npz file, instead of drawn ones."
    ),
]


def explain(
    file: common.WithStrategyArgument,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of ranks. [default: 4, or the nearest it allows, or as recorded]"
        ),
    ] = None,
    rank: Annotated[int, typer.Option(min=0, metavar="R", help="Rank whose messages are listed.")] = 0,
    density: common.DensityOption = 0.01,
    units: common.UnitsOption = 1_000_000,
    width: common.WidthOption = 64,
    dtype: common.DtypeOption = "f32",
    zipf: Annotated[
        float | None, typer.Option(metavar="S", help="Draw units by Zipf's law with this exponent, unit 0 most often.")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(metavar="Q", help="Share of one rank's units that another one holds too.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random numbers that units are drawn with.")] = 0,
    indices: IndicesOption = None,
    assignments: common.SetOption = None,
    scheme: common.WhichOption = None,
    topology: common.TopologyOption = None,
    link: common.LinkOption = None,
    program: Annotated[
        bool, typer.Option("--program", help="Print the program of rank R instead: its statements, one by one.")
    ] = False,
    model: common.TensorsOption = None,
    json: common.JsonOption = False,
) -> None:
    """Say who sends what to whom, and count the bytes, headers included.

    The count is exact for its gradients: those that --indices records, or else drawn ones, with the given share of
    units on every rank. A call with the same units in its gradients sends as many bytes.

    Below it stands the cost for any number of ranks n, as formulas that were found by counting and checked at many n:
    M is the size of the dense tensor, d_k the density of the sum of k ranks. With --topology the ranks are those of the
    topology, and the loads of its links follow.

    A strategy is shown as a table of its rules: schemes, devices, what is lost, and the bytes that are sent for each
    value of a dense gradient; with --model also how many tensors and bytes each rule is about.

    An averaging is shown as a table of its steps: groups, bytes and messages, with --topology also the busiest link.
    """
    path, params = common.locate(file), common.parameters(assignments)
    if ranks is not None and rank >= ranks:
        raise typer.BadParameter(f"--rank {rank} is not among the ranks 0 to {ranks - 1}")
    shown: Explanation | RuleTable | AveragingTable
    with common.reporting(json, "explain"):
        from zenc.gradients.spec import GradientSpec
        from zenc.kinds import open as open_text

        found = open_text(path, **common.asked(ranks, params, scheme, topology, link))
        common.ensure_no_model(found, model)
        if found.kind == "strategy":
            if program or indices:
                raise typer.BadParameter("--program and --indices are of a scheme: name one of them, --scheme NAME")
            shown = found.explain(model=model)
        elif found.kind == "averaging":
            shown = found.explain()
        elif program:
            programs = found.programs(rank, units, width, dtype).values()
            text = "\n\n".join(each.text() for each in programs)
            return common.answer(json, {"programs": [each.to_json() for each in programs]}, text)
        else:
            gradient = GradientSpec(units, width, dtype, density, zipf, overlap, seed)
            shown = explanation = found.explain(rank, gradient, indices)
            common.show_diagnostics(explanation.placement.warnings if explanation.placement else ())
    common.answer(json, shown.to_json(), shown.text())
