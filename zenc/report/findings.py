"""The data of a report: schemes on one topology, predicted, and measured where a file says so.

Findings = place Subject* Measured? notes          # the least predicted seconds first
Subject  = scheme text drawing SweepOutcome Row?
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from zenc.common.wording import seconds_text
from zenc.draw.scheme import picture_of
from zenc.draw.shown import StepRange
from zenc.errors import CostError, Diagnostic, DrawingError
from zenc.gradients import profile_report
from zenc.gradients.spec import GradientSpec
from zenc.language.files import load_file, locate, read, shipped_names
from zenc.pipeline import resolve
from zenc.pipeline.request import Request
from zenc.pipeline.shown import planners
from zenc.plan.ir import Plan
from zenc.report.measured import Measured, MeasuredRow
from zenc.simulator.sweep import Planner, Point, SweepOutcome, SweepPoint, simulate
from zenc.topology.levels import summarize

FAR_OFF = 0.05
"""The relative difference from which on conditions of a measurement and of the prediction are reported."""


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A scheme of a report; ``drawing`` is the text of an SVG file, or empty, and then ``undrawn`` has the reason."""

    name: str
    doc: str
    text: str
    drawing: str
    undrawn: str
    outcome: SweepOutcome
    measured: MeasuredRow | None

    @property
    def error(self) -> float | None:
        """The relative difference of the prediction to the measurement, negative below it."""
        if self.measured is None or not self.measured.seconds:
            return None
        return self.outcome.seconds / self.measured.seconds - 1

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: the prediction, its measurement, and the relative error of the prediction."""
        measured = self.measured.to_json() if self.measured else None
        return {"doc": self.doc, **self.outcome.to_json(), "measured": measured, "error": self.error}


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """The data of a report; ``others`` were measured, without a prediction.

    ``skipped``: warnings about schemes that don't suit the ranks or the topology.
    """

    place: SweepPoint
    point: Point
    subjects: tuple[Subject, ...]
    measured: Measured | None
    others: tuple[MeasuredRow, ...]
    notes: tuple[str, ...]
    skipped: tuple[Diagnostic, ...] = ()

    @property
    def rows(self) -> list[MeasuredRow]:
        """The measurements: those of the subjects first, then the others."""
        return [*(subject.measured for subject in self.subjects if subject.measured), *self.others]

    @property
    def errors(self) -> list[float]:
        """The relative errors of the predictions that were also measured."""
        return [subject.error for subject in self.subjects if subject.error is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the data of the report; bytes, seconds, bytes a second. Drawings are left out."""
        place, topology = self.place, self.place.topology
        return {
            "ranks": place.size,
            "topology": summarize(topology).to_json() if topology else None,
            "bandwidth": self.point.bandwidth,
            "calibration": place.calibration.to_json(),
            "gradients": [profile_report.to_json(each, place.size) for each in place.profiles.values()],
            "schemes": [subject.to_json() for subject in self.subjects],
            "measured": self.measured.to_json() if self.measured else None,
            "notes": list(self.notes),
        }


def findings(
    paths: Iterable[str],
    place: SweepPoint,
    measured: Measured | None = None,
    params: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    remarks: Iterable[str] = (),
) -> Findings:
    """Prove, draw and predict the schemes in ``paths`` at ``place``, and lay ``measured`` beside them.

    ``remarks`` are for the reader: they stand before the notes of the prediction.

    Raises CostError (``nothing-to-simulate``, ``bad-measurement``), and raises as ``zenc.api.check`` does.
    """
    asked = _AskedFindings(place, params)
    for path in paths:
        asked.add(path)
    found = simulate(asked.planners, [place], progress)
    (point,) = found.points
    nccl = [f"{o.scheme}, by NCCL: {seconds_text(o.seconds)}" for o in point.outcomes if o.scheme not in asked.plans]
    point = replace(point, outcomes=tuple(each for each in point.outcomes if each.scheme in asked.plans))
    names = [outcome.scheme for outcome in point.outcomes]
    rows = _rows(measured, names)
    subjects = []
    for outcome in point.outcomes:
        progress(f"drawing {outcome.scheme}")
        subjects.append(asked.subject(outcome, rows.get(outcome.scheme)))
    others = sorted((row for name, row in rows.items() if name not in names), key=lambda row: row.seconds)
    told = _differences(measured, place, rows.keys(), names) if measured else []
    notes = (*remarks, *asked.notes, *nccl, *found.notes, *(diagnostic.message for diagnostic in found.skipped), *told)
    return Findings(place, point, tuple(subjects), measured, tuple(others), notes, found.skipped)


@dataclass(slots=True)
class _AskedFindings:
    """The schemes of a report: their planners, and their texts."""

    place: SweepPoint
    params: Mapping[str, str] | None
    planners: dict[str, Planner] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        """Add the scheme in ``path``, or each candidate of one that chooses, unless it is there already."""
        file = Path(locate(path))
        request = Request(params=self.params, topology=self.place.topology)
        schemes = resolve(load_file(file), request)
        chosen, found = schemes.name, planners(schemes, request)
        if schemes.choice:
            self.notes.append(f"{chosen} takes the cheapest of {', '.join(found)} for each tensor at run time")
        for name, plan in found.items():
            text = read(file if name == chosen or name not in shipped_names() else locate(name)).text
            if name in self.texts and self.texts[name] != text:
                name = f"{path}: {name}"
            self.texts[name], self.planners[name] = text, self._keeping(name, plan)

    def _keeping(self, name: str, planner: Planner) -> Planner:
        return lambda size: self.plans.setdefault(name, planner(size))

    def subject(self, outcome: SweepOutcome, measured: MeasuredRow | None) -> Subject:
        name, drawing, undrawn = outcome.scheme, "", ""
        one = next(iter(self.place.profiles.values()))
        gradient = GradientSpec(one.units, one.width, one.dtype, one.density)
        try:
            picture = picture_of(self.plans[name], self.place.size, StepRange(), self.place.topology, gradient)
            drawing = picture.svg()
        except DrawingError as error:
            undrawn = error.diagnostics[0].message
        return Subject(name, self.plans[name].doc, self.texts[name], drawing, undrawn, outcome, measured)


def _rows(measured: Measured | None, schemes: list[str]) -> dict[str, MeasuredRow]:
    """Return the rows by the names of ``schemes``: a scheme in a file is called by its stem, too."""
    if measured is None:
        return {}
    rows = {Path(name).stem if name.endswith(".zen") else name: row for name, row in measured.rows.items()}
    if not set(schemes) & set(rows):
        message = f"none of the schemes is among what {measured.name} has measured: {', '.join(rows)}"
        raise CostError(Diagnostic("bad-measurement", message, help="name these schemes, or leave out --measured"))
    return rows


def _differences(measured: Measured, place: SweepPoint, known: Collection[str], names: list[str]) -> list[str]:
    one, at = next(iter(place.profiles.values())), measured.at
    pairs = [
        ("ranks", at.ranks, place.size),
        ("units", at.units, one.units),
        ("values in a unit", at.width, one.width),
        ("density", at.density, one.density),
        ("bandwidth in bytes a second", at.bandwidth, None if place.topology else place.calibration.bandwidth),
    ]
    found = [
        f"measured with {what} {there:g}, predicted for {here:g}"
        for what, there, here in pairs
        if there is not None and here is not None and abs(here - there) > FAR_OFF * there
    ]
    missing = [name for name in names if name not in known]
    return [*found, *([f"not measured: {', '.join(missing)}"] if missing else [])]
