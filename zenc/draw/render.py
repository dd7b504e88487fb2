"""Pictures to SVG, by the templates in ``templates/draw``; all text in them is escaped."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from zenc.common.resources import directory
from zenc.draw.picture import MatrixPicture, SchedulePicture, StrategyPicture, TopologyPicture

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = {
    SchedulePicture: "schedule.svg.j2",
    MatrixPicture: "matrix.svg.j2",
    TopologyPicture: "topology.svg.j2",
    StrategyPicture: "strategy.svg.j2",
}

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def svg(picture: SchedulePicture | MatrixPicture | TopologyPicture | StrategyPicture) -> str:
    """Return ``picture`` as the text of an SVG file: one element ``svg``, which can stand in a page of HTML too."""
    template = environment().get_template(TEMPLATES[type(picture)])
    return template.render({field.name: getattr(picture, field.name) for field in fields(picture)})


@cache
def environment() -> Environment:
    """Return the jinja2 environment of drawings."""
    return new_environment("draw")


def new_environment(folder: str) -> Environment:
    """Return an environment for a folder of markup templates, which escapes all, and replaces characters XML lacks."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(directory("templates") / folder),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_printable,
    )
    made.filters.update(px=pixels)
    return made


def _printable(value: object) -> object:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value) if type(value) is str else value


def pixels(number: float) -> str:
    """Return a length with at most one decimal place."""
    return f"{number:.1f}".removesuffix(".0")
