"""A report as the text of one HTML file, by the template in ``templates/report``; whatever text it holds is escaped."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from zenc.draw.render import new_environment, svg
from zenc.draw.topology import draw_topology
from zenc.errors import DrawingError
from zenc.report.findings import Findings
from zenc.report.view import view
from zenc.topology.model import Topology

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE = "report.html.j2"


def html(found: Findings, made_by: str) -> str:
    """One file that loads nothing from elsewhere; ``made_by`` is the command and the version that made it."""
    shown = view(found, _network(found.place.topology), made_by)
    return (
        environment().get_template(TEMPLATE).render({field.name: getattr(shown, field.name) for field in fields(shown)})
    )


def _network(topology: Topology | None) -> tuple[str, str]:
    if topology is None:
        return "", ""
    try:
        return svg(draw_topology(topology)), ""
    except DrawingError as error:
        return "", error.diagnostics[0].message


@cache
def environment() -> Environment:
    """The jinja2 environment of reports: that of drawings, which are inlined as they are."""
    from markupsafe import Markup

    made = new_environment("report")
    made.filters.update(drawing=Markup)  # the text of an SVG that zenc.draw has made, and escaped
    return made
