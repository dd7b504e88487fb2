"""The settings of a training, the report that is made of the records of all ranks, and its table.

Training = a Run of training steps, with the sizes of the model and its batches as the workload
Report   = settings x machine x text x (peer -> Row) x (peer -> loss*)
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from benchmarks.lab.results import Records, Row, rows_of, samples_of
from benchmarks.lab.settings import NO_SYNC, LabError, Run
from benchmarks.lab.show import shown
from examples.language_model.compare import TOLERANCE
from examples.language_model.model import Sizes


@dataclass(frozen=True, slots=True)
class Training(Run[Sizes]):
    """The settings of one training. Its seed draws the order of turns; weights and batches are the demonstration's."""

    load = Sizes

    @property
    def title(self) -> str:
        of = self.workload
        model = f"{of.vocabulary:,} words x {of.width}, {of.batch} predictions and {of.samples} samples a rank"
        return f"{self.ranks} ranks, {self.network()}; language model: {model}; seed {self.seed}"


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
            "settings": self.settings.to_json(), "machine": self.machine, "text": self.text, "peers": lanes,
            "largest_relative_difference_of_losses": self.apart, "chosen": self.chosen, "samples": self.samples,
        }  # fmt: skip


def report(training: Training, text: dict[str, Any], records: Records) -> Report:
    """Return the report on ``records``, one a rank; raises LabError where a lane trains unlike the others."""
    losses = {name: means([record["losses"][name] for record in records]) for name in training.peers}
    trained = {name: of_lane for name, of_lane in losses.items() if name != NO_SYNC}
    apart = {name: difference(of_lane, losses[training.reference]) for name, of_lane in trained.items()}
    ensure_alike(apart, training.reference, TOLERANCE)
    rows, samples = rows_of(training, records), samples_of(training, records)
    machine, chosen = records[0]["machine"], records[0].get("chosen", {})
    return Report(training, machine, text, rows, losses, max(apart.values()), chosen, samples)


def ensure_alike(apart: Mapping[str, float], reference: str, most: float) -> None:
    """Raise LabError where losses are further ``apart`` from those of the ``reference`` than ``most``."""
    for name, found in apart.items():
        if not found <= most:
            raise LabError(f"{name} does not train as {reference} does: its losses differ by {found:.1e}")


def means(of_ranks: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(losses) for losses in zip(*of_ranks, strict=True)]


def difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest relative difference in the steps that both have made; not a number if a loss is that."""
    found = [abs(a - b) / abs(b) for a, b in zip(one, other, strict=False)]
    return max(found) if all(value == value for value in found) else float("nan")


def table(report: Report) -> str:
    steps = len(report.losses[report.settings.reference])
    about = f"; losses differ by {report.apart:.1e} at most, in {steps} steps with those that warm up"
    return shown(report.settings.title, report.rows, report.settings.reference, about)
