"""The view of a report: its words and bar widths, as plain data for the template.

View    = title answer warnings Fact* Compare* figures GradientPart* network Section* made_by
Compare = name Gauge* error                   # a scheme: a bar predicted, a bar measured
Gauge   = kind width words low high           # widths in percent
"""

from __future__ import annotations

from dataclasses import dataclass


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
    """The bars of one scheme; ``anchor`` is the id of its section, ``error`` that of the prediction, in words."""

    name: str
    anchor: str
    gauges: tuple[Gauge, ...]
    error: str
    off: str
    """A class of the error: good, fair or poor."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A term and what is said of it, both in words."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class HtmlTable:
    """A table of words; each row is as long as ``head``."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class GradientPart:
    """One gradient: its facts, how its sums grow denser, and by how many ranks its units are held."""

    name: str
    facts: tuple[Fact, ...]
    growth: HtmlTable
    holders: tuple[Gauge, ...]
    holders_title: str


@dataclass(frozen=True, slots=True)
class Section:
    """The section of one scheme: its facts, a table of phases, its drawing and its text."""

    name: str
    anchor: str
    doc: str
    summary: str
    facts: tuple[Fact, ...]
    phases: HtmlTable
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
    figures: HtmlTable
    gradients: tuple[GradientPart, ...]
    network: tuple[Fact, ...]
    network_drawing: str
    network_undrawn: str
    sections: tuple[Section, ...]
    made_by: str
