"""A report in words and widths, as the template writes it down.

View    = title answer notes Compare* gradients network Section* ...
Compare = name Bar* error                     # a line of the comparison, with widths in percent
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zenc.chain import LARGEST_PROVED
from zenc.cost import characteristics
from zenc.cost.profile import Profile
from zenc.plan.quantities import seconds_text, share_text, size_text
from zenc.report.findings import Findings, Subject
from zenc.report.measured import MeasuredRow
from zenc.topology.units import bits_text
from zenc.words import count

NOTHING = "\N{EN DASH}"
MOST_NAMED = 3
"""Schemes in a title."""
ROOM = 4.0
"""Bars longer than so many times the shortest are cut."""
MADE_UP = "no: made up from a density and a law"
PROVED = "every contribution is summed exactly once, and no rank waits forever"
MOST_HOLDERS = 8
"""Bars of holders."""
NEAR = 0.02
"""Seconds within this share of the best one's are as good."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A bar. ``kind`` is predicted or measured; ``low`` and ``high`` of a whisker, in percent of the width, or None."""

    kind: str
    width: float
    words: str
    low: float | None = None
    high: float | None = None

    @property
    def cut(self) -> bool:
        """Whether it is longer than there is room for."""
        return self.width > 100


@dataclass(frozen=True, slots=True)
class Compare:
    name: str
    anchor: str
    gauges: tuple[Gauge, ...]
    error: str
    off: str
    """A class of the error: good, fair or poor."""


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class GradientPart:
    name: str
    facts: tuple[Fact, ...]
    growth: Table
    holders: tuple[Gauge, ...]
    holders_title: str


@dataclass(frozen=True, slots=True)
class Section:
    """One scheme."""

    name: str
    anchor: str
    doc: str
    summary: str
    facts: tuple[Fact, ...]
    phases: Table
    drawing: str
    undrawn: str
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """The inputs of ``report.html.j2``. ``answer`` is what a reader wants to know first."""

    title: str
    answer: tuple[str, ...]
    warnings: tuple[str, ...]
    facts: tuple[Fact, ...]
    measured_title: str
    compares: tuple[Compare, ...]
    figures: Table
    gradients: tuple[GradientPart, ...]
    network: tuple[Fact, ...]
    network_drawing: str
    network_undrawn: str
    sections: tuple[Section, ...]
    made_by: str


def view(found: Findings, network_drawing: tuple[str, str], made_by: str) -> View:
    """``network_drawing`` is the topology as SVG, or why there is none; ``made_by``, the command."""
    names = [subject.name for subject in found.subjects]
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if 1 < len(names) <= MOST_NAMED else names[0]
    what = listed if len(names) <= MOST_NAMED else f"{len(names)} schemes"
    return View(
        title=f"{what} among {count(found.place.size, 'rank')}",
        answer=tuple(_answer(found)),
        warnings=tuple(note.replace("`", "") for note in found.notes),
        facts=tuple(_conditions(found)),
        measured_title=_measured_title(found),
        compares=tuple(_compares(found)),
        figures=_figures(found),
        gradients=tuple(_gradient(each, found.place.size) for each in found.place.profiles.values()),
        network=tuple(_network(found)),
        network_drawing=network_drawing[0],
        network_undrawn=network_drawing[1],
        sections=tuple(_section(found, subject, place) for place, subject in enumerate(found.subjects)),
        made_by=made_by,
    )


def _answer(found: Findings) -> Iterator[str]:
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
    return f"{slow.outcome.seconds / fast.outcome.seconds:.3g} times"


def _accuracy(found: Findings, errors: list[float]) -> str:
    both = [subject for subject in found.subjects if subject.measured]
    least, most = min(errors), max(errors)
    span = _signed(least) if len(errors) == 1 else f"{_signed(least)} to {_signed(most)}"
    said = f"Predictions are off by {span} from what was measured"
    fastest = min(both, key=lambda subject: subject.measured.seconds if subject.measured else 0.0)
    if len(both) < 2:
        return said + "."
    if fastest is both[0]:
        return f"{said}; {fastest.name} was the fastest there, too."
    return f"{said}; there, {fastest.name} was the fastest."


def _signed(error: float) -> str:
    return f"{error:+.0%}".replace("-", "\N{MINUS SIGN}").replace("%", " %")


def _conditions(found: Findings) -> Iterator[Fact]:
    place = found.place
    yield Fact("Ranks", f"{place.size:,}")
    first, *others = place.profiles.values()
    shape = f"{first.units:,} x {first.width} {first.dtype}, of which a rank holds {share_text(first.density)}"
    yield Fact("Gradients", ", ".join(place.profiles) if others else f"{first.name}: {shape}")
    yield Fact("Network", _network_name(found))
    known = place.calibration
    yield Fact("Times by", "guesses, not calibrated" if known.guess else f"calibration {known.name}")
    if found.measured:
        yield Fact("Measured", found.measured.name)


def _network_name(found: Findings) -> str:
    place = found.place
    return place.topology.name if place.topology else f"one switch, {bits_text(place.calibration.bandwidth)} a rank"


def _measured_title(found: Findings) -> str:
    return found.measured.title if found.measured else ""


def _compares(found: Findings) -> Iterator[Compare]:
    rows = [subject.measured for subject in found.subjects if subject.measured] + list(found.others)
    most = _scale([subject.outcome.seconds for subject in found.subjects] + [row.high for row in rows])
    for place, subject in enumerate(found.subjects):
        gauges = [Gauge("predicted", 100 * subject.outcome.seconds / most, seconds_text(subject.outcome.seconds))]
        gauges += [_measured_gauge(subject.measured, most)] if subject.measured else []
        error = subject.error
        off = "" if error is None else "good" if abs(error) <= 0.1 else "fair" if abs(error) <= 0.25 else "poor"
        yield Compare(subject.name, f"scheme-{place}", tuple(gauges), "" if error is None else _signed(error), off)
    for row in found.others:
        yield Compare(row.scheme, "", (_measured_gauge(row, most),), "", "")


def _scale(seconds: list[float]) -> float:
    """What fills the width: the longest, of those that are not many times the shortest."""
    return max(each for each in seconds if each <= ROOM * min(seconds)) or 1.0


def _measured_gauge(row: MeasuredRow, most: float) -> Gauge:
    spread = row.high > row.low
    low, high = (100 * value / most if spread else None for value in (row.low, row.high))
    return Gauge("measured", 100 * row.seconds / most, seconds_text(row.seconds), low, high)


def _figures(found: Findings) -> Table:
    """What each scheme takes, in numbers."""
    measured = any(subject.measured for subject in found.subjects)
    times = ("predicted", "measured") if measured else ("predicted",)
    sent = ("sends, predicted", "sends, measured") if measured else ("busiest rank sends",)
    head = ("scheme", *times, "ratio", *sent, "steps", "messages", "kernels", "busiest link")
    return Table(head, tuple(_figure_row(found, subject, measured) for subject in found.subjects))


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


def _gradient(profile: Profile, size: int) -> GradientPart:
    size_of_all = size_text(profile.units * profile.unit_bytes)
    shape = f"{profile.units:,} units of {profile.width} {profile.dtype}, {size_of_all}"
    held = size_text(profile.units * profile.density * profile.unit_bytes)
    facts = [
        Fact("Tensor", shape),
        Fact("A rank holds", f"{share_text(profile.density)} of the units, {held}"),
        Fact("Overlap", f"{share_text(profile.overlap)} of a rank's units, with any other rank"),
        Fact(
            "Recorded",
            f"on {count(profile.ranks, 'rank')}" if profile.ranks else MADE_UP,
        ),
    ]
    k = [n for n in characteristics.numbers(size) if n <= size] or [1]
    union, thicker = profile.union(k).tolist(), profile.densification(k).tolist()
    growth = Table(
        ("ranks", *map(str, k)),
        (
            ("density of their sum", *map(share_text, union)),
            ("densification", *(f"{each:.2f}" for each in thicker)),
            ("skewness of so many parts", *(f"{profile.skewness(n):.2f}" for n in k)),
        ),
    )
    shares = characteristics.shares_of_holders(profile, size).tolist()
    shown = shares[:MOST_HOLDERS]
    most = max(shares, default=1.0) or 1.0
    bars = [Gauge(f"{c}", 100 * share / most, share_text(share)) for c, share in enumerate(shown, 1)]
    if rest := shares[MOST_HOLDERS:]:
        bars.append(Gauge("more", 100 * sum(rest) / most, share_text(sum(rest))))
    title = f"Of the units that any of {count(size, 'rank')} holds, by how many they are held"
    return GradientPart(profile.name, tuple(facts), growth, tuple(bars), title)


def _network(found: Findings) -> Iterator[Fact]:
    known, topology = found.place.calibration, found.place.topology
    yield Fact("Network", _network_name(found))
    if topology and topology.doc:
        yield Fact("It is", topology.doc)
    yield Fact("Links carry", f"{share_text(known.efficiency)} of their bandwidth")
    yield Fact("A step", f"{seconds_text(known.step)}, and {seconds_text(known.message)} a message")
    yield Fact("A call", seconds_text(known.call))
    if known.cores:
        yield Fact("Processors", f"{count(known.cores, 'core')} for all ranks")


def _proved(size: int, drawn: bool) -> str:
    """A drawing is a proof, too: of what it shows."""
    if drawn or size <= LARGEST_PROVED:
        return f"{PROVED}, among {count(size, 'rank')}"
    return f"{PROVED}: among 1 to 16 ranks, as far as it allows them, by the same moves; not tried among {size:,}"


def _section(found: Findings, subject: Subject, place: int) -> Section:
    worst, outcome = subject.outcome.worst, subject.outcome
    facts = [
        Fact("Proved", _proved(found.place.size, bool(subject.drawing))),
        Fact("Predicted", seconds_text(outcome.seconds)),
        Fact("Busiest rank", f"sends {size_text(outcome.sent)}"),
        Fact("Kernels", seconds_text(worst.kernels)),
    ]
    if worst.bottleneck:
        carried = f"{size_text(worst.carried)} in {seconds_text(worst.busy)}"
        facts.append(Fact("Busiest link", f"{worst.bottleneck}: {carried}"))
    if row := subject.measured:
        rounds = f", {count(row.rounds, 'round')}" if row.rounds else ""
        quartiles = f" ({seconds_text(row.low)} to {seconds_text(row.high)})" if row.high > row.low else ""
        facts.append(Fact("Measured", f"{seconds_text(row.seconds)}{quartiles}{rounds}"))
    rows = [
        (name, f"{phase.steps:,}", seconds_text(phase.seconds), size_text(phase.sent), size_text(phase.received))
        for name, phase in worst.phases.items()
    ]
    head = ("phase", "steps", "time", "busiest sends", "busiest receives")
    summary = seconds_text(outcome.seconds)
    return Section(
        subject.name, f"scheme-{place}", subject.doc, summary, tuple(facts), Table(head, tuple(rows)),
        subject.drawing, subject.undrawn, subject.text,
    )  # fmt: skip
