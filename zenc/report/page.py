"""A report as the text of one HTML file, by the template in ``templates/report``; whatever text it holds is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING

from zenc.common.resources import directory
from zenc.common.wording import count, seconds_text, share_text, size_text
from zenc.draw.scene import printable
from zenc.draw.topology import draw_topology
from zenc.errors import DrawingError
from zenc.gradients.profile_report import numbers, shares_of_holders
from zenc.pipeline.shown import LARGEST_PROVED
from zenc.report.findings import Findings, Subject
from zenc.scheme.units import bits_text
from zenc.topology.model import Topology

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE = "report.html.j2"
ROOM = 4.0
"""The ratio to the shortest bar from which on bars are cut."""
NEAR = 0.02
"""The share of the best seconds within which others count as equally good."""
MOST_NAMED = 3
"""Most schemes in a title."""
PROVED = "every contribution is summed exactly once, and no rank waits forever"


@dataclass(frozen=True, slots=True, eq=False)
class ReportPage:
    """The inputs of ``report.html.j2``; ``answer`` has the main result, and ``longest`` seconds fill a bar.

    ``network_drawing`` is the topology as SVG; where it is too large for that, ``network_undrawn`` says so.
    """

    found: Findings
    title: str
    answer: tuple[str, ...]
    longest: float
    network_drawing: str
    network_undrawn: str
    made_by: str


def html(found: Findings, made_by: str) -> str:
    """Return one file that loads nothing from elsewhere; ``made_by`` is the command and the version that made it."""
    names = [subject.name for subject in found.subjects]
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    what = listed if len(names) <= MOST_NAMED else f"{len(names)} schemes"
    title = f"{what} among {count(found.place.size, 'rank')}"
    seconds = [subject.outcome.seconds for subject in found.subjects] + [row.high for row in found.rows]
    longest = max(each for each in seconds if each <= ROOM * min(seconds)) or 1.0
    page = ReportPage(found, title, tuple(_answer(found)), longest, *_network(found.place.topology), made_by)
    return environment().get_template(TEMPLATE).render({each.name: getattr(page, each.name) for each in fields(page)})


@cache
def environment() -> Environment:
    """Return the jinja2 environment of reports: all text is escaped, drawings are as they are, and numbers in words."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=FileSystemLoader(directory("templates") / "report"),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters.update(
        drawing=Markup,  # the text of an SVG that zenc.draw has made, and escaped
        seconds=seconds_text, share=share_text, size=size_text, bits=bits_text, count=count, commas="{:,}".format,
        decimals="{:.2f}".format, signed=_signed, proved=_proved, numbers=numbers,
        holders=lambda profile, n: shares_of_holders(profile, n).tolist(),
        skewness=lambda parts, profile: f"{profile.skewness(parts):.2f}",
    )  # fmt: skip
    return made


def _network(topology: Topology | None) -> tuple[str, str]:
    if topology is None:
        return "", ""
    try:
        return draw_topology(topology).svg(), ""
    except DrawingError as error:
        return "", error.diagnostics[0].message


def _answer(found: Findings) -> Iterator[str]:
    """Yield sentences: the scheme that is predicted to be the fastest, by how much, and the slowest."""
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
    """Return the error of the predictions, and whether the order is right, as far as both are known."""
    least, most = min(errors), max(errors)
    span = _signed(least) if len(errors) == 1 else f"{_signed(least)} to {_signed(most)}"
    said = f"Predictions are off by {span} from what was measured"
    fastest = min(found.rows, key=lambda row: row.seconds)
    if len(found.rows) < 2:
        return f"{said}."
    if fastest in found.others:
        return f"{said}; the fastest there, {fastest.scheme}, is not predicted."
    return f"{said}; {fastest.scheme} was the fastest there{', too' * (fastest is found.rows[0])}."


def _signed(error: float) -> str:
    return f"{error:+.0%}".replace("-", "\N{MINUS SIGN}").replace("%", " %")


def _proved(size: int, drawn: bool) -> str:
    if drawn or size <= LARGEST_PROVED:
        return f"{PROVED}, among {count(size, 'rank')}"
    return f"{PROVED}: among 1 to 16 ranks, as far as it allows them, by the same moves; not tried among {size:,}"
