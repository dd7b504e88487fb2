"""A report in words and widths: from what was found to what the page shows."""

from __future__ import annotations

from collections.abc import Iterator

from zenc.format_units import seconds_text, share_text, size_text
from zenc.gradients import profile_report
from zenc.gradients.profile import Profile
from zenc.pipeline import LARGEST_PROVED
from zenc.plurals import count
from zenc.report.findings import Findings, Subject
from zenc.report.shown import Fact, Gauge, GradientPart, HtmlTable, Section, View
from zenc.report.times import answer, compares, figures
from zenc.topology.units import bits_text

MOST_NAMED = 3
"""Schemes in a title."""
MADE_UP = "no: made up from a density and a law"
PROVED = "every contribution is summed exactly once, and no rank waits forever"
MOST_HOLDERS = 8
"""Bars of holders."""


def view(found: Findings, network_drawing: tuple[str, str], made_by: str) -> View:
    """``network_drawing`` is the topology as SVG, or why there is none; ``made_by``, the command."""
    names = [subject.name for subject in found.subjects]
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if 1 < len(names) <= MOST_NAMED else names[0]
    what = listed if len(names) <= MOST_NAMED else f"{len(names)} schemes"
    return View(
        title=f"{what} among {count(found.place.size, 'rank')}",
        answer=tuple(answer(found)),
        warnings=tuple(note.replace("`", "") for note in found.notes),
        facts=tuple(_conditions(found)),
        measured_title=_measured_title(found),
        compares=tuple(compares(found)),
        figures=figures(found),
        gradients=tuple(_gradient(each, found.place.size) for each in found.place.profiles.values()),
        network=tuple(_network(found)),
        network_drawing=network_drawing[0],
        network_undrawn=network_drawing[1],
        sections=tuple(_section(found, subject, place) for place, subject in enumerate(found.subjects)),
        made_by=made_by,
    )


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
    k = [n for n in profile_report.numbers(size) if n <= size] or [1]
    union, thicker = profile.union(k).tolist(), profile.densification(k).tolist()
    growth = HtmlTable(
        ("ranks", *map(str, k)),
        (
            ("density of their sum", *map(share_text, union)),
            ("densification", *(f"{each:.2f}" for each in thicker)),
            ("skewness of so many parts", *(f"{profile.skewness(n):.2f}" for n in k)),
        ),
    )
    shares = profile_report.shares_of_holders(profile, size).tolist()
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
        subject.name, f"scheme-{place}", subject.doc, summary, tuple(facts), HtmlTable(head, tuple(rows)),
        subject.drawing, subject.undrawn, subject.text,
    )  # fmt: skip
