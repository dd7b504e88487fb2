"""What a report holds: schemes at one place, predicted, and measured where a file says so.

Findings = place Subject* Measured? notes          # the least predicted seconds first
Subject  = scheme text drawing Outcome Row?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zenc import compiler
from zenc.cost import characteristics
from zenc.cost.simulate import Outcome, Place, Point, simulate
from zenc.errors import CostError, Diagnostic, DrawingError
from zenc.language.load import load_file, locate
from zenc.plan.gradient import Gradient
from zenc.plan.model import Plan
from zenc.report.measured import Measured, MeasuredRow
from zenc.topology.show import summarize

FAR_OFF = 0.05
"""By what share conditions of a measurement may differ from those of the prediction before that is said."""


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """One scheme; ``drawing`` is the text of an SVG file, or empty, and then ``undrawn`` says why."""

    name: str
    doc: str
    text: str
    drawing: str
    undrawn: str
    outcome: Outcome
    measured: MeasuredRow | None

    @property
    def error(self) -> float | None:
        """By what share the prediction is above what was measured, or below it where negative."""
        if self.measured is None or not self.measured.seconds:
            return None
        return self.outcome.seconds / self.measured.seconds - 1

    def to_json(self) -> dict[str, Any]:
        measured = self.measured.to_json() if self.measured else None
        return {"doc": self.doc, **self.outcome.to_json(), "measured": measured, "error": self.error}


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """All of a report; ``others`` were measured, and nobody asked for a prediction of them."""

    place: Place
    point: Point
    subjects: tuple[Subject, ...]
    measured: Measured | None
    others: tuple[MeasuredRow, ...]
    notes: tuple[str, ...]

    @property
    def errors(self) -> list[float]:
        return [subject.error for subject in self.subjects if subject.error is not None]

    def to_json(self) -> dict[str, Any]:
        """The data of the report; bytes, seconds, bytes a second. Drawings are left out."""
        place, topology = self.place, self.place.topology
        return {
            "ranks": place.size,
            "topology": summarize(topology).to_json() if topology else None,
            "bandwidth": self.point.bandwidth,
            "calibration": place.calibration.to_json(),
            "gradients": [characteristics.to_json(each, place.size) for each in place.profiles.values()],
            "schemes": [subject.to_json() for subject in self.subjects],
            "measured": self.measured.to_json() if self.measured else None,
            "notes": list(self.notes),
        }


def findings(
    paths: Iterable[str],
    place: Place,
    measured: Measured | None = None,
    params: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    remarks: Iterable[str] = (),
) -> Findings:
    """Prove, draw and predict the schemes in ``paths`` at ``place``, and lay ``measured`` beside them.

    ``remarks`` are what a reader has to know besides: they stand before the notes of the prediction.

    Raises CostError (``nothing-to-simulate``, ``bad-measurement``), and what ``zenc.compiler.check`` does.
    """
    from zenc.chain import planner

    plans: dict[str, Plan] = {}
    sources = dict[str, str]()

    def keeping(name: str, plan: Callable[[int], Plan]) -> Callable[[int], Plan]:
        return lambda size: plans.setdefault(name, plan(size))

    planners = {}
    for path in paths:
        name, plan = planner(load_file(locate(path)), params or {}, None, place.topology)
        named = name if name not in sources else f"{path}: {name}"
        sources[named], planners[named] = path, keeping(named, plan)
    found = simulate(planners, [place], progress)
    (point,) = found.points
    rows = _rows(measured, [outcome.scheme for outcome in point.outcomes])
    subjects = []
    for outcome in point.outcomes:
        progress(f"drawing {outcome.scheme}")
        path = sources[outcome.scheme]
        drawing, undrawn = _drawn(path, place, params)
        text, doc = Path(locate(path)).read_text(encoding="utf-8"), plans[outcome.scheme].doc
        subjects.append(Subject(outcome.scheme, doc, text, drawing, undrawn, outcome, rows.get(outcome.scheme)))
    names = {subject.name for subject in subjects}
    others = sorted((row for name, row in rows.items() if name not in names), key=lambda row: row.seconds)
    skipped = tuple(diagnostic.message for diagnostic in found.skipped)
    notes = (*remarks, *found.notes, *skipped, *(_differences(measured, place, names) if measured else ()))
    return Findings(place, point, tuple(subjects), measured, tuple(others), notes)


def _drawn(path: str, place: Place, params: Mapping[str, str] | None) -> tuple[str, str]:
    one = next(iter(place.profiles.values()))
    gradient = Gradient(one.units, one.width, one.dtype, one.density)
    try:
        drawing = compiler.draw(path, place.size, params=params, topology=place.topology, gradient=gradient)
    except DrawingError as error:
        return "", error.diagnostics[0].message
    return drawing.svg(), ""


def _rows(measured: Measured | None, schemes: list[str]) -> dict[str, MeasuredRow]:
    """By the names of ``schemes``: a scheme in a file is called by its stem, too."""
    rows = {
        Path(name).stem if name.endswith(".zen") else name: row
        for name, row in (measured.rows if measured else {}).items()
    }
    if measured and not set(schemes) & set(rows):
        message = f"none of the schemes is among what {measured.name} has measured: {', '.join(rows)}"
        raise CostError(Diagnostic("bad-measurement", message, help="name these schemes, or leave out --measured"))
    return rows


def _differences(measured: Measured, place: Place, names: set[str]) -> list[str]:
    """What was measured under other conditions than what is predicted, in words."""
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
    missing = sorted(names - set(_rows(measured, list(names))))
    return [*found, *([f"not measured: {', '.join(missing)}"] if missing else [])]
