"""What ``zenc simulate`` predicts for the points of the lab, beside what the lab measured.

python -m benchmarks.predicted [POINT ...] [--json FILE]

Profiles are those of the gradients that the lab draws, or has recorded. Three numbers of the calibration are fitted, to
the points with rows on 8 ranks alone (``rows-8``, ``trace-8``, ``library-8``): ``step``, ``message`` and ``fan_in``.
The others are known: rate, burst and cores are those of the run, headers of TCP and IP take 4.5 % of full packets, and
kernels take what docs/performance.md says, at a processor's share of the memory's bandwidth.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from benchmarks.lab.settings import ROOT, Settings, bits_per_second
from benchmarks.lab.workloads import units_of
from zenc.cost.calibration import Calibration, Kernel
from zenc.cost.fit import from_gradients
from zenc.cost.predict import predict
from zenc.language.load import load_file, locate
from zenc.plan.lower import lower
from zenc.plan.model import Plan
from zenc.scheme.resolve import resolve

MEASURED = ROOT / "docs" / "benchmarks"
POINTS = (
    *(f"rows-{n}" for n in (2, 4, 8, 16)),
    *("rows-8-10pct", "rows-8-permuted", "trace-8", "trace-16", "library-8", "elements-8", "elements-8-5pct"),
)
STEP, MESSAGE, FAN_IN = 0.8e-3, 80e-6, 110e3
"""Fitted; seconds, seconds and bytes. FAN_IN is between one and two of the long packets that TCP hands to a queue."""
HEADERS = 1.045
CALL = 1e-3
_BYTES_A_SECOND = 5e9
KERNELS = tuple(Kernel(unit, _BYTES_A_SECOND) for unit in (9e-9, 2e-9, 6e-9))


@dataclass(frozen=True, slots=True)
class Compared:
    """One scheme at one point; ratios are to the reference of the point, paired by rounds where measured."""

    point: str
    ranks: int
    scheme: str
    measured: float
    predicted: float
    measured_ratio: float
    predicted_ratio: float
    counted: int
    expected: float

    @property
    def missed(self) -> float:
        """By what share the predicted ratio is off."""
        return self.predicted_ratio / self.measured_ratio - 1


def lab(run: Settings, cores: int) -> Calibration:
    """The calibration of a run of the lab."""
    rate, kernels = bits_per_second(run.rate) / 8, KERNELS
    return Calibration("lab", rate, 1 / HEADERS, STEP, MESSAGE, FAN_IN, float(run.burst), CALL, *kernels, cores=cores)


def compared(point: str) -> Iterator[Compared]:
    """All schemes of ``point`` that zenc has a plan of."""
    data = json.loads((MEASURED / f"{point}.json").read_text(encoding="utf-8"))
    run = Settings.from_json(data["settings"])
    profile = from_gradients(units_of(run.workload, run.ranks, run.seed))
    calibration, base = lab(run, data["machine"]["cores"]), 0.0
    for name in (name for name in run.peers if not name.startswith(("torch-", "horovod-"))):
        found, row = predict(_plan(name), run.ranks, profile, None, calibration), data["peers"][name]
        base = base or found.seconds
        ratios = row["ratio"]["median"], found.seconds / base
        yield Compared(
            point, run.ranks, name, row["seconds"]["median"], found.seconds, *ratios, row["counted_sent"], found.sent
        )


@cache
def _plan(scheme: str) -> Plan:
    return lower(resolve(load_file(locate(scheme)), None, {}, {})[0])


def table(rows: list[Compared]) -> str:
    """The comparison as Markdown."""
    lines = [
        "| point | scheme | measured ms | predicted ms | measured ratio | predicted ratio | off |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        times = f"{row.measured * 1e3:.1f} | {row.predicted * 1e3:.1f}"
        ratios = f"{row.measured_ratio:.3f} | {row.predicted_ratio:.3f}"
        lines.append(f"| `{row.point}` | `{row.scheme}` | {times} | {ratios} | {row.missed:+.1%} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="*", metavar="POINT", help=f"by default {' '.join(POINTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparison there, too")
    options = parser.parse_args()
    rows = [row for point in options.points or POINTS for row in compared(point)]
    print(table(rows))
    off = sorted((abs(row.missed) for row in rows), reverse=True)
    within = sum(each <= 0.1 for each in off)
    print(f"\n{within} of {len(off)} ratios are within 10 %; the worst is off by {off[0]:.1%}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
