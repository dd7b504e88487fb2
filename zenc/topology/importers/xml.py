"""A safe XML parser: a tree of elements with line numbers, without document types and entities.

Document types, and with them entities and references to other files, are refused where they start: before anything is
expanded, and nothing is ever fetched. The number of elements and their depth are bounded.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal
from xml.parsers import expat

from zenc.errors import Diagnostic, PlanError, Source, Span, TopologyError, ZencError

_DEEPEST = 100
Kind = Literal["topology", "plan"]
_ERRORS: Mapping[Kind, type[ZencError]] = {"topology": TopologyError, "plan": PlanError}


@dataclass
class Element:
    """An element; ``line`` counts from 1."""

    tag: str
    attributes: Mapping[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        """Yield this element and all below it, in the order of the file."""
        pending = [self]
        while pending:
            element = pending.pop()
            yield element
            pending += reversed(element.children)


def parse_xml(data: bytes, source: Source, most: int, of: Kind = "topology") -> Element:
    """Return the outermost element of ``data``, which has at most ``most`` elements.

    Raises:
        TopologyError, or PlanError of a plan: it is no XML, holds a document type or an entity, or too much.
    """
    if data.count(b"<") > 2 * most + 1000:  # in most encodings, and it takes no time
        raise _too_many(of, line_span(source, 1))
    builder = _Builder(source, most, of)
    try:
        builder.parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        where = line_span(source, getattr(error, "lineno", 1))
        raise _malformed(of, f"this is no XML: {error}", where) from error
    assert builder.root is not None  # expat takes no document without an element
    return builder.root


class _Builder:
    def __init__(self, source: Source, most: int, of: Kind) -> None:
        self.source = source
        self.most = most
        self.of = of
        self.root: Element | None = None
        self.parser: Any = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = lambda _: self._open.pop()
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.UnparsedEntityDeclHandler = self._refuse
        self.parser.ExternalEntityRefHandler = self._refuse
        self._open: list[Element] = []
        self._count = 0

    def _here(self) -> Span:
        return line_span(self.source, self.parser.CurrentLineNumber)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > self.most:
            raise _too_many(self.of, self._here())
        element = Element(name, attributes, self.parser.CurrentLineNumber)
        if len(self._open) >= _DEEPEST:
            raise _malformed(self.of, f"this nests deeper than {_DEEPEST} elements", self._here())
        if self._open:
            self._open[-1].children.append(element)
        self.root = self.root or element
        self._open.append(element)

    def _refuse(self, *_: object) -> int:
        message = f"this XML declares a document type or an entity, which no {self.of} needs"
        help = "delete the lines from <!DOCTYPE to its >: entities can expand without end, or read other files"
        raise _ERRORS[self.of](Diagnostic("unsafe-xml", message, self._here(), help=help))


def _malformed(of: Kind, message: str, where: Span) -> ZencError:
    return _ERRORS[of](Diagnostic("malformed-topology" if of == "topology" else "malformed-plan", message, where))


def _too_many(of: Kind, where: Span) -> ZencError:
    message = f"this file is too large: it has more elements than any {of}"
    return _ERRORS[of](Diagnostic("topology-too-large" if of == "topology" else "plan-too-large", message, where))


class Lines:
    """The lines of a source, for callers that need many."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @cached_property
    def _starts(self) -> array[int]:
        """The places where lines start, and one beyond the text."""
        lengths = map(len, self._source.text.split("\n"))
        return array("q", accumulate(lengths, lambda start, length: start + length + 1, initial=0))

    def span(self, line: int) -> Span:
        """Return the place of the 1-based ``line``, or of the last one, without the white space around it."""
        line = min(line, len(self._starts) - 1)
        start = self._starts[line - 1]
        text = self._source.text[start : self._starts[line] - 1]
        start += len(text) - len(text.lstrip())
        return Span(self._source, start, start + len(text.strip()))


def line_span(source: Source, line: int) -> Span:
    """Return the place of one line, as ``Lines.span`` does."""
    return Lines(source).span(line)


@dataclass
class Attributes:
    """A reader of numbers in elements of ``source``, with their places."""

    source: Source
    _lines: Lines = field(init=False)

    def __post_init__(self) -> None:
        self._lines = Lines(self.source)

    def at(self, element: Element) -> Span:
        """Return the place of ``element``'s line."""
        return self._lines.span(element.line)

    def number(self, element: Element, name: str, default: float) -> float:
        """Return the attribute's number; raises TopologyError (``malformed-topology``) where it is no number."""
        text = element.attributes.get(name, "").strip()
        if not text:
            return default
        if not re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", text):
            message = f"'{name}' of <{element.tag}> is {text[:40]!r}, and no number"
            raise TopologyError(Diagnostic("malformed-topology", message, self.at(element)))
        return float(text)

    def integer(self, element: Element, name: str, default: int) -> int:
        """Return the attribute's number as ``number`` does, cut to a whole number."""
        return int(self.number(element, name, default))
