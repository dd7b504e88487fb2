"""Steps of training as ``zenc simulate --strategy`` predicts them, beside the lab's steps of the character model.

    python -m benchmarks.predicted_steps                                prints the table
    python -m benchmarks.predicted_steps --write                        writes it into docs/reference/cost.md
    OMP_NUM_THREADS=1 python -m benchmarks.predicted_steps --kernels    measures what selects and encodes again, before

The calibration is that of ``benchmarks.predicted``, to which nothing is fitted here; what selects and encodes is
measured as ``zenc calibrate`` does, by the CPU time of two processes at once. A step computes as long as one in which
nothing is summed. Gradients become ready at even distances, which matters little: links are slow.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context

from benchmarks.convergence.characters import new_model
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.dense.suite import FOLDER, SCHEMES, TRAINED
from benchmarks.lab.settings import ROOT
from benchmarks.lab.show import label
from benchmarks.lab.suite.page import LEFT, RIGHT, between, table
from benchmarks.lab.training.settings import NO_SYNC
from benchmarks.predicted import CORES, lab, plan_of
from zenc.simulator.predict import network
from zenc.simulator.training import ddp
from zenc.strategy.scheme_calls import SchemeTable
from zenc.strategy.step import StepTensor, TrainingStep
from zenc.strategy.tuning import simulated

PAGE = ROOT / "docs" / "reference" / "cost.md"
COMPRESSION = ROOT / "benchmarks" / "lab" / "compression.json"
BASE = "torch-dense"
FORWARD = 1 / 3
"""Of what a step computes."""


@dataclass(frozen=True, slots=True)
class PredictedRatio:
    """One way among ``ranks`` hosts: seconds of a step, and how many times as fast as by DDP's dense all-reduce."""

    ranks: int
    way: str
    measured: float
    predicted: float
    measured_times: float
    predicted_times: float

    @property
    def missed(self) -> float:
        """By what share the predicted ratio is off."""
        return self.predicted_times / self.measured_times - 1


def measure_compression() -> None:
    """Write COMPRESSION: of each word the least speed among CORES processes."""
    with get_context("spawn").Pool(CORES) as pool:
        each = pool.map(_speeds, range(CORES), chunksize=1)
    found = {name: min(one[name] for one in each) for name in each[0]}
    COMPRESSION.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _speeds(_: int) -> dict[str, float]:
    import torch

    from zenc.calibrate.compression_benchmark import timed_compression
    from zenc.calibrate.kernel_benchmark import Watch

    torch.set_num_threads(1)
    return timed_compression(Watch(time.thread_time).least)


@cache
def speeds() -> dict[str, float]:
    """What ``measure_compression`` found."""
    found: dict[str, float] = json.loads(COMPRESSION.read_text(encoding="utf-8"))
    return found


def compared() -> Iterator[PredictedRatio]:
    """All schemes of all points of training."""
    for point in TRAINED:
        data = json.loads((FOLDER / f"{point.name}.json").read_text(encoding="utf-8"))
        run, peers = CharacterSteps.from_json(data["settings"]), data["peers"]
        computing = peers[NO_SYNC]["seconds"]["median"]
        calibration = replace(lab(run, data["machine"]["cores"]), compression=speeds())
        step, dense = step_of(run, computing), peers[BASE]["seconds"]["median"]
        way = network(None, run.ranks, calibration)
        base = computing + ddp.dense(step.numel, "f32", way, calibration).seconds
        for scheme in SCHEMES:
            calls = SchemeTable({scheme: plan_of(scheme)}, way, calibration)
            predicted = simulated(step, BUCKETS, calls, [scheme] * len(step.tensors)).seconds
            measured = peers[scheme]["seconds"]["median"]
            yield PredictedRatio(run.ranks, scheme, measured, predicted, dense / measured, base / predicted)


BUCKETS = (4,)
"""DDP closes its first bucket at 1 MiB: with the weights of the second layer."""


def step_of(run: CharacterSteps, computing: float) -> TrainingStep:
    """The model's step that computes so many seconds, its gradients at even distances."""
    sizes = [(name, each.numel()) for name, each in new_model(run.workload, run.seed).named_parameters()]
    gap = computing * (1 - FORWARD) / len(sizes)
    tensors = tuple(StepTensor(name, numel, gap) for name, numel in reversed(sizes))
    return TrainingStep("characters", tensors, computing * FORWARD)


def told(rows: list[PredictedRatio]) -> str:
    heads = ("hosts", "way", "measured ms", "predicted ms", "times as fast as dense", "predicted", "off")
    body = [
        (
            str(row.ranks),
            f"`{label(row.way)}`",
            f"{row.measured * 1e3:.1f}",
            f"{row.predicted * 1e3:.1f}",
            f"{row.measured_times:.2f}",
            f"{row.predicted_times:.2f}",
            f"{row.missed:+.1%}",
        )
        for row in rows
    ]
    near = sum(abs(row.missed) <= 0.1 for row in rows)
    return f"{table(heads, (RIGHT, LEFT, *(RIGHT,) * 5), body)}\n\n{near} of {len(rows)} ratios are within 10 %."


def written(page: str, rows: list[PredictedRatio]) -> str:
    """``page`` with its table of steps made anew."""
    return between(page, told(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", action="store_true", help="measure what selects and encodes first")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reference/cost.md")
    options = parser.parse_args()
    if options.kernels:
        measure_compression()
    rows = list(compared())
    if options.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print(told(rows))


if __name__ == "__main__":
    main()
