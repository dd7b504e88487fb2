"""``zenc profile``: sparsity profiles from a run, from recorded index sets, or from a few numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import zenc.cli.common as common
from zenc.cli.given import ParameterOption, ZipfOption
from zenc.common.resources import write_text

if TYPE_CHECKING:
    from zenc.gradients.profile import Profile

_HELP = """Sparsity profiles: how often ranks hold the units of a gradient.

What a scheme costs depends on three things beside the density: how far ranks overlap, how dense their sum gets
(densification), and how unevenly units are spread (skewness). A profile holds them for any number of ranks.

\b
  zenc profile show model.json           read one: of zenc.Profiler, or of the verbs below
  zenc profile draw ... -o model.json    make one up, from a density and a law
  zenc profile record ... -o model.json  make one of the index sets that ranks had in a step

zenc simulate --profile takes such a file. A training script records its own:

\b
  profiler = zenc.Profiler(every=100)
  handle = zenc.attach(ddp_model, "auto", profiler=profiler)
  ...
  profiler.save("model.json")                      # on one rank: all have the same counts

zenc.attach(ddp_model, dry_run=True) records also how long steps take, and when each gradient is ready.
"""
_SHOW = """\b
Examples:
  zenc profile show model.json
  zenc profile show model.json --parameter words.weight --ranks 16
  zenc profile show model.json --plot model.svg

\b
How to read it:
  density of their sum   what k ranks hold together: what travels after it is summed
  densification          the same over what one rank holds: 1 if all hold the same, k if no two overlap
  skewness of k parts    the fullest of k equal ranges over the mean one: what an imbalanced scheme waits for
  holders                units with one holder need no summing, only to be told to the others
  ready                  of a model: how far the backward pass has come when the gradient of a parameter is whole
  forward                of a model: what the forward pass of the parameter's module takes
Numbers for more ranks than were recorded are extrapolated.
"""
_DRAW = """\b
Examples:
  zenc profile draw --units 50000 --density 0.02 --zipf 1.05 -o words.json
  zenc profile draw --units 1000000 --density 0.01 --overlap 0.3 -o - | zenc profile show /dev/stdin
  zenc profile draw --units 1000000 --density 0.001 --core 0.5 -o core.json
"""
_RECORD = """\b
Examples:
  zenc profile record indices.json -o model.json
  zenc profile record step-1.npz --name words.weight -o model.json

INDICES is what zenc explain --indices reads: JSON such as {"units": 1000, "width": 64, "ranks": [[3, 17], [4, 17]]},
or a .npz file of numpy with units, width and rank0, rank1, ...
"""
_MOST_PLOTTED = 8

profile = typer.Typer(no_args_is_help=True, help=_HELP, rich_markup_mode=None)

OutputOption = Annotated[str, common.output_option(".json", "-o", "--output", help="File; - is standard output.")]


@profile.command("show", epilog=_SHOW)
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of profiles.")],
    parameter: ParameterOption = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1, max=4096, metavar="N", help="Ranks whose holders are counted. [default: as recorded, or 8]"
        ),
    ] = None,
    plot: Annotated[
        Path | None, common.output_option(".svg", "--plot", help="Plot them, too; needs zenc[plots].")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Print overlap, densification, skewness and holders; of a model also when its gradients are ready."""
    with common.reporting(json):
        from zenc.gradients import profile_report
        from zenc.gradients.profile_io import read_profiles
        from zenc.simulator.training import profile_text
        from zenc.simulator.training.model_profile import ModelProfile, read_gradients

        read = read_profiles(file, parameter) if parameter else read_gradients(file)
        model = read if isinstance(read, ModelProfile) else None
        found = dict(read.profiles) if isinstance(read, ModelProfile) else read
        sizes = {name: profile_report.ranks_of(each, ranks) for name, each in found.items()}
        shown = [profile_report.to_json(each, sizes[name]) for name, each in found.items()]
        missing = common.without_plots(plot)
        if plot and len(found) > _MOST_PLOTTED:
            raise typer.BadParameter(f"--plot has room for {_MOST_PLOTTED} gradients: choose some by --parameter")
        if plot and not missing:
            from zenc.draw.plots import profiles

            write_text(plot, profiles.svg(found, ranks, model))
        tables = [profile_text.text(model)] if model else []
        tables += [profile_report.text(each, sizes[name]) for name, each in found.items()]
    file_of_plot = str(plot) if plot and not missing else None
    about = {"model": model.to_json()} if model else {}
    common.show(json, {"file": file_of_plot, **about, "profiles": shown}, "\n\n".join(tables), missing)


@profile.command("draw", epilog=_DRAW)
def draw(
    output: OutputOption,
    density: common.DensityOption = 0.01,
    units: common.UnitsOption = 1_000_000,
    width: common.WidthOption = 64,
    dtype: common.DtypeOption = "f32",
    zipf: ZipfOption = None,
    overlap: Annotated[
        float | None, typer.Option(metavar="Q", help="Overlap of two ranks, by drawing from a subset of the units.")
    ] = None,
    core: Annotated[
        float | None,
        typer.Option(metavar="P", help="Share of units that all ranks have in common; the rest is chance."),
    ] = None,
    contiguous: Annotated[
        bool, typer.Option("--contiguous", help="The subset of --overlap is the first units, not spread out.")
    ] = False,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the gradient.")] = None,
    json: common.JsonOption = False,
) -> None:
    """Make up a profile: units are held by chance, all alike, or as one of --zipf, --overlap and --core says."""
    if sum(law is not None for law in (zipf, overlap, core)) > 1:
        raise typer.BadParameter("--zipf, --overlap and --core each say how ranks overlap: give one of them")
    if contiguous and overlap is None:
        raise typer.BadParameter("--contiguous says where the subset of --overlap lies")
    with common.reporting(json):
        from zenc.gradients import profile_generators

        shape = (units, width, dtype)
        if zipf is not None:
            made = profile_generators.zipf(density, zipf, *shape)
        elif overlap is not None:
            made = profile_generators.random_subset(density, overlap, *shape, contiguous=contiguous)
        elif core is not None:
            made = profile_generators.common_core(density, core, *shape)
        else:
            made = profile_generators.uniform(density, *shape)
        _write(replace(made, name=name or made.name), output, json)


@profile.command("record", epilog=_RECORD)
def record(
    indices: Annotated[
        Path, typer.Argument(metavar="INDICES", help="The units of each rank, in a .json or .npz file.")
    ],
    output: OutputOption,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the gradient.")] = "recorded",
    json: common.JsonOption = False,
) -> None:
    """Make a profile of the units that ranks held in a step."""
    with common.reporting(json):
        from zenc.gradients.index_sets import read_gradients
        from zenc.gradients.profile_fit import from_gradients

        _write(from_gradients(read_gradients(indices), name), output, json)


def _write(made: Profile, output: str, json: bool) -> None:
    from zenc.gradients.profile_io import dump_profiles
    from zenc.gradients.profile_report import ranks_of, to_json

    density = f"{made.density * 100:.3g} %"
    said = f"{output}: {made.name}, {made.units:,} units of {made.width} {made.dtype}, a rank holds {density}"
    common.deliver(json, output, dump_profiles([made]), {"profile": to_json(made, ranks_of(made, None))}, said)
