"""``zenc tune``: the scheme that takes least on a cluster, and a file of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import zenc.cli.common as common
import zenc.cli.given as given
from zenc.cli.given import Progress
from zenc.common.resources import write_text
from zenc.common.wording import aligned

if TYPE_CHECKING:
    from zenc.select.search import TunedScheme
    from zenc.strategy.search.tuned import TunedStrategy

EXAMPLES = """\b
Examples:
  zenc tune --topology 'nodes(4, gpus = 8)' --profile model.json -o best.zen
  zenc tune --ranks 8 --density 0.002 --units 50000 --width 64 --plot best.svg
  zenc tune --ranks 16 --bandwidth '25 Gbit/s' --profile model.json --parameter words.weight --json

\b
What it answers: which scheme you would write for this gradient, on this cluster.
  1. Say what the gradient is like: --profile FILE, of a run or drawn; or --density, --units, --width, --zipf.
  2. Say what the cluster is like: --topology; or --ranks and --bandwidth for one switch. --calibration FILE has what
     was measured there.
  3. Read the table, then the file: it says how it was found and what was predicted. `zenc check` proves it again, and
     zenc.attach(model, "best.zen") takes it.

\b
A whole step of training, instead of one gradient: which tensor goes through which scheme, and together with which.
  zenc tune --strategy --model model.json --ranks 4 --schemes 'dense_ring, topk_a2a(0.01), one_bit' -o step.zen
The model's profile is of a dry run: zenc.attach(ddp_model, dry_run=True). What loses something is tried only if
--schemes names it, and taken only where the step is shorter by it. For ranks with GPUs --host host.json, what
`zenc calibrate --nproc 2` wrote there, has each scheme tried on the host as well, tensor by tensor (Espresso).
"""


def tune(
    topology: common.TopologyOption = None,
    profile: given.ProfileOption = None,
    parameter: given.ParameterOption = None,
    ranks: given.RanksOption = None,
    bandwidth: given.BandwidthOption = None,
    density: given.DensityOption = None,
    units: given.UnitsOption = 1_000_000,
    width: common.WidthOption = 64,
    dtype: common.DtypeOption = "f32",
    zipf: given.ZipfOption = None,
    calibration: given.CalibrationOption = None,
    device: given.DeviceOption = None,
    host: given.HostOption = None,
    output: Annotated[
        Path | None, common.output_option(".zen", "--output", "-o", help="Write the best scheme to this file.")
    ] = None,
    strategy: Annotated[
        bool, typer.Option("--strategy", help="Search for a strategy of the whole step of --model.")
    ] = False,
    model: given.ModelOption = None,
    schemes: Annotated[
        str | None,
        typer.Option(
            metavar="S, ...",
            help="For a strategy: schemes that may sum dense gradients, or a file whose strategy names them. "
            "[default: lossless ones]",
        ),
    ] = None,
    groups: Annotated[
        int | None, typer.Option(min=1, max=64, metavar="N", help="For a strategy: the most groups. [default: 2]")
    ] = None,
    plot: Annotated[
        Path | None, common.output_option(".svg", "--plot", help="Plot the table as bars; needs zenc[plots].")
    ] = None,
    lossy: given.LossyOption = None,
    json: common.JsonOption = False,
) -> None:
    """Search for the scheme that takes least, and write it as a file that a person can read and commit.

    It tries all shipped schemes with several values of their parameters, all combinations of the four dimensions, two
    tiers for each level of the topology, and all wire formats and units of the best. Each is predicted for every
    gradient of the profile, one call after another; the best are proved.
    """
    with common.reporting(json, "tune"):
        from zenc import forecast

        cluster, size = common.on_topology(topology, ranks)
        if strategy or model or schemes or groups or host:
            _ensure_of_step(strategy, model, bandwidth, plot, profile, density)
            if lossy:
                raise typer.BadParameter("--lossy is for one scheme; --schemes says what a strategy may use")
            from zenc.strategy.search.tuned import DEFAULT_SCHEMES

            (known,) = given.calibrations(calibration, bandwidth, cluster, device)
            assert model is not None
            chosen = forecast.tune_strategy(
                model, schemes or DEFAULT_SCHEMES, ranks=size, topology=cluster, calibration=known, device=device,
                host=host, groups=groups or 2, progress=Progress("tune", pause=2.0)
            )  # fmt: skip
            _show_strategy(chosen, output, json)
            return
        if profile is None and density is None:
            help = "say what gradients are like: --profile FILE, or --density D with --units and --width"
            raise typer.BadParameter(help)
        densities = [] if density is None else [density]
        (profiles,) = given.profiles_of(profile, parameter, densities, units, width, dtype, zipf)
        if bandwidth and "," in bandwidth:
            raise typer.BadParameter("--bandwidth: a search is for one bandwidth; zenc simulate takes several")
        (known,) = given.calibrations(calibration, bandwidth, cluster, device)
        missing = common.without_plots(plot)
        found = forecast.tune(
            profiles,
            ranks=size,
            topology=cluster,
            calibration=known,
            lossy=given.names(lossy),
            progress=Progress("tune", pause=2.0),
        )
        if plot and not missing:
            from zenc.draw.plots import curves

            write_text(plot, curves.of_tuned(found))
        common.show_made(json, found, output, _lines(found), missing, "has the first of them")


def _ensure_of_step(
    strategy: bool,
    model: Path | None,
    bandwidth: str | None,
    plot: Path | None,
    profile: Path | None,
    density: float | None,
) -> None:
    if not strategy or model is None:
        raise typer.BadParameter("a strategy is for a model: give --strategy and --model FILE; --schemes names schemes")
    if profile or density is not None:
        raise typer.BadParameter("--model has all gradients of the step: leave out --profile and --density")
    if plot:
        raise typer.BadParameter("--plot is of schemes; zenc simulate --strategy FILE --model FILE --plot draws a step")
    if bandwidth and "," in bandwidth:
        raise typer.BadParameter("--bandwidth: a search is for one bandwidth")


def _show_strategy(chosen: TunedStrategy, output: Path | None, json: bool) -> None:
    lines = [
        *_table(chosen.rows(), left=1),
        "the best loses least of what takes at most 1 % longer than the quickest",
        f"{chosen.found.tried:,} steps evaluated in {chosen.took:.2g} s, from {chosen.predicted} predicted calls",
        *chosen.pruned,
        *chosen.notes,
    ]
    common.show_made(json, chosen, output, lines, (), "has the first of them")


def _lines(found: TunedScheme) -> Iterator[str]:
    yield from _table(found.rows(), left=2)
    yield f"{found.tried} schemes predicted for {found.size} ranks on {found.where}; {found.refused} do not run there"
    if found.note:
        yield found.note


def _table(rows: Sequence[Mapping[str, str]], left: int) -> list[str]:
    """Return rows with their heads; cells of the first ``left`` columns begin below each other, the others end so."""
    names = list(rows[0])
    return aligned([names, *([row[name] for name in names] for row in rows)], range(left, len(names)))
