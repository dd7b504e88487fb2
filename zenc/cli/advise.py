"""``zenc advise``: predicted gain of zenc for a model, before anything is changed in its training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import zenc.cli.common as common
import zenc.cli.given as given
from zenc.cli.given import Progress

EXAMPLES = """\b
Examples:
  zenc advise --profile model.json --ranks 8 --bandwidth '1 Gbit/s'
  zenc advise --profile model.json --topology 'nodes(4, gpus = 8)' --calibration here.json
  zenc advise --profile model.json --ranks 8 --bandwidth '100 Mbit/s' --lossy topk_a2a,one_bit
  zenc advise --density 0.02 --units 200000 --zipf 1.05 --ranks 8 --bandwidth '1 Gbit/s' --rest 40MB --computing 120ms

\b
What it answers: is it worth it for my model?
  1. Observe it, in your own training script, which goes on as it is:
       handle = zenc.attach(ddp_model, dry_run=True)
       ...                                     # some tens of steps
       handle.save("model.json")               # on one rank
     Or describe it: --density, --units, --width, --zipf for a table, --rest for the other gradients, --computing.
  2. Say on how many ranks it will train, and how fast their links are: --ranks and --bandwidth, or --topology.
  3. Read the first line. "no communication" is what nothing can beat: where DDP is near it, leave all as it is.
     Schemes that lose something are compared where --lossy asks for them, and are never part of the answer.
It predicts, and says so: measure on your cluster by zenc calibrate, and give --calibration. The exit status is 0 for
every answer.
"""


def advise(
    profile: Annotated[Path | None, common.file_option(help="Profile of a dry run, or of gradients alone.")] = None,
    ranks: given.RanksOption = None,
    bandwidth: given.BandwidthOption = None,
    topology: common.TopologyOption = None,
    calibration: given.CalibrationOption = None,
    device: given.DeviceOption = None,
    rest: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="Bytes of other gradients, such as 40MB. [default: as observed, or none]"),
    ] = None,
    computing: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time of a step without any wait, such as 120ms. [default: as observed]"),
    ] = None,
    density: given.DensityOption = None,
    units: given.UnitsOption = 1_000_000,
    width: common.WidthOption = 64,
    dtype: common.DtypeOption = "f32",
    zipf: given.ZipfOption = None,
    lossy: given.LossyOption = None,
    json: common.JsonOption = False,
) -> None:
    """Say whether zenc is worth it for a model, against DDP's own ways and no communication at all.

    Each table goes by the cheapest candidate of `auto`; DDP by gloo's sparse all-reduce, or by a ring of the dense
    tensor. All are predicted by the simulator of `zenc simulate`.
    """
    if profile is None and density is None:
        raise typer.BadParameter("say what the model is like: --profile FILE of a dry run, or --density D with --units")
    others = None if rest is None else given.amount("memory", "--rest", rest)
    seconds = None if computing is None else given.amount("latency", "--computing", computing)
    with common.reporting(json, "advise"):
        from zenc import forecast

        cluster, size = common.on_topology(topology, ranks)
        densities = [] if density is None else [density]
        if profile is None:
            (gradients,) = given.profiles_of(None, None, densities, units, width, dtype, zipf)
        elif densities or zipf is not None:
            raise typer.BadParameter("--density and --zipf make a profile, and --profile has one: give either")
        speeds = given.bandwidths(bandwidth, cluster)
        if len(speeds) > 1:
            raise typer.BadParameter("--bandwidth: advice is for one bandwidth")
        found = forecast.advise(
            gradients if profile is None else profile,
            ranks=size,
            bandwidth=speeds[0] if speeds else None,
            topology=cluster,
            calibration=calibration,
            device=device,
            rest=others,
            computing=seconds,
            lossy=given.names(lossy),
            progress=Progress("advise"),
        )
    common.answer(json, found.to_json(), str(found))
