"""Steps of training as ``zenc simulate --strategy`` predicts them, beside the lab's, of two models.

    python -m benchmarks.predicted_steps                                prints the table
    python -m benchmarks.predicted_steps --write                        writes it into docs/reference/cost.md
    OMP_NUM_THREADS=1 python -m benchmarks.predicted_steps --kernels    measures what selects and encodes again, before

The calibration is that of ``benchmarks.predicted``, to which nothing is fitted here; what selects and encodes is
measured as ``zenc calibrate`` does, by the CPU time of two processes at once, and what training does on the processor
beside its calls by ``benchmarks.lab.training_calls``. A step computes as long as one in which nothing is summed.
Gradients become ready at even distances, which matters little: links are slow.

Of the character model all dense gradients go through a scheme, and ratios are to DDP's dense all-reduce. Of the word
model the tables do, whose sparse gradients are like those of a dry run on the lab's hosts
(``benchmarks/lab/models``), and ratios are to DDP's sparse all-reduce.

Small tensors stay with DDP, whose own all-reduce goes on beside the calls. Where a host has one processor at most it
waits for that, and counts as one more call.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from typing import Any

from benchmarks.convergence.characters import new_model
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.dense.suite import FOLDER, SCHEMES, TRAINED
from benchmarks.lab.settings import NO_SYNC, Run
from benchmarks.lab.show import label
from benchmarks.lab.steps.profiles import measure_words, word_model
from benchmarks.lab.steps.suite import FOLDER as STEPS
from benchmarks.lab.steps.suite import SIZES, WORD_SCHEMES, WORDS
from benchmarks.lab.training.report import Training
from benchmarks.lab.training_calls import fitted, measured, save_training_calls, training_calls
from benchmarks.pages import DOCS, ROOT, Part, json_of, new_parser, save_json, table_of
from benchmarks.predicted import CORES, Comparison, lab, plan_of
from zenc.simulator.calibration import Calibration
from zenc.simulator.network import Network
from zenc.simulator.predict import network
from zenc.simulator.training import ddp
from zenc.simulator.training.model_profile import ModelProfile
from zenc.strategy.search.tuning import simulated
from zenc.strategy.simulation.model_step import step_of as step_of_model
from zenc.strategy.simulation.scheme_calls import CallCosts, SchemeTable
from zenc.strategy.simulation.step import StepTensor, TrainingStep
from zenc.torch.parameters import LEAST_VALUES

PART = Part(DOCS / "reference" / "cost.md")
COMPRESSION = ROOT / "benchmarks" / "lab" / "measured" / "compression.json"
BASE = "torch-dense"
BY_DDP, DDP_SPARSE = "by DDP", "ddp-sparse"
FORWARD = 1 / 3
"""The forward pass's share of the computation of a step."""


@dataclass(frozen=True, slots=True)
class PredictedStep(Comparison):
    """A way for a ``model`` among ``ranks`` hosts: seconds of a step, and how many times as fast as by DDP itself."""

    model: str
    ranks: int
    way: str


def measure_compression() -> None:
    """Write COMPRESSION: of each word the least speed among CORES processes."""
    with get_context("spawn").Pool(CORES) as pool:
        each = pool.map(_speeds, range(CORES), chunksize=1)
    found = {name: min(one[name] for one in each) for name in each[0]}
    save_json(COMPRESSION, found)


def _speeds(_: int) -> dict[str, float]:
    import torch

    from zenc.calibrate.compression_benchmark import timed_compression
    from zenc.calibrate.kernel_benchmark import Watch

    torch.set_num_threads(1)
    return timed_compression(Watch(time.thread_time).least)


def measure_training_calls() -> None:
    """Write what a training step's calls take of a processor, in the lab."""
    run: Run[None] = Run(CORES, "100mbit", 70_000, "2mb", None, (), "", 1, 1, 0, 1)
    took = measured()
    save_training_calls(took, fitted(took, replace(lab(run, CORES), compression=speeds())))


@cache
def speeds() -> dict[str, float]:
    return json_of(COMPRESSION)


def calibration_of(run: Run[Any], cores: int) -> Calibration:
    return replace(lab(run, cores), compression=speeds(), **training_calls())


def compared() -> Iterator[PredictedStep]:
    """Yield all schemes of all points of training."""
    yield from _characters()
    yield from _words()


def _words() -> Iterator[PredictedStep]:
    for size, point in zip(SIZES, WORDS, strict=True):
        file = STEPS / f"{point.name}.json"
        if not file.exists():
            continue
        data = json_of(file)
        run, peers = Training.from_json(data["settings"]), data["peers"]
        calibration = calibration_of(run, data["machine"]["cores"])
        alone, base = (peers[name]["seconds"]["median"] for name in (NO_SYNC, DDP_SPARSE))
        predicted = {way: word_step(way, word_model(size), alone, calibration) for way in (DDP_SPARSE, *WORD_SCHEMES)}
        for way in WORD_SCHEMES:
            measured, seconds = peers[way]["seconds"]["median"], predicted[way]
            ratios = base / measured, predicted[DDP_SPARSE] / seconds
            yield PredictedStep(measured, seconds, *ratios, "words", size, way)


def word_step(way: str, model: ModelProfile, alone: float, calibration: Calibration) -> float:
    """Return seconds of a step of the word model that computes ``alone``: a call a table, and DDP's for dense ones."""
    of = step_of_model(model)
    longer = alone / of.step.computing
    tensors = tuple(replace(each, gap=longer * each.gap) for each in of.step.tensors)
    step = TrainingStep("words", tensors, longer * of.step.forward)
    links = network(None, model.ranks, calibration)
    table = SchemeTable({} if way == DDP_SPARSE else {way: plan_of(way)}, links, calibration)
    dense = sum(each.numel for at, each in enumerate(tensors) if at not in of.tables)
    table.fixed[BY_DDP] = _beside(ddp.dense(dense, "f32", links, calibration).seconds)
    for at, profile in of.tables.items():
        if way == DDP_SPARSE:
            found = ddp.sparse(profile, links, calibration)
            later = ddp.sparse(profile, links, calibration.refilled(found.kernels))
            table.fixed[f"{way} {at}"] = CallCosts(found.seconds, later.seconds, found.kernels)
        else:
            table.fix(f"{way} {at}", table.plans[way], profile)
    ends = sorted({end for at in of.tables for end in (at, at + 1)} - {0, len(tensors)})
    called = [f"{way} {at}" if at in of.tables else BY_DDP for at in range(len(tensors))]
    return simulated(step, ends, table, called).seconds


def _characters() -> Iterator[PredictedStep]:
    for point in TRAINED:
        data = json_of(FOLDER / f"{point.name}.json")
        run, peers = CharacterSteps.from_json(data["settings"]), data["peers"]
        computing = peers[NO_SYNC]["seconds"]["median"]
        calibration = calibration_of(run, data["machine"]["cores"])
        step, dense = step_of(run, computing), peers[BASE]["seconds"]["median"]
        way = network(None, run.ranks, calibration)
        filled = calibration.filled((2 * run.ranks - 3) * calibration.step)  # between the steps of a ring
        base = computing + ddp.dense(step.numel, "f32", way, filled).seconds
        for scheme in SCHEMES:
            predicted = simulated(step, BUCKETS, *_calls(scheme, step, way, calibration)).seconds
            measured = peers[scheme]["seconds"]["median"]
            ratios = dense / measured, base / predicted
            yield PredictedStep(measured, predicted, *ratios, "characters", run.ranks, scheme)


def _beside(seconds: float) -> CallCosts:
    """Return the costs of DDP's own all-reduce, whose computation is negligible."""
    return CallCosts(seconds, seconds, 0.0)


def _calls(scheme: str, step: TrainingStep, way: Network, calibration: Calibration) -> tuple[SchemeTable, list[str]]:
    """Return the calls of ``scheme`` for large tensors, and DDP's own for small ones."""
    table = SchemeTable({scheme: plan_of(scheme)}, way, calibration)
    small = [tensor for tensor in step.tensors if tensor.numel < LEAST_VALUES]
    own = ddp.dense(sum(tensor.numel for tensor in small) / 2, "f32", way, calibration)
    table.fixed[BY_DDP] = _beside(own.seconds if table.shared else 0.0)
    return table, [BY_DDP if tensor in small else scheme for tensor in step.tensors]


BUCKETS = (4,)
"""Ends of DDP's buckets among the tensors: the first closes at 1 MiB, with the weights of the second layer."""


def step_of(run: CharacterSteps, computing: float) -> TrainingStep:
    """Return the model's step with these seconds of computation, its gradients at even distances."""
    sizes = [(name, each.numel()) for name, each in new_model(run.workload, run.seed).named_parameters()]
    gap = computing * (1 - FORWARD) / len(sizes)
    tensors = tuple(StepTensor(name, numel, gap) for name, numel in reversed(sizes))
    return TrainingStep("characters", tensors, computing * FORWARD)


def told(rows: list[PredictedStep]) -> str:
    columns = (
        ("model", "{model}"), ("hosts", "{ranks}"), ("way", "`{name}`"), ("measured ms", "{measured_ms:.1f}"),
        ("predicted ms", "{predicted_ms:.1f}"), ("times as fast as DDP", "{measured_ratio:.2f}"),
        ("predicted", "{predicted_ratio:.2f}"), ("off", "{missed:+.1%}"),
    )  # fmt: skip
    body = [row.told() | {"name": label(row.way)} for row in rows]
    near = sum(abs(row.missed) <= 0.1 for row in rows)
    return f"{table_of(body, columns, 3)}\n\n{near} of {len(rows)} ratios are within 10 %."


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--kernels", action="store_true", help="measure what selects and encodes first")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reference/cost.md")
    options = parser.parse_args()
    if options.kernels:
        measure_compression()
        measure_training_calls()
        for size in SIZES:
            measure_words(size)
    text = told(list(compared()))
    if options.write:
        PART.write(text)
    print(text)


if __name__ == "__main__":
    main()
