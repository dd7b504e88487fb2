"""The report of a training, made of the records of all ranks, and its table.

Report = settings x machine x text x (peer -> Row) x (peer -> loss*)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.table import Table

from benchmarks.lab.results import Records, Row, rows_of, samples_of
from benchmarks.lab.settings import LabError
from benchmarks.lab.show import megabytes, quartiles, times
from benchmarks.lab.training.settings import NO_SYNC, Training
from examples.language_model.compare import TOLERANCE

COLUMNS = ("counted", "sent", "received", "steps/s", "ms", "quartiles", "ratio", "quartiles", "wire", "cpu", "steps")


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a training. ``losses`` are means of all ranks, by step.

    ``apart``: the largest distance of a loss from the reference's, relative to it.
    ``chosen``: peer -> table -> the scheme that summed its gradient at last, for schemes that choose.
    """

    settings: Training
    machine: dict[str, Any]
    text: dict[str, Any]
    rows: dict[str, Row]
    losses: dict[str, list[float]]
    apart: float
    chosen: dict[str, dict[str, str]]
    samples: dict[str, list[list[dict[str, Any]]]]

    def to_json(self) -> dict[str, Any]:
        """Return everything, with every sample of every rank: [peer][rank][step]."""
        lanes = {
            name: {**asdict(row), "steps_per_second": 1 / row.seconds.median, "losses": self.losses[name]}
            for name, row in self.rows.items()
        }
        return {
            "settings": self.settings.to_json(),
            "machine": self.machine,
            "text": self.text,
            "peers": lanes,
            "largest_relative_difference_of_losses": self.apart,
            "chosen": self.chosen,
            "samples": self.samples,
        }


def report(training: Training, text: dict[str, Any], records: Records) -> Report:
    """Return the report on ``records``, one a rank; raises LabError where a lane trains unlike the others."""
    losses = {name: means([record["losses"][name] for record in records]) for name in training.peers}
    trained = {name: of_lane for name, of_lane in losses.items() if name != NO_SYNC}
    apart = {name: difference(of_lane, losses[training.reference]) for name, of_lane in trained.items()}
    for name, found in apart.items():
        if not found <= TOLERANCE:
            raise LabError(f"{name} does not train as {training.reference} does: its losses differ by {found:.1e}")
    rows, samples = rows_of(training, records), samples_of(training, records)
    machine, chosen = records[0]["machine"], records[0].get("chosen", {})
    return Report(training, machine, text, rows, losses, max(apart.values()), chosen, samples)


def means(of_ranks: Sequence[Sequence[float]]) -> list[float]:
    """Return the means over the ranks, by step."""
    return [fmean(losses) for losses in zip(*of_ranks, strict=True)]


def difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest relative difference in the steps that both have made; not a number if a loss is that."""
    found = [abs(a - b) / abs(b) for a, b in zip(one, other, strict=False)]
    return max(found) if all(value == value for value in found) else float("nan")


def table(report: Report) -> Table:
    """Return a row a lane, the fastest first."""
    made = Table(title=title(report.settings), caption=caption(report))
    made.add_column("lane")
    for name in COLUMNS:
        made.add_column(name, justify="right")
    for name, row in sorted(report.rows.items(), key=lambda item: item[1].seconds.median):
        made.add_row(name, *cells(row), str(len(report.losses[name])))
    return made


def title(training: Training) -> str:
    sizes = training.workload
    model = f"{sizes.vocabulary:,} words x {sizes.width}, {sizes.batch} predictions and {sizes.samples} samples a rank"
    return f"{training.ranks} ranks, {training.network()}; language model: {model}; seed {training.seed}"


def cells(row: Row) -> list[str]:
    return [
        megabytes(row.counted_sent),
        megabytes(row.sent if row.interface_sent is not None else None),
        megabytes(row.received if row.interface_received is not None else None),
        f"{1 / row.seconds.median:.3f}",
        f"{row.seconds.median * 1e3:.1f}",
        quartiles(row.seconds, 1e3, 1),
        times(row.ratio.median),
        quartiles(row.ratio, 1, 2),
        times(row.wire),
        times(row.processor),
    ]


def caption(report: Report) -> str:
    return (
        f"MB of the busiest rank, a step: counted by zenc as sent, for the tables; sent and received by the interface, "
        f"for all. Ratio: time over {report.settings.reference} in the same round. Wire, cpu: shares of the fullest "
        f"link and of all cores. Steps: with those that warm up; losses differ by {report.apart:.1e} at most."
    )
