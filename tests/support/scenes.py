"""The marks of a drawing's scene, at any depth."""

from __future__ import annotations

from collections.abc import Iterator

from zenc.draw.scene import Mark, Scene


def marks_of(within: Scene | Mark, tag: str, style: str | None = None) -> list[Mark]:
    """Return the marks of a kind in ``within``, of one style or of any, in the order in which they are painted."""
    return [each for each in _all(within) if each.tag == tag and style in (None, each.attributes.get("class"))]


def words(scene: Scene) -> list[str]:
    return [each.words for each in marks_of(scene, "text")]


def numbers(mark: Mark, *names: str) -> list[float]:
    return [float(mark.attributes[name] or 0.0) for name in names]


def _all(within: Scene | Mark) -> Iterator[Mark]:
    for each in within.marks if isinstance(within, Scene) else within.children:
        yield each
        yield from _all(each)
