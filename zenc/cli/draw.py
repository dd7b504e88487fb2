"""``zenc draw``: a scheme as a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import zenc.cli.common as common
from zenc.common.resources import write_text

if TYPE_CHECKING:
    from zenc.averaging.picture import AveragingDrawing
    from zenc.draw.scheme import Drawing
    from zenc.strategy.picture import StrategyDrawing

OutputOption = Annotated[
    Path | None, common.output_option(".svg", "--output", "-o", help="Where to write. [default: standard output]")
]
PhaseOption = Annotated[
    Literal["announce", "directory", "push", "pull"] | None, typer.Option("--phase", help="Draw this phase only.")
]
StepsOption = Annotated[
    str | None, typer.Option("--steps", metavar="A..B", help="Draw these steps of each phase, counted from 1.")
]

EXAMPLES = """\b
Examples:
  zenc draw balanced --ranks 4 -o balanced.svg
  zenc draw balanced --topology 'nodes(2, gpus = 4)' -o loads.svg
  zenc draw dense_ring --ranks 16 --phase push --steps 1..3 > ring.svg
  zenc draw step.zen --model model.json -o step.svg
"""


def draw(
    file: common.WithStrategyArgument,
    ranks: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of ranks, at most 256. [default: 4, or the nearest it allows]"),
    ] = None,
    output: OutputOption = None,
    phase: PhaseOption = None,
    steps: StepsOption = None,
    assignments: common.SetOption = None,
    scheme: common.WhichOption = None,
    topology: common.TopologyOption = None,
    density: common.DensityOption = 0.01,
    units: common.UnitsOption = 1_000_000,
    width: common.WidthOption = 64,
    dtype: common.DtypeOption = "f32",
    model: common.TensorsOption = None,
    json: common.JsonOption = False,
) -> None:
    """Draw who sends what to whom, step by step, as an SVG.

    Ranks are columns and time runs down. An arrow is a move, in the colour of the part that it carries. The bars
    between the steps show what every rank holds: a part's bar is as high as the share of the ranks that are in its sum.
    Above 16 ranks it is a matrix for each phase: rows send, columns receive.
    Arrows and ranks say more about themselves when a browser points at them. The file needs no other file, font or
    script.

    With --topology arrows have the colour of the load of the links on their way, as is to be expected for gradients of
    the given units, width, dtype and density.

    For a strategy its rules are drawn, a colour each; with --model also the tensors, by their rules, in groups. Its
    messages over time are drawn by zenc simulate --strategy FILE --model FILE --plot.

    For an averaging the groups of each step are drawn, in a colour each.
    """
    path, params, chosen = common.locate(file), common.parameters(assignments), _range(steps)
    drawing: Drawing | StrategyDrawing | AveragingDrawing
    with common.reporting(json, "draw"):
        from zenc.gradients.spec import GradientSpec
        from zenc.kinds import open as open_text

        found = open_text(path, **common.asked(ranks, params, scheme, topology))
        common.ensure_no_model(found, model)
        if found.kind == "scheme":
            drawing = found.draw(phase=phase, steps=chosen, gradient=GradientSpec(units, width, dtype, density))
        else:
            drawing = found.draw(model=model) if found.kind == "strategy" else found.draw()
        text = drawing.svg()
        if output:
            write_text(output, text)
    if json:
        shown = drawing.to_json() if output else {**drawing.to_json(), "svg": text}
        common.print_json({"ok": True, "file": str(output) if output else None, **shown})
    elif output:
        print(f"{output}: {drawing.words()}")
    else:
        common.print_bytes(text.encode())


def _range(steps: str | None) -> tuple[int, int | None]:
    """Return ``3..5``, ``3..``, ``..5`` or ``3`` as first and last step.

    Raises:
        typer.BadParameter: the text has another form.
    """
    if steps is None:
        return 1, None
    found = re.fullmatch(r"(\d{0,9})(\.\.)?(\d{0,9})", steps.strip())
    if not found or not (found[1] or found[3]):
        raise typer.BadParameter(f"--steps takes A..B, such as 2..5 or 3, not '{steps}'")
    first = int(found[1] or 1)
    last = int(found[3]) if found[3] else None if found[2] else first
    if first < 1 or (last is not None and last < first):
        raise typer.BadParameter(f"--steps {steps}: steps are counted from 1, the first one first")
    return first, last
