"""What is kept of a point: small enough to be committed, and all that the page is made of.

    Result = point x command x settings x machine x bounds x (peer -> Row, seconds of each round) x disturbance

Numbers are rounded to five digits, which is finer than they repeat. Bytes are kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.lab.bounds import Bounds
from benchmarks.lab.results import Row, Spread, counted_rounds, spread, taken
from benchmarks.lab.settings import LabError, Settings
from benchmarks.lab.suite.points import OURS, Point


@dataclass(frozen=True, slots=True)
class Result:
    """``samples``: peer -> the seconds of each of its rounds, from the first on. ``seconds``: of the whole run.

    ``others`` is the share of all cores that other processes used meanwhile, or that a hypervisor took.
    """

    point: str
    command: str
    settings: Settings
    machine: dict[str, Any]
    bounds: Bounds
    rows: dict[str, Row]
    samples: dict[str, list[float]]
    seconds: float
    others: float

    def best(self) -> str:
        """The fastest of zenc's own schemes, by its median; raises LabError where none took part."""
        ours = [name for name in OURS if name in self.rows]
        if not ours:
            raise LabError(f"{self.point} has none of {', '.join(OURS)}")
        return min(ours, key=lambda name: self.rows[name].seconds.median)

    def over(self, peer: str, base: str) -> Spread:
        """The time of ``peer`` over that of ``base`` in the same round."""
        return spread([a / b for a, b in zip(self.samples[peer], self.samples[base], strict=False)])

    def to_json(self) -> dict[str, Any]:
        return {
            "point": self.point,
            "command": self.command,
            "settings": self.settings.to_json(),
            "machine": self.machine,
            "seconds": rounded(self.seconds),
            "others": rounded(self.others),
            "bounds": rounded(asdict(self.bounds)),
            "peers": {name: rounded(asdict(row)) for name, row in self.rows.items()},
            "samples": rounded(self.samples),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Result:
        return Result(
            data["point"],
            data["command"],
            Settings.from_json(data["settings"]),
            data["machine"],
            Bounds(**data["bounds"]),
            {name: row_of(row) for name, row in data["peers"].items()},
            data["samples"],
            data["seconds"],
            data["others"],
        )


Results = Mapping[str, Result]
"""By the name of their point; those that are not measured are not in it."""


def result_of(
    point: Point, report: Mapping[str, Any], about: Mapping[str, Any], seconds: float, others: float
) -> Result:
    """What is kept of ``report``, as the lab writes it to JSON; ``about`` is added to what it says of the machine."""
    calls = {name: counted_rounds(of_peer) for name, of_peer in report["samples"].items()}
    return Result(
        point.name,
        point.command,
        Settings.from_json(report["settings"]),
        {**report["machine"], **about},
        Bounds(**report["bounds"]),
        {name: row_of(row) for name, row in report["peers"].items()},
        {name: [taken(rounds[number]) for number in sorted(rounds)] for name, rounds in calls.items()},
        seconds,
        others,
    )


def row_of(data: Mapping[str, Any]) -> Row:
    """A row without what follows from it and the bounds."""
    plain = {key: value for key, value in data.items() if key not in ("bounds", "seconds", "ratio")}
    return Row(seconds=Spread(**data["seconds"]), ratio=Spread(**data["ratio"]), **plain)


def rounded(value: Any) -> Any:
    """``value`` with all fractions in it to five digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def load(folder: Path, points: Iterable[Point]) -> dict[str, Result]:
    """The results of those ``points`` that have been measured."""
    files = {point.name: folder / f"{point.name}.json" for point in points}
    found = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}
    return {name: Result.from_json(data) for name, data in found.items()}


def save(folder: Path, result: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result.point}.json").write_text(text_of(result.to_json()), encoding="utf-8")


def text_of(data: Mapping[str, Any]) -> str:
    """JSON with a line for each peer, so that a change is seen where it is."""
    lines = []
    for key, value in data.items():
        if key in ("peers", "samples"):
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
