"""Curves of runs as files, and the numbers that the page has of them.

Curve = run x seed x Look*        # docs/benchmarks/convergence/RUN.json has those of all seeds
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.convergence.runs import Run
from benchmarks.convergence.trainer import Look

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "convergence"


@dataclass(frozen=True, slots=True)
class Curve:
    """The looks of one run at one seed. ``weights``: digest of the parameters at the end. ``seconds``: of processor."""

    seed: int
    looks: Sequence[Look]
    weights: str
    seconds: float

    @property
    def end(self) -> Look:
        """The last look."""
        return self.looks[-1]

    def steps_to(self, bits: float) -> float | None:
        """Return the first step at which held-out text takes ``bits`` or fewer, between looks by a line.

        None: never.
        """
        for before, after in zip([None, *self.looks], self.looks, strict=False):
            if after.bits <= bits:
                if before is None:
                    return float(after.step)
                share = (before.bits - bits) / (before.bits - after.bits)
                return before.step + share * (after.step - before.step)
        return None


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of a run at all seeds. ``about``: versions, and the scale at which it was trained."""

    run: str
    about: Mapping[str, Any]
    of_seeds: Sequence[Curve]

    def to_json(self) -> str:
        """Return the text of a file, a line a seed."""
        lines = [json.dumps(_rounded(asdict(curve))) for curve in self.of_seeds]
        head = f' "run": {json.dumps(self.run)},\n "about": {json.dumps(self.about)},\n "of_seeds": [\n  '
        return "{\n" + head + ",\n  ".join(lines) + "\n ]\n}\n"

    @staticmethod
    def from_json(text: str) -> Curves:
        """Return the curves in the ``text`` of a file."""
        data = json.loads(text)
        return Curves(data["run"], data["about"], [_curve_from(each) for each in data["of_seeds"]])

    @property
    def bits(self) -> tuple[float, float, float]:
        """Bits at the end: least, mean and greatest of the seeds."""
        found = [curve.end.bits for curve in self.of_seeds]
        return min(found), fmean(found), max(found)

    @property
    def sent(self) -> float:
        """Bytes that rank 0 sends in a step, on average."""
        return fmean(curve.end.sent / curve.end.step for curve in self.of_seeds)

    @property
    def left(self) -> float | None:
        """The norm of the residual over that of a gradient, at the end; the median of the seeds."""
        found = [curve.end.left for curve in self.of_seeds]
        return None if None in found else median(each for each in found if each is not None)

    def over(self, other: Curves) -> tuple[float, float, float]:
        """Return the bits at the end beyond those of ``other`` at the same seed: least, mean and greatest."""
        theirs = {curve.seed: curve.end.bits for curve in other.of_seeds}
        found = [curve.end.bits - theirs[curve.seed] for curve in self.of_seeds if curve.seed in theirs]
        return min(found), fmean(found), max(found)

    def steps_to(self, bits: float) -> float | None:
        """Return the mean step of the seeds at which they reach ``bits``; None if one of them never gets there."""
        found = [curve.steps_to(bits) for curve in self.of_seeds]
        return None if None in found else fmean(each for each in found if each is not None)


def _curve_from(data: Mapping[str, Any]) -> Curve:
    """Return a curve; bits that were not finite are infinite: the run has diverged."""
    looks = [Look(**{**look, "bits": math.inf if look["bits"] is None else look["bits"]}) for look in data["looks"]]
    return Curve(**{**data, "looks": looks})


def _rounded(value: Any) -> Any:
    """Return ``value`` with fractions to six digits, and None for numbers that are not finite, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def load(runs: Iterable[Run], folder: Path = FOLDER) -> dict[str, Curves]:
    """Return the curves of those of ``runs`` that have been trained, by name."""
    files = {run.name: folder / f"{run.name}.json" for run in runs}
    return {name: Curves.from_json(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}


def save(curves: Curves, folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{curves.run}.json").write_text(curves.to_json(), encoding="utf-8")
