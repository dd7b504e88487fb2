"""Predictions of ``zenc simulate`` for the points of the lab, beside what the lab measured.

python -m benchmarks.predicted [POINT ...] [--json FILE]
python -m benchmarks.predicted --defaults                         by what counts where nothing was measured
python -m benchmarks.predicted --ddp                              DDP's own ways, which zenc advise predicts
OMP_NUM_THREADS=1 python -m benchmarks.predicted --kernels        measures the kernels of this machine again

Profiles are those of the gradients that the lab draws, or has recorded. Four numbers of the calibration are fitted, to
the points with rows on 8 ranks and of the trace (``rows-8``, ``trace-8``, ``trace-16``, ``library-8``): ``step``,
``message``, ``fan_in``, and ``buffer``, which only ``sparcml_split`` of the last point tells.
The others are known: rate, burst and cores are those of the run, headers of TCP and IP take 4.5 % of full packets, and
kernels take what ``zenc calibrate`` measures of them, here by the CPU time of two processes at once, one on each core:
``benchmarks/lab/measured/kernels.json``.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.lab.settings import Run, Settings
from benchmarks.lab.workloads import units_of
from benchmarks.pages import ROOT, json_of, new_parser, save_json, table_of
from zenc.gradients.profile import Profile
from zenc.gradients.profile_fit import from_gradients
from zenc.lab.cluster import bits_per_second
from zenc.language.files import load_file, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.simulator.calibration import DEFAULTS, Calibration, Kernel, read_calibration
from zenc.simulator.predict import network, predict
from zenc.simulator.training import ddp

MEASURED = ROOT / "docs" / "benchmarks"
KERNELS = ROOT / "benchmarks" / "lab" / "measured" / "kernels.json"
POINTS = (
    *(f"rows-{n}" for n in (2, 4, 6, 8, 16)),
    *("rows-8-10pct", "rows-8-permuted", "trace-8", "trace-16", "library-8", "elements-8", "elements-8-5pct"),
)
STEP, MESSAGE, FAN_IN, BUFFER = 0.5e-3, 80e-6, 5e3, 2e6
"""Fitted constants, in seconds and bytes. FAN_IN is a few packets; messages over gloo lost 110 kB.

BUFFER is between what ``zenc calibrate`` finds in new connections of this network, 1 MB, and the 4 MiB that they may
grow to.
"""
HEADERS = 1.045
BANDWIDTH = 12.5e6
"""The bandwidth of the links of all points, in bytes a second."""
CALL = 1e-3
CORES = 2
"""Processes that measure kernels at once."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds as measured and as predicted, and their ratios to those of another way."""

    measured: float
    predicted: float
    measured_ratio: float
    predicted_ratio: float

    @property
    def missed(self) -> float:
        """The share by which the predicted ratio is off."""
        return self.predicted_ratio / self.measured_ratio - 1

    def told(self) -> dict[str, Any]:
        """Return all fields and figures by name, for a row of a table."""
        ms = {"measured_ms": self.measured * 1e3, "predicted_ms": self.predicted * 1e3}
        return {**asdict(self), **ms, "missed": self.missed}


@dataclass(frozen=True, slots=True)
class Compared(Comparison):
    """A scheme at one point; ratios are to the reference of the point, paired by rounds where measured."""

    point: str
    ranks: int
    scheme: str
    counted: int
    expected: float


def lab(run: Run[Any], cores: int) -> Calibration:
    """Return the calibration of a run of the lab."""
    rate = bits_per_second(run.rate) / 8
    network = rate, 1 / HEADERS, STEP, MESSAGE, FAN_IN, float(run.burst), BUFFER
    return Calibration("lab", *network, CALL, **kernels_of_the_lab(), cores=cores)


@cache
def kernels_of_the_lab() -> dict[str, Any]:
    """Return the kernels that ``measure_kernels`` has measured, by name."""
    found = json_of(KERNELS)
    return {name: Kernel(tuple(map(tuple, each["curve"])), each["speed"]) for name, each in found.items()}


def measure_kernels() -> None:
    """Write KERNELS: the longest time of each kernel among CORES processes."""
    from zenc.calibrate.kernel_benchmark import fit_kernels

    with get_context("spawn").Pool(CORES) as pool:
        each = pool.map(_times, range(CORES), chunksize=1)
    times = [{name: max(one[shape][name] for one in each) for name in found} for shape, found in enumerate(each[0])]
    found = {name: asdict(kernel) for name, kernel in fit_kernels(times).items()}
    save_json(KERNELS, found)


def _times(_: int) -> list[dict[str, float]]:
    import torch

    from zenc.api import compile
    from zenc.calibrate.kernel_benchmark import Watch, timed
    from zenc.runtime.cpu import library

    torch.set_num_threads(1)
    artifacts = [compile(scheme, ranks=8) for scheme in ("balanced", "holders")]
    balanced, holders = (library.load(artifact.sources, artifact.plan.mapping) for artifact in artifacts)
    return timed(balanced, holders, Watch(time.thread_time))


def measured(point: str) -> tuple[Settings, dict[str, Any], Calibration]:
    """Return the settings, the rows by peer, and the lab's calibration of a measured ``point``."""
    data = json_of(MEASURED / f"{point}.json")
    run = Settings.from_json(data["settings"])
    return run, data["peers"], lab(run, data["machine"]["cores"])


def profile_of(run: Settings) -> Profile:
    return from_gradients(units_of(run.workload, run.ranks, run.seed))


def compared(point: str, given: Calibration | None = None) -> Iterator[Compared]:
    """Yield all schemes of ``point`` that zenc has a plan of; by the ``given`` calibration, or that of the lab."""
    run, peers, calibration = measured(point)
    profile, calibration, base = profile_of(run), given or calibration, 0.0
    for name in (name for name in run.peers if not name.startswith(("torch-", "horovod-"))):
        found, row = predict(plan_of(name), run.ranks, profile, None, calibration), peers[name]
        base = base or found.seconds
        ratios = row["ratio"]["median"], found.seconds / base
        seconds = row["seconds"]["median"], found.seconds
        yield Compared(*seconds, *ratios, point, run.ranks, name, row["counted_sent"], found.sent)


def ddp_compared(point: str) -> Iterator[Compared]:
    """Yield DDP's own ways at ``point``, where they were measured; ratios are to the measured reference."""
    run, peers, calibration = measured(point)
    base, profile = peers[run.reference]["seconds"]["median"], profile_of(run)
    way = network(None, run.ranks, calibration)
    ways = {
        "torch-coo": lambda: ddp.sparse(profile, way, calibration),
        "torch-dense": lambda: ddp.dense(profile.units * profile.width, profile.dtype, way, calibration),
    }
    for name in (name for name in ways if name in peers):
        found, row = ways[name](), peers[name]
        seconds = row["seconds"]["median"]
        ratios = seconds / base, found.seconds / base
        yield Compared(seconds, found.seconds, *ratios, point, run.ranks, name, row["interface_sent"], found.sent)


@cache
def plan_of(scheme: str) -> Plan:
    """Return the plan of a scheme that comes with zenc."""
    return lower(resolve(load_file(locate(scheme)))[0])


def table(rows: list[Compared]) -> str:
    columns = (
        ("point", "`{point}`"), ("scheme", "`{scheme}`"), ("measured ms", "{measured_ms:.1f}"),
        ("predicted ms", "{predicted_ms:.1f}"), ("measured ratio", "{measured_ratio:.3f}"),
        ("predicted ratio", "{predicted_ratio:.3f}"), ("off", "{missed:+.1%}"),
    )  # fmt: skip
    return table_of((row.told() for row in rows), columns, 2)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("points", nargs="*", metavar="POINT", help=f"by default {' '.join(POINTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the comparison there, too")
    parser.add_argument("--calibration", type=Path, metavar="FILE", help="this one, with nothing fitted")
    parser.add_argument("--defaults", action="store_true", help="what zenc assumes, but for the bandwidth of the links")
    parser.add_argument("--kernels", action="store_true", help="measure the kernels first, on a machine like the lab's")
    parser.add_argument("--ddp", action="store_true", help="DDP's own ways in place of schemes, by seconds")
    options = parser.parse_args()
    if options.kernels:
        measure_kernels()
    given = read_calibration(options.calibration) if options.calibration else None
    given = replace(DEFAULTS, bandwidth=BANDWIDTH) if options.defaults else given
    each = ddp_compared if options.ddp else partial(compared, given=given)
    rows = [row for point in options.points or POINTS for row in each(point)]
    print(table(rows))
    off = sorted((abs(row.missed) for row in rows), reverse=True)
    near, far = (sum(each <= most for each in off) for most in (0.1, 0.2))
    said = f"{near} of {len(off)} ratios are within 10 %, {far} within 20 %; the worst is off by {off[0]:.1%}"
    print(f"\n{said}", file=sys.stderr)
    save_json(options.json, [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
