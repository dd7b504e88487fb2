"""Options that the predicting verbs share: gradients, bandwidths and calibrations, read into their values; progress."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zenc.cli.common import SECONDS_OF_SILENCE, file_option, show_diagnostics
from zenc.common.limits import LIMITS
from zenc.errors import Diagnostic

if TYPE_CHECKING:
    from zenc.gradients.profile import Profile
    from zenc.simulator.calibration import Calibration
    from zenc.topology.model import Topology


Device = Literal["cpu", "gpu"]

ProfileOption = Annotated[Path | None, file_option("--profile", help="Profile of the gradients.")]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", metavar="NAME", help="Only this gradient of the file; may be repeated. [default: all]"),
]
RanksOption = Annotated[
    int | None,
    typer.Option("--ranks", min=1, max=4096, metavar="N", help="Number of ranks. [default: the topology's, or 8]"),
]
BandwidthOption = Annotated[
    str | None,
    typer.Option("--bandwidth", metavar="B", help="Bandwidth of a rank's link, such as '25 Gbit/s', without topology."),
]
ModelOption = Annotated[Path | None, file_option("--model", help="The profile of a model: a dry run's.")]
DensityOption = Annotated[
    float | None, typer.Option("--density", min=0.0, max=1.0, metavar="D", help="Share of units that a rank holds.")
]
UnitsOption = Annotated[
    int, typer.Option("--units", min=1, metavar="U", help="Units of the tensor: rows of an embedding, or elements.")
]
ZipfOption = Annotated[
    float | None,
    typer.Option("--zipf", metavar="S", help="Units are held by Zipf's law with this exponent, unit 0 most often."),
]
LossyOption = Annotated[
    str | None,
    typer.Option(
        "--lossy",
        metavar="LIST",
        help="Compare schemes that lose something, too: names or files, with commas between, or all. [default: none]",
    ),
]
CalibrationOption = Annotated[
    Path | None, file_option("--calibration", help="File that zenc calibrate wrote. [default: a guess]")
]
HostOption = Annotated[
    Path | None,
    file_option("--host", help="For a strategy: calibration of the processors beside GPUs, for rules on host."),
]
DeviceOption = Annotated[
    Device | None,
    typer.Option("--device", help="Device whose kernels are guessed without --calibration. [default: the topology's]"),
]


def calibrations(
    path: Path | None, bandwidth: str | None, cluster: Topology | None, device: Device | None
) -> list[Calibration]:
    """Return one for each of the bandwidths in ``bandwidth``, with commas between them; missing figures are assumed."""
    from zenc.simulator.calibration import assumed, read_calibration

    if path and device:
        raise typer.BadParameter("--calibration says what kernels take, and --device has it guessed: give either")
    speeds = bandwidths(bandwidth, cluster)
    if path is None:
        return [assumed(cluster, speed, device) for speed in speeds] or [assumed(cluster, None, device)]
    known = read_calibration(path)
    return [replace(known, bandwidth=speed) for speed in speeds] or [known]


def bandwidths(text: str | None, cluster: Topology | None) -> list[float]:
    """Return the bandwidths of a list with commas, in bytes a second."""
    if text is None:
        return []
    if cluster:
        raise typer.BadParameter("--bandwidth is of one switch; the links of a --topology have their own")
    return [amount("bandwidth", "--bandwidth", each) for each in text.split(",")]


def amount(kind: Literal["bandwidth", "latency", "memory"], option: str, text: str) -> float:
    """Return the number of ``option`` with its unit, in bytes a second, seconds or bytes."""
    from zenc.scheme.units import amount_of_text

    found = amount_of_text(kind, text)
    if isinstance(found, str):
        raise typer.BadParameter(f"{option}: {found}")
    if problem := LIMITS["seconds" if kind == "latency" else kind].problem(found):
        raise typer.BadParameter(f"{option}: {text.strip()!r} can't be: this {problem}")
    return found


def profiles_of(
    path: Path | None,
    names: list[str] | None,
    densities: list[float],
    units: int,
    width: int,
    dtype: str,
    zipf: float | None,
) -> list[dict[str, Profile]]:
    """Return for each density the gradients of a step, by name: those of a file, or a made-up one."""
    if path is None:
        from zenc.gradients import profile_generators

        if names:
            raise typer.BadParameter("--parameter chooses from the file of --profile")
        shape = (units, width, dtype)
        if zipf is None:
            show_diagnostics([even_gradient()])
            made = [profile_generators.uniform(each, *shape) for each in densities]
        else:
            made = [profile_generators.zipf(each, zipf, *shape) for each in densities]
        return [{each.name: each} for each in made]
    if densities or zipf is not None:
        raise typer.BadParameter("--density and --zipf make a profile, and --profile has one: give either")
    from zenc.gradients.profile_io import read_profiles

    return [read_profiles(path, names)]


def even_gradient() -> Diagnostic:
    """Return a remark that the spread of units was not given."""
    message = (
        "the gradient is even: each rank holds any unit with the same chance. That favours schemes that gather, since "
        "ranks overlap by chance alone, and cuts into ranges, since no range is fuller than another"
    )
    help = "say how yours is: --profile FILE, as zenc.Profiler records it, or --zipf 1.05 for words of a corpus"
    return Diagnostic("even-gradient", message, help=help, severity="warning")


class Progress:
    """A progress report of ``zenc VERB``, once it takes longer than a moment, at most every ``pause`` seconds.

    It prints plain lines, where rich would draw a bar: they can be read in the log of a job, too.
    """

    def __init__(self, verb: str, pause: float = 0.0) -> None:
        self.verb, self.pause = verb, pause
        self.due = time.monotonic() + SECONDS_OF_SILENCE

    def __call__(self, what: str) -> None:
        """Report that ``what`` is being done now."""
        if (now := time.monotonic()) >= self.due:
            self.due = now + self.pause
            print(f"zenc {self.verb}: {what} ...", file=sys.stderr)


def names(listed: str | None) -> str | list[str]:
    """Return the names in a list with commas between; ``all`` stands for itself."""
    return listed if listed == "all" else [name.strip() for name in (listed or "").split(",") if name.strip()]
