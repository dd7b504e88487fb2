"""Results of a point: small enough to be committed, and all that the page is made of.

    Result = point x command x title x settings x machine x bounds? x (peer -> Row, seconds of each round) x disturbance

Numbers are rounded to five digits, which is finer than they repeat. Bytes are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.lab.results import Bounds, Row, Spread, counted_rounds, spread, taken
from benchmarks.lab.settings import LabError, Run, Settings
from benchmarks.lab.show import described
from benchmarks.lab.suite.points import OURS, TRAINING, Point
from benchmarks.pages import json_of, rounded


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a point. ``samples``: peer -> seconds of each round, in order. ``seconds``: of the whole run.

    ``title`` says in words what was measured. ``others`` is the share of all cores that other processes used meanwhile,
    or that a hypervisor took. Training has no ``bounds``; ``apart`` is the largest relative difference of its losses.
    ``losses``: peer -> means of all ranks by step, of ways that do not train alike. ``predicted``: strategy -> seconds.
    """

    point: str
    command: str
    title: str
    settings: Run[dict[str, Any]]
    machine: dict[str, Any]
    seconds: float
    others: float
    apart: float | None
    bounds: Bounds | None
    rows: dict[str, Row]
    samples: dict[str, list[float]]
    losses: Mapping[str, list[float]] | None = None
    predicted: Mapping[str, float] | None = None

    def best(self) -> str:
        """Return the fastest of zenc's own schemes, by its median; raises LabError where none took part."""
        ours = [name for name in OURS if name in self.rows]
        if not ours:
            raise LabError(f"{self.point} has none of {', '.join(OURS)}")
        return min(ours, key=lambda name: self.rows[name].seconds.median)

    def over(self, peer: str, base: str) -> Spread:
        """Return the time of ``peer`` over that of ``base`` in the same round."""
        return spread([a / b for a, b in zip(self.samples[peer], self.samples[base], strict=False)])

    def to_json(self) -> dict[str, Any]:
        """Return all fields but for those that only some points have; ``rows`` are ``peers``."""
        told = {"peers" if name == "rows" else name: value for name, value in asdict(self).items()}
        found = {name: value if name in ("settings", "machine") else rounded(value) for name, value in told.items()}
        return {
            name: value for name, value in found.items() if value is not None or name not in ("losses", "predicted")
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Result:
        bounds = Bounds(**data["bounds"]) if data["bounds"] else None
        rows = {name: row_of(row) for name, row in data["peers"].items()}
        rest = {name: value for name, value in data.items() if name != "peers"}
        return Result(**{**rest, "settings": Run.from_json(data["settings"]), "bounds": bounds, "rows": rows})


Results = Mapping[str, Result]
"""Results by the name of their point, without those that are not measured."""


def result_of(
    point: Point, report: Mapping[str, Any], about: Mapping[str, Any], seconds: float, others: float
) -> Result:
    """Return the kept part of ``report``, as ``point.module`` writes it; ``about`` is added to its machine."""
    calls = {name: counted_rounds(of_peer) for name, of_peer in report["samples"].items()}
    return Result(
        point.name,
        point.command,
        report.get("title") or title_of(point, report["settings"]),
        Run.from_json(report["settings"]),
        {**report["machine"], **about},
        seconds,
        others,
        report.get("largest_relative_difference_of_losses"),
        Bounds(**report["bounds"]) if "bounds" in report else None,
        {name: row_of(row) for name, row in report["peers"].items()},
        {name: [taken(rounds[number]) for number in sorted(rounds)] for name, rounds in calls.items()},
        report.get("losses"),
        report.get("predicted"),
    )


def title_of(point: Point, settings: dict[str, Any]) -> str:
    if point.module == TRAINING:
        from benchmarks.lab.training.report import Training

        return Training.from_json(settings).title
    return described(Settings.from_json(settings))


def row_of(data: Mapping[str, Any]) -> Row:
    plain = {field.name: data[field.name] for field in fields(Row)}
    return Row(**{**plain, "seconds": Spread(**data["seconds"]), "ratio": Spread(**data["ratio"])})


def load(folder: Path, points: Iterable[Point]) -> dict[str, Result]:
    """Return the results of those ``points`` that have been measured."""
    files = {point.name: folder / f"{point.name}.json" for point in points}
    return {name: Result.from_json(json_of(file)) for name, file in files.items() if file.exists()}


def shaped(results: Results, point: str) -> Result | None:
    """Return the result unless it is over loopback, where times say nothing about networks."""
    found = results.get(point)
    return found if found and found.settings.rate else None


def save(folder: Path, result: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result.point}.json").write_text(text_of(result.to_json()), encoding="utf-8")


def text_of(data: Mapping[str, Any]) -> str:
    """Return JSON with a line for each peer, so that a change is seen where it is."""
    lines = []
    for key, value in data.items():
        if key in ("peers", "samples", "losses"):
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
