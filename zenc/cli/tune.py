"""``zenc tune``: which scheme takes least on a cluster, and a file of it."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zenc.cli.common import JsonOption, TopologyOption, on_topology, print_json, reporting, save

if TYPE_CHECKING:
    from zenc.cost.calibration import Calibration
    from zenc.cost.profile import Profile

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
"""

SECONDS_OF_SILENCE = 2.0


def tune(
    topology: TopologyOption = None,
    profile: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, metavar="FILE", help="What gradients are like: a file of profiles."),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this gradient of the file; may be repeated. [default: all]"),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, max=4096, metavar="N", help="Number of ranks. [default: the topology's, or 8]")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="B", help="Of a rank's link, such as '25 Gbit/s', where there is no topology.")
    ] = None,
    density: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, metavar="D", help="Share of units that a rank holds.")
    ] = None,
    units: Annotated[int, typer.Option(min=1, metavar="U", help="Units of the tensor.")] = 1_000_000,
    width: Annotated[int, typer.Option(min=1, metavar="W", help="Values in a unit: columns of an embedding.")] = 64,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="f32, f64, f16 or bf16.")] = "f32",
    zipf: Annotated[
        float | None, typer.Option(metavar="S", help="Units are held by Zipf's law with this exponent.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, metavar="FILE", help="What was measured. [default: a guess]"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.zen", help="Write the best scheme there.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the table there, as bars; needs zenc[plots].")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Search for the scheme that takes least, and write it as a file that a person can read and commit.

    Tried are all shipped schemes with several values of their parameters, all combinations of the four dimensions, two
    tiers for each level of the topology, and of the best all wire formats and units. Each is predicted for every
    gradient of the profile, one call after another; the best are proved.
    """
    with reporting(json):
        from zenc.cost.tune import tune as search

        cluster, size = on_topology(topology, ranks)
        profiles = _profiles(profile, parameter, density, units, width, dtype, zipf)
        known = _calibration(calibration, bandwidth, cluster is not None)
        found = search(profiles, size or 8, cluster, known, _Progress())
        text = found.text(_command())
        if output:
            save(output, text)
        if plot:
            save(plot, found.plot())
    if json:
        print_json({"ok": True, "file": str(output) if output else None, **found.to_json(), "text": text})
        return
    _show(found.rows())
    print(f"{found.tried} schemes predicted for {found.size} ranks on {found.where}; {found.refused} do not run there")
    print(f"\n{output} has the first of them" if output else f"\n{text}", end="\n" if output else "")


class _Progress:
    """Says on standard error what is tried, every two seconds."""

    def __init__(self) -> None:
        self.told = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.told > SECONDS_OF_SILENCE:
            self.told = time.monotonic()
            print(f"zenc tune: {done} of {total} tried, now {what}", file=sys.stderr)


def _command() -> str:
    return shlex.join(["zenc", *sys.argv[1:]])


def _show(rows: list[dict[str, str]]) -> None:
    columns = [[name, *(row[name] for row in rows)] for name in rows[0]]
    widths = [max(map(len, column)) for column in columns]
    for line in zip(*columns, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(line[:2], widths, strict=False)]
        cells += [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        print("  ".join(cells).rstrip())


def _calibration(path: Path | None, bandwidth: str | None, has_topology: bool) -> Calibration:
    from dataclasses import replace

    from zenc.cost.calibration import DEFAULTS, read_calibration
    from zenc.topology.units import amount_of_text

    known = read_calibration(path) if path else DEFAULTS
    if bandwidth is None:
        return known
    if has_topology:
        raise typer.BadParameter("--bandwidth is of one switch; the links of a --topology have their own")
    amount = amount_of_text("bandwidth", bandwidth)
    if isinstance(amount, str):
        raise typer.BadParameter(f"--bandwidth: {amount}")
    return replace(known, bandwidth=amount)


def _profiles(
    path: Path | None,
    names: list[str] | None,
    density: float | None,
    units: int,
    width: int,
    dtype: str,
    zipf: float | None,
) -> list[Profile]:
    if path is not None:
        from zenc.cost.stored import read_profile, read_profiles

        if density is not None or zipf is not None:
            raise typer.BadParameter("--density and --zipf make a profile, and --profile has one: give either")
        return [read_profile(path, name) for name in names] if names else list(read_profiles(path).values())
    from zenc.cost.synthetic import uniform
    from zenc.cost.synthetic import zipf as by_zipf

    if names:
        raise typer.BadParameter("--parameter chooses from the file of --profile")
    if density is None:
        raise typer.BadParameter("say what gradients are like: --profile FILE, or --density D with --units and --width")
    if zipf is None:
        return [uniform(density, units, width, dtype)]
    return [by_zipf(density, zipf, units, width, dtype)]
