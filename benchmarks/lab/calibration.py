"""Calibrates the lab's network as ``zenc calibrate`` does a cluster's: then nothing of a prediction is fitted.

    python -m benchmarks.lab.calibration --ranks 8 -o docs/benchmarks/lab.calibration.json

Measured is all that ``zenc calibrate`` measures. Added is what it can't know: the burst of the token buckets, and how
many cores all ranks share.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from benchmarks.lab.launch import launch
from benchmarks.lab.options import carry_out, new_parser, rate_of
from benchmarks.lab.settings import Run
from benchmarks.lab.worker import work
from benchmarks.pages import save_json
from zenc.lab.cluster import bits_per_second

RANK = "--rank"


def main() -> None:
    if RANK in sys.argv[1:]:
        work(measured)
        return
    made = new_parser("benchmarks.lab.calibration", __doc__)
    made.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to, as JSON")
    options = made.parse_args()
    carry_out(lambda: calibrated(options))


def calibrated(options: argparse.Namespace) -> str:
    rate = rate_of(options.network, options.rate)
    run: Run[dict[str, Any]] = Run(options.ranks, rate, options.burst, options.queue, {}, (), "", 1, 1, 0, 1)
    first = launch(run, 300.0, ("benchmarks.lab.calibration", RANK))[0]
    save_json(options.output, first)
    return f"{options.output}: {options.ranks} ranks, {run.network()}"


def measured(given: dict[str, Any]) -> dict[str, Any]:
    """Return the measurements of this rank, which are those of all ranks."""
    from zenc import api

    def report(what: str) -> None:
        if not dist.get_rank():
            print(f"measuring {what}", file=sys.stderr)

    link = bits_per_second(given["rate"]) / 8 if given["rate"] else None
    found = api.calibrate(report, link=link, name="lab")
    return {**found.to_json(), "burst": float(given["burst"]) if link else 0.0, "cores": os.cpu_count()}


if __name__ == "__main__":
    main()
