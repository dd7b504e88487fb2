"""Contents of a plot, apart from how matplotlib writes it down: that differs from version to version.

Meaning = texts, colour of data -> points of its shapes"""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from zenc.draw.plots.figure import DARK
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


NAMESPACE = "{http://www.w3.org/2000/svg}"
NEAR = 8.0
"""Points by which the layout may move: fonts are measured anew in each version."""
_COLOUR = re.compile(r"(?:fill|stroke): (#[0-9a-f]{6})")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Meaning:
    texts: Counter[str]
    shapes: dict[str, list[list[float]]]


def meaning(svg: str) -> Meaning:
    """Return the meaning of an SVG file's text."""
    root = ElementTree.fromstring(svg)
    shapes: dict[str, list[list[float]]] = {}
    for element in root.iter():
        found = _COLOUR.search(element.get("style", ""))
        if element.tag in (f"{NAMESPACE}path", f"{NAMESPACE}use") and found and found[1] not in DARK:
            numbers = element.get("d") or f"{element.get('x')} {element.get('y')}"
            shapes.setdefault(found[1], []).append([float(n) for n in _NUMBER.findall(numbers)])
    return Meaning(Counter(texts(svg)), shapes)


def _farthest(before: list[list[float]], after: list[list[float]]) -> float:
    pairs = (pair for shapes in zip(before, after, strict=True) for pair in zip(*shapes, strict=True))
    return max((abs(a - b) for a, b in pairs), default=0.0)


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{NAMESPACE}text")]


def differences(old: Meaning, new: Meaning) -> list[str]:
    found = [f"gone: {text!r}" for text in old.texts - new.texts] + [f"new: {text!r}" for text in new.texts - old.texts]
    for colour in sorted({*old.shapes, *new.shapes}):
        before, after = old.shapes.get(colour, []), new.shapes.get(colour, [])
        if [len(shape) for shape in before] != [len(shape) for shape in after]:
            found.append(f"{colour}: other lines, {len(before)} before and {len(after)} now")
        elif (far := _farthest(before, after)) > NEAR:
            found.append(f"{colour}: a line lies elsewhere, by {far:.0f} points")
    return found
