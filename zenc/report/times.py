"""Times of a report in words: which scheme is the fastest, predicted beside measured, and all numbers."""

from __future__ import annotations

from collections.abc import Iterator

from zenc.format_units import seconds_text, size_text
from zenc.report.findings import Findings, Subject
from zenc.report.measured import MeasuredRow
from zenc.report.shown import Compare, Gauge, HtmlTable

NOTHING = "\N{EN DASH}"
ROOM = 4.0
"""Bars longer than so many times the shortest are cut."""
NEAR = 0.02
"""Seconds within this share of the best one's are as good."""
GOOD, FAIR = 0.1, 0.25
"""Errors of a prediction up to these."""


def answer(found: Findings) -> Iterator[str]:
    """Sentences: the scheme that is predicted to be the fastest, by how much, and the slowest."""
    best, *others = found.subjects
    what = "call" if len(found.place.profiles) == 1 else "step"
    seconds = f"{seconds_text(best.outcome.seconds)} a {what}"
    if not others:
        yield f"{best.name} is predicted to take {seconds}."
    else:
        nearest, farthest = others[0], others[-1]
        alike = nearest.outcome.seconds <= best.outcome.seconds * (1 + NEAR)
        behind = f"with {nearest.name} as good" if alike else f"{_times(nearest, best)} as fast as {nearest.name}"
        yield f"{best.name} is predicted to be the fastest: {seconds}, {behind}."
        if farthest is not nearest:
            yield f"The slowest, {farthest.name}, takes {_times(farthest, best)} as long."
    if errors := found.errors:
        yield _accuracy(found, errors)


def _times(slow: Subject, fast: Subject) -> str:
    best = fast.outcome.seconds
    return f"{slow.outcome.seconds / best if best else 1.0:.3g} times"


def _accuracy(found: Findings, errors: list[float]) -> str:
    """The error of the predictions, and whether the order is right, as far as both are known."""
    least, most = min(errors), max(errors)
    span = _signed(least) if len(errors) == 1 else f"{_signed(least)} to {_signed(most)}"
    said = f"Predictions are off by {span} from what was measured"
    rows = [subject.measured for subject in found.subjects if subject.measured]
    fastest = min([*rows, *found.others], key=lambda row: row.seconds)
    if len(rows) + len(found.others) < 2:
        return f"{said}."
    if fastest in found.others:
        return f"{said}; the fastest there, {fastest.scheme}, is not predicted."
    return f"{said}; {fastest.scheme} was the fastest there{', too' * (fastest is rows[0])}."


def _signed(error: float) -> str:
    return f"{error:+.0%}".replace("-", "\N{MINUS SIGN}").replace("%", " %")


def compares(found: Findings) -> Iterator[Compare]:
    """The bars of each scheme, on one scale: predicted first, then those that were measured alone."""
    rows = [subject.measured for subject in found.subjects if subject.measured] + list(found.others)
    most = _scale([subject.outcome.seconds for subject in found.subjects] + [row.high for row in rows])
    for place, subject in enumerate(found.subjects):
        gauges = [Gauge("predicted", 100 * subject.outcome.seconds / most, seconds_text(subject.outcome.seconds))]
        gauges += [_measured_gauge(subject.measured, most)] if subject.measured else []
        error = subject.error
        off = "" if error is None else "good" if abs(error) <= GOOD else "fair" if abs(error) <= FAIR else "poor"
        yield Compare(subject.name, f"scheme-{place}", tuple(gauges), "" if error is None else _signed(error), off)
    for row in found.others:
        yield Compare(row.scheme, "", (_measured_gauge(row, most),), "", "")


def _scale(seconds: list[float]) -> float:
    """The time that fills the width: the longest of those that are not many times the shortest."""
    return max(each for each in seconds if each <= ROOM * min(seconds)) or 1.0


def _measured_gauge(row: MeasuredRow, most: float) -> Gauge:
    spread = row.high > row.low
    low, high = (100 * value / most if spread else None for value in (row.low, row.high))
    return Gauge("measured", 100 * row.seconds / most, seconds_text(row.seconds), low, high)


def figures(found: Findings) -> HtmlTable:
    """A table of the seconds and bytes of each scheme."""
    measured = any(subject.measured for subject in found.subjects)
    times = ("predicted", "measured") if measured else ("predicted",)
    sent = ("sends, predicted", "sends, measured") if measured else ("busiest rank sends",)
    head = ("scheme", *times, "ratio", *sent, "steps", "messages", "kernels", "busiest link")
    return HtmlTable(head, tuple(_figure_row(found, subject, measured) for subject in found.subjects))


def _figure_row(found: Findings, subject: Subject, measured: bool) -> tuple[str, ...]:
    row, outcome, worst = subject.measured, subject.outcome, subject.outcome.worst
    each = list(outcome.predictions.values())
    share = f"{worst.busy / worst.seconds:.0%}".replace("%", " %") if worst.seconds else ""
    busy = f"{worst.bottleneck}, {share}" if worst.bottleneck else NOTHING
    return (
        subject.name,
        seconds_text(outcome.seconds),
        *([seconds_text(row.seconds) if row else NOTHING] if measured else []),
        f"{found.point.ratio(outcome):.2f}",
        size_text(outcome.sent),
        *([size_text(row.sent) if row and row.sent is not None else NOTHING] if measured else []),
        f"{sum(prediction.steps for prediction in each):,}",
        f"{sum(prediction.messages for prediction in each):,}",
        seconds_text(sum(prediction.kernels for prediction in each)),
        busy,
    )
