"""``zenc report``: schemes on one topology, predicted and measured, in one HTML file."""

from __future__ import annotations

import datetime
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import zenc.cli.common as common
import zenc.cli.given as given
from zenc.cli.given import Progress
from zenc.common.resources import write_text
from zenc.common.wording import count

if TYPE_CHECKING:
    from zenc.report.measured import Conditions
    from zenc.simulator.calibration import Calibration
    from zenc.topology.model import Topology

EXAMPLES = """\b
Examples:
  zenc report balanced holders sparcml --ranks 8 --bandwidth '1 Gbit/s' --zipf 1.05 -o report.html
  zenc report balanced zen_cluster --topology 'nodes(4, gpus = 8)' --profile model.json -o report.html
  zenc report balanced holders --measured lab.json --calibration here.json -o report.html

\b
What is in it: which scheme is the fastest, and how sure that is; predicted beside measured; the gradients; the network
with its drawing; and of each scheme its proof, its phases, its drawing and its text.

\b
--measured takes what `python -m benchmarks.lab --json` writes, or seconds of a call that you have measured otherwise:
  {"balanced": 0.0123, "holders": 0.0110}
Ranks, gradient and bandwidth are then those that the file names, unless they are given.
"""

DEFAULT_DENSITY, DEFAULT_UNITS, DEFAULT_WIDTH = 0.01, 1_000_000, 64


def report(
    files: Annotated[
        list[str], typer.Argument(metavar="SCHEME", help=".zen files, or names of schemes that come with zenc.")
    ],
    output: Annotated[
        Path | None, common.output_option(".html", "--output", "-o", help="Where to write. Required without --json.")
    ] = None,
    ranks: given.RanksOption = None,
    topology: common.TopologyOption = None,
    profile: given.ProfileOption = None,
    parameter: given.ParameterOption = None,
    bandwidth: given.BandwidthOption = None,
    density: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, metavar="D", help="Share of units a rank holds. [default: 0.01]")
    ] = None,
    units: Annotated[
        int | None, typer.Option(min=1, metavar="U", help="Units of the tensor. [default: 1,000,000]")
    ] = None,
    width: Annotated[int | None, typer.Option(min=1, metavar="W", help="Values in a unit. [default: 64]")] = None,
    dtype: common.DtypeOption = "f32",
    zipf: given.ZipfOption = None,
    calibration: given.CalibrationOption = None,
    device: given.DeviceOption = None,
    measured: Annotated[Path | None, common.file_option(help="Measured calls, laid beside the predictions.")] = None,
    assignments: common.SetOption = None,
    json: common.JsonOption = False,
) -> None:
    """Write one HTML file about schemes at one place: proved, drawn, predicted, and beside it what was measured.

    It is readable on a phone, light and dark, and loads nothing from elsewhere. With --json its data are printed.
    """
    if output is None and not json:
        raise typer.BadParameter("say where to write: -o report.html; or print its data: --json")
    paths, params = [common.locate(file) for file in files], common.parameters(assignments)
    with common.reporting(json, "report"):
        from zenc.forecast import DEFAULT_RANKS
        from zenc.report.findings import findings
        from zenc.report.measured import Conditions, read_measured
        from zenc.report.page import html
        from zenc.simulator.sweep import SweepPoint

        taken = read_measured(measured) if measured else None
        at = taken.at if taken else Conditions()
        cluster, size = common.on_topology(topology, ranks)
        known = _calibration(calibration, bandwidth, cluster, device, at)
        remarks = []
        if profile is None:
            zipf = zipf if zipf is not None else at.zipf or None
            shape = units or at.units or DEFAULT_UNITS, width or at.width or DEFAULT_WIDTH, dtype
            densities = [density if density is not None else at.density or DEFAULT_DENSITY]
            _ensure_drawn(at, density, measured)
            (gradients,) = given.profiles_of(None, parameter, densities, *shape, zipf)
            remarks += [given.even_gradient().message] if zipf is None else []
        else:
            densities = [] if density is None else [density]
            (gradients,) = given.profiles_of(profile, parameter, densities, 1, 1, dtype, zipf)
        place = SweepPoint(size or at.ranks or DEFAULT_RANKS, gradients, cluster, known, {})
        found = findings(paths, place, taken, params, Progress("report"), remarks)
        common.show_diagnostics(found.skipped)
        if output:
            write_text(output, html(found, _made_by()))
    schemes, ranks_of_place = count(len(found.subjects), "scheme"), count(place.size, "rank")
    said = f"{output}: {schemes} among {ranks_of_place}; best: {found.subjects[0].name}"
    common.answer(json, {"file": str(output) if output else None, **found.to_json()}, said)


def _calibration(
    path: Path | None, bandwidth: str | None, cluster: Topology | None, device: given.Device | None, at: Conditions
) -> Calibration:
    """Return the calibration of the file, or a guess, with the given bandwidth, or that of the measurement."""
    found, *more = given.calibrations(path, bandwidth, cluster, device)
    if more:
        raise typer.BadParameter("--bandwidth: a report is about one bandwidth")
    if bandwidth is None and cluster is None and path is None and at.bandwidth:
        return replace(found, bandwidth=at.bandwidth)
    return found


def _ensure_drawn(at: Conditions, density: float | None, measured: Path | None) -> None:
    """Raise typer.BadParameter unless there is a prediction for the gradient of the measurement."""
    if measured and not at.drawn and density is None:
        help = "--profile FILE (as zenc profile record makes it), or --density, --units and --zipf"
        raise typer.BadParameter(f"{measured} does not say by which law its gradients were drawn: give {help}")


def _made_by() -> str:
    from zenc._version import __version__

    today = datetime.date.today().isoformat()
    return f"Made by zenc {__version__} on {today}: {shlex.join(['zenc', *sys.argv[1:]])}"
