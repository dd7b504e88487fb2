"""The cost model against the lab: ratios between schemes, by which it chooses one; tables of GPUs."""

import json
from dataclasses import replace

import pytest

from benchmarks import predicted_steps
from benchmarks.gpu_predictions import PART, format_costs, tables
from benchmarks.lab.steps.profiles import word_model
from benchmarks.lab.training.report import Training
from benchmarks.predicted import BANDWIDTH, MEASURED, compared, ddp_compared, plan_of
from zenc.simulator.calibration import DEFAULTS, Calibration
from zenc.simulator.predict import network
from zenc.strategy.search.tuning import simulated
from zenc.strategy.simulation.scheme_calls import SchemeTable, StepCalls
from zenc.strategy.simulation.step import StepTensor, TrainingStep
from zenc.wire.formats import GPU_COSTS, FormatCosts

OFF = 0.10
UNEXPLAINED = "rows-6", "sparcml"
"""Point and scheme whose ratio the page says to be 15 % off."""


@pytest.mark.parametrize(
    "point", ["rows-2", "rows-4", "rows-6", "rows-8", "rows-16", "rows-8-10pct", "trace-8", "trace-16"]
)
def test_ratios_are_within_a_tenth_of_those_measured(point: str) -> None:
    """The fit sees 8 ranks alone; 2 to 16 ranks, another law and five times the rows are predicted."""
    rows = [row for row in compared(point) if (point, row.scheme) != UNEXPLAINED]
    assert len(rows) >= 4
    for row in rows:
        assert abs(row.missed) < OFF, row
        assert row.predicted == pytest.approx(row.measured, rel=OFF), row


@pytest.mark.parametrize("point", ["rows-4", "rows-6", "rows-8", "rows-8-10pct", "trace-8"])
def test_ratios_are_as_near_where_nothing_was_calibrated_but_the_bandwidth(point: str) -> None:
    for row in compared(point, replace(DEFAULTS, bandwidth=BANDWIDTH)):
        if (point, row.scheme) == UNEXPLAINED:
            continue
        assert abs(row.missed) < OFF, row


@pytest.mark.parametrize("point", ["rows-8", "library-8", "elements-8"])
def test_bytes_are_within_a_tenth_of_those_counted(point: str) -> None:
    """The busiest rank has more bytes than the mean one, and ranges of real rows are never even."""
    for row in compared(point):
        assert row.expected == pytest.approx(row.counted, rel=OFF), row


@pytest.mark.parametrize("point", ["rows-2", "rows-4", "rows-8", "rows-16", "elements-8-5pct"])
def test_the_best_is_found_to_within_5_percent(point: str) -> None:
    rows = list(compared(point))
    chosen = min(rows, key=lambda row: row.predicted)
    assert chosen.measured <= 1.05 * min(row.measured for row in rows)


def test_ddp_is_predicted_within_a_fifth() -> None:
    for row in (row for point in ("rows-4", "rows-8", "library-8", "elements-8") for row in ddp_compared(point)):
        assert abs(row.missed) < 0.2, row
        assert row.expected == pytest.approx(row.counted, rel=0.05), row


@pytest.mark.parametrize("alone", [0.05, 0.1])
def test_steps_of_the_word_model_are_within_a_tenth_of_those_measured(alone: float) -> None:
    """``training-8`` is tried, whose step without a sum was not measured."""
    data = json.loads((MEASURED / "training-8.json").read_text(encoding="utf-8"))
    run, seconds = Training.from_json(data["settings"]), {k: v["seconds"]["median"] for k, v in data["peers"].items()}
    calibration, model = predicted_steps.calibration_of(run, data["machine"]["cores"]), word_model(run.ranks)
    base = predicted_steps.word_step("ddp-sparse", model, alone, calibration)
    for way in ("holders", "balanced"):
        faster = base / predicted_steps.word_step(way, model, alone, calibration)
        assert faster == pytest.approx(seconds["ddp-sparse"] / seconds[way], rel=OFF), way


def test_what_calls_compute_stops_a_pass_on_the_same_processor() -> None:
    plan, step = plan_of("one_bit"), TrainingStep("one", (StepTensor("a", 10**6, 0.1), StepTensor("b", 10**6, 0.1)))
    alone, shared = (Calibration(bandwidth=1e12, cores=cores, hook_byte=10e-9) for cores in (None, 2))
    took = [
        simulated(step, (1,), SchemeTable({"s": plan}, network(None, 2, each), each), ["s", "s"]).seconds
        for each in (alone, shared)
    ]
    assert 0.24 < took[0] < 0.26 and 0.28 < took[1] < 0.31
    assert StepCalls(step, (1,), SchemeTable({"s": plan}, network(None, 2, shared), shared), ["s"] * 2).seconds == (
        pytest.approx(took[1])
    )


def test_token_buckets_are_full_once_in_a_step() -> None:
    """Two calls of 1 MB at 100 Mbit/s send 0.5 MB each in two steps; the first 70 kB of a step cost nothing."""
    plan, way = plan_of("dense_halving_doubling"), Calibration(bandwidth=12.5e6, efficiency=1.0, step=0.0, burst=70e3)
    step = TrainingStep("two", (StepTensor("a", 250_000, 0.0), StepTensor("b", 250_000, 0.0)))
    table = SchemeTable({"s": plan}, network(None, 2, way), way)
    assert simulated(step, (1,), table, ["s", "s"]).seconds == pytest.approx((2e6 - 70e3) / 12.5e6, rel=0.05)
    assert table.costs("s", 250_000).later - table.costs("s", 250_000).first == pytest.approx(70e3 / 12.5e6, rel=0.05)


def test_the_tables_are_those_of_the_command() -> None:
    page = PART.page.read_text("utf-8")
    assert page == PART.written(page, tables())


def test_formats_cost_what_was_measured() -> None:
    assert FormatCosts(**{name: round(cost) for name, cost in format_costs().items()}) == GPU_COSTS
