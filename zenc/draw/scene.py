"""The scene of a drawing: its marks, in pixels, and their text as SVG.

    Scene   = width height id title description Mark*      # in the order in which they are painted
    Mark = tag attributes Mark* title words

Every picture is made of what the functions here return. ``style`` is a class of ``templates/draw/style.css``, and
``title`` the words that a browser shows beside a mark at which it points.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from zenc.common.resources import directory

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Mark:
    """An element of SVG with its text; empty attributes are left out, and numbers are pixels."""

    tag: str
    attributes: Mapping[str, str | float | None]
    children: Sequence[Mark] = ()
    title: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """A drawing; ``id`` keeps apart the names inside several of one page."""

    width: float
    height: float
    id: str
    title: str
    description: str
    marks: Sequence[Mark]

    def svg(self) -> str:
        """Return the text of an SVG file: one element ``svg``, which can stand in a page of HTML too."""
        sides = {"viewBox": f"0 0 {pixels(self.width)} {pixels(self.height)}"}
        sides |= {"width": pixels(self.width), "height": pixels(self.height)}
        names = {"aria-labelledby": f"{self.id}-title {self.id}-desc", "id": self.id}
        style = (directory("templates") / "draw" / "style.css").read_text(encoding="utf-8")
        inside = (
            Mark("title", {"id": f"{self.id}-title"}, words=self.title),
            Mark("desc", {"id": f"{self.id}-desc"}, words=self.description),
            Mark("style", {}, words=f"\n{style}"),
            Mark("rect", {"class": "paper", "width": "100%", "height": "100%"}),
            *self.marks,
        )
        head = {"xmlns": "http://www.w3.org/2000/svg", **sides, "role": "img", **names}
        return f"{_markup(Mark('svg', head, inside))}\n"


def rectangle(
    x: float, y: float, width: float, height: float, style: str = "", fill: str = "", rx: float = 0.0, title: str = ""
) -> Mark:
    """Return a rectangle by its upper left corner, with corners of the radius ``rx``."""
    place = {"x": x, "y": y, "width": width, "height": height, "rx": rx or None}
    return Mark("rect", {"class": style, **place, "fill": fill}, title=title)


def line(x1: float, y1: float, x2: float, y2: float, style: str = "rule") -> Mark:
    """Return a straight line."""
    return Mark("line", {"class": style, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def text(x: float, y: float, words: str, style: str = "", anchor: str = "", colour: str = "") -> Mark:
    """Return words at a point; ``anchor`` is SVG's text-anchor, and ``colour`` one beside that of the style."""
    own = f"fill: {colour}" if colour else ""
    return Mark("text", {"x": x, "y": y, "class": style, "text-anchor": anchor, "style": own}, words=words)


def path(d: str, style: str = "", fill: str = "", title: str = "", **others: str | float) -> Mark:
    """Return the lines that ``d`` draws; ``others`` are further attributes."""
    named = {name.replace("_", "-"): value for name, value in others.items()}
    return Mark("path", {"class": style, "fill": fill, "d": d, **named}, title=title)


def group(style: str, children: Sequence[Mark], title: str = "", **data: str | float) -> Mark:
    """Return a group; ``data`` say what it stands for, to whoever reads the file."""
    return Mark("g", {"class": style, **{f"data-{name}": value for name, value in data.items()}}, children, title)


def gradient(id: str, top: float, bottom: float, colours: Sequence[str]) -> Mark:
    """Return colours from ``top`` to ``bottom``, which are a fill by the name ``url(#id)``."""
    ends: dict[str, str | float] = {"x1": "0", "x2": "0", "y1": top, "y2": bottom}
    offsets = (str(round(i / (len(colours) - 1), 3)) for i in range(len(colours)))
    stops = [Mark("stop", {"offset": at, "stop-color": of}) for at, of in zip(offsets, colours, strict=True)]
    return Mark("linearGradient", {"id": id, "gradientUnits": "userSpaceOnUse", **ends}, stops)


def pixels(number: float) -> str:
    """Return a length with at most one decimal place."""
    return f"{number:.1f}".removesuffix(".0")


def printable(words: str) -> str:
    """Return ``words`` with a mark in place of each character that XML lacks."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", words)


def _markup(mark: Mark) -> str:
    """Return the text of a mark, in one line where it is a title with a few others inside."""
    given = ((name, value) for name, value in mark.attributes.items() if value not in ("", None))
    written = (f' {name}="{escape(printable(v)) if isinstance(v, str) else pixels(v or 0.0)}"' for name, v in given)
    title = f"<title>{_content(mark.title)}</title>" if mark.title else ""
    inside = [title + _content(mark.words), *map(_markup, mark.children)]
    if mark.children and (not title or any(child.children for child in mark.children)):
        inside = ["\n", *(f"{each}\n" for each in inside if each)]
    head, text = f"{mark.tag}{''.join(written)}", "".join(inside)
    return f"<{head}>{text}</{mark.tag}>" if text else f"<{head}/>"


def _content(words: str) -> str:
    return escape(printable(words), quote=False)
