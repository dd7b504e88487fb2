"""``zenc simulate``: predicted seconds of schemes, on any number of ranks."""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import zenc.cli.common as common
import zenc.cli.given as given
from zenc.cli.given import Progress
from zenc.common.limits import LIMITS
from zenc.common.resources import write_text

if TYPE_CHECKING:
    from zenc.gradients.profile import Profile
    from zenc.simulator.calibration import Calibration
    from zenc.topology.model import Topology

EXAMPLES = """\b
Examples:
  zenc simulate balanced sparcml dense_ring
  zenc simulate balanced holders --ranks 1024 --bandwidth '25 Gbit/s'
  zenc simulate balanced sparcml --ranks 2,4,8,16,32 --plot ranks.svg
  zenc simulate balanced agsparse --ranks 16 --density 0.001,0.01,0.1 --plot density.svg --over density
  zenc simulate balanced zen_cluster --topology 'nodes(16, gpus = 8)' --profile model.json
  zenc simulate balanced --ranks 8 --trace trace.json

\b
What it answers: which scheme is fastest for this gradient, on this cluster, and why.
  1. Say what the gradient is like: --profile FILE (of zenc profile or zenc.Profiler), or --density, --units, --zipf.
  2. Say what the cluster is like: --topology, or --ranks and --bandwidth for one switch; --calibration FILE for what
     zenc calibrate measured there. Without one latencies and kernels are guesses, which the last line says.
  3. Read the table. "ratio" is to the best. "bottleneck" is the link that carries for longest: near 100 % of the time,
     bytes decide; far below it, steps, messages and kernels do.
Several numbers of --ranks, --density or --bandwidth make tables, and curves by --plot; ui.perfetto.dev shows a --trace.

\b
A whole step of training by a strategy: its seconds, and how much of them is exposed communication.
  zenc simulate --strategy step.zen --model model.json --ranks 4 --plot step.svg --trace step.json
"""

MOST_RANKS = int(LIMITS["simulated ranks"].most)

Over = Literal["ranks", "density", "bandwidth"]


def simulate(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="SCHEME", help=".zen files, or names of schemes that come with zenc.")
    ] = None,
    topology: common.TopologyOption = None,
    profile: given.ProfileOption = None,
    parameter: given.ParameterOption = None,
    ready: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TIME", help="Time of a gradient's arrival, such as words=12ms: computing goes on beside it."
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="N,...", help=f"Numbers of ranks, 1 to {MOST_RANKS:,}; 2..64 doubles them. [default: 8]"),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(metavar="B,...", help="Bandwidth of a rank's link, such as '25 Gbit/s', without topology."),
    ] = None,
    density: Annotated[
        str | None, typer.Option(metavar="D,...", help="Share of units that a rank holds. [default: 0.01]")
    ] = None,
    units: given.UnitsOption = 1_000_000,
    width: common.WidthOption = 64,
    dtype: common.DtypeOption = "f32",
    zipf: given.ZipfOption = None,
    calibration: given.CalibrationOption = None,
    device: given.DeviceOption = None,
    host: given.HostOption = None,
    link: common.LinkOption = None,
    assignments: common.SetOption = None,
    strategy: Annotated[
        str | None, typer.Option(metavar="FILE", help="A step of --model by this strategy, instead of schemes.")
    ] = None,
    model: given.ModelOption = None,
    plot: Annotated[
        Path | None, common.output_option(".svg", "--plot", help="Plot seconds to this SVG file; needs zenc[plots].")
    ] = None,
    over: Annotated[Over | None, typer.Option(help="Axis of the plot. [default: the one with several values]")] = None,
    trace: Annotated[
        Path | None, common.output_option(".json", "--trace", help="Write a run of the best scheme as a Chrome trace.")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Say how long schemes take, and which is best.

    Expected bytes of every message come from the scheme and the profile. Messages share links fairly, ranks wait for
    what they need, and each step, message and kernel takes what the calibration says. Ranks that do alike are simulated
    as one, so thousands take seconds.
    """
    paths, params = [common.locate(file) for file in files or ()], common.parameters(assignments)
    if not (paths or strategy) or (paths and strategy) or bool(strategy) != bool(model):
        raise typer.BadParameter("give SCHEMEs; or --strategy FILE and --model FILE, for a step of training")
    with common.reporting(json, "simulate"):
        if strategy and model:
            if link is not None:
                raise typer.BadParameter("--link is for schemes, and this is a strategy")
            of_step = (ranks, bandwidth, topology, calibration, device, host)
            _simulate_step(model, common.locate(strategy), *of_step, plot=plot, trace=trace, json=json)
            return
        if host is not None:
            raise typer.BadParameter("--host is for a strategy, and this is schemes")
        from zenc.pipeline.request import Request
        from zenc.pipeline.shown import planners_of
        from zenc.simulator import sweep
        from zenc.simulator.sweep import SweepPoint, chrome_trace, text

        cluster, _ = common.on_topology(topology, None)
        sizes = _sizes(ranks, cluster)
        densities = _numbers("--density", density) or ([0.01] if profile is None else [])
        profiles = given.profiles_of(profile, parameter, densities, units, width, dtype, zipf)
        moments = _moments(ready, profiles[0])
        bandwidths = given.calibrations(calibration, bandwidth, cluster, device)
        places = [
            SweepPoint(size, gradients, cluster, known, moments)
            for size, gradients, known in product(sizes, profiles, bandwidths)
        ]
        if trace and len(places) > 1:
            raise typer.BadParameter("--trace is of one run: give one number of ranks, one density and one bandwidth")
        axis = over or _axis(sizes, profiles, bandwidths)
        if plot and len(places) < 2:
            raise typer.BadParameter("--plot needs several values of --ranks, --density or --bandwidth")
        missing = common.without_plots(plot)
        schemes = planners_of(paths, Request(params=params, topology=cluster, link=link))
        found = sweep.simulate(schemes, places, Progress("simulate"), trace is not None)
        common.show_diagnostics(found.skipped)
        if trace:
            best = max(found.points[0].outcomes, key=lambda each: bool(each.worst.spans))  # NCCL's has none
            write_text(trace, json_text.dumps(chrome_trace(best.worst)) + "\n")
        if plot and not missing:
            from zenc.draw.plots import curves

            write_text(plot, curves.of_simulation(found, places, axis))
    told = [diagnostic.to_json() for diagnostic in (*found.skipped, *missing)]
    common.show(json, {**found.to_json(), "diagnostics": told}, text(found), missing)


def _simulate_step(
    model: Path,
    strategy: str,
    ranks: str | None,
    bandwidth: str | None,
    topology: str | None,
    calibration: Path | None,
    device: given.Device | None,
    host: Path | None,
    *,
    plot: Path | None,
    trace: Path | None,
    json: bool,
) -> None:
    from zenc import forecast
    from zenc.strategy.simulation.step_trace import chrome_trace

    cluster, _ = common.on_topology(topology, None)
    sizes, known = _sizes(ranks, cluster), given.calibrations(calibration, bandwidth, cluster, device)
    if len(sizes) != 1 or len(known) != 1:
        raise typer.BadParameter("a step is simulated for one number of ranks and one bandwidth")
    found = forecast.simulate_step(
        model, strategy, ranks=sizes[0], topology=cluster, calibration=known[0], device=device, host=host
    )
    missing = common.without_plots(plot)
    if trace:
        events = chrome_trace(found.merged, found.replay, found.labels)
        write_text(trace, json_text.dumps(events) + "\n")
    if plot and not missing:
        from zenc.strategy import plot as step

        title = f"A step of {model.stem} by {Path(strategy).stem} on {sizes[0]} ranks"
        write_text(plot, step.svg(found.merged, found.replay, found.labels, title, "; ".join(found.notes)))
    common.show(json, {"ranks": sizes[0], **found.to_json()}, found.text(), missing)


def _numbers(option: str, text: str | None) -> list[float]:
    try:
        return [float(each) for each in text.split(",")] if text else []
    except ValueError:
        raise typer.BadParameter(f"{option} takes numbers with commas between them, not '{text}'") from None


def _sizes(ranks: str | None, cluster: Topology | None) -> list[int]:
    if ranks is None:
        return [cluster.size if cluster else 8]
    found = [size for text in ranks.split(",") for size in _doubling(text)]
    if not found or any(not 1 <= size <= MOST_RANKS for size in found):
        help = f"whole numbers from 1 to {MOST_RANKS:,} with commas between them, or a range such as 2..{MOST_RANKS}"
        raise typer.BadParameter(f"--ranks takes {help}, not '{ranks}'")
    return found


def _doubling(text: str) -> list[int]:
    """Return the sizes in ``8``, or in ``2..64``: 2, each twice the one before, and 64; 0 for any other text."""
    ends = [each.strip() for each in text.split("..")]
    if len(ends) > 2 or not all(each.isdecimal() and len(each) < 10 for each in ends):
        return [0]
    low, high = int(ends[0]), int(ends[-1])
    return [*(low << k for k in range(64) if low << k < high), high] if 0 < low <= high else [0]


def _moments(ready: Sequence[str] | None, profiles: dict[str, Profile]) -> dict[str, float]:
    found: dict[str, float] = {}
    for assignment in ready or ():
        name, _, text = assignment.rpartition("=")
        if name not in profiles:
            raise typer.BadParameter(f"--ready names '{name}', and the gradients are {', '.join(profiles)}")
        found[name] = given.amount("latency", f"--ready {name}", text)
        if found[name] < 0:
            raise typer.BadParameter(f"--ready {name}: a time is not below 0")
    return found


def _axis(sizes: list[int], profiles: list[dict[str, Profile]], bandwidths: list[Calibration]) -> Over:
    counts: dict[Over, int] = {"ranks": len(sizes), "density": len(profiles), "bandwidth": len(bandwidths)}
    return max(counts, key=lambda axis: counts[axis])
