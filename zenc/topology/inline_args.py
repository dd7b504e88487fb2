"""``WHAT(NAME = VALUE, ...)``: arguments after the path or the name of a topology, as on a command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from zenc.errors import Diagnostic, Source, Span, TopologyError, ZencError
from zenc.language import topology_syntax
from zenc.language.files import SourceFiles, load_text

_BEFORE, _BEHIND = "topology given { like ", " }"
"""Text around a call that makes it a text of the language."""
_FOUND = ", found '}'"
"""End of the message about a text that is cut short before ``_BEHIND``."""


def split_given(text: str) -> tuple[str, str] | None:
    """``box.txt(nodes = 4)`` as ``box.txt`` and ``(nodes = 4)``; None where no arguments stand at the end."""
    start = text.find("(")
    if start < 1 or text[0].isspace() or not text.rstrip().endswith(")"):
        return None
    return text[:start].rstrip(), text[start:].rstrip()


def values_of(what: str, arguments: str) -> dict[str, str]:
    """Name -> value, as it is written, of what stands in parentheses after ``what``.

    Raises SchemeSyntaxError where that does not parse, and TopologyError (``wrong-arguments``) for a value without a
    name, or two of one name.
    """
    with as_written(f"{what}{arguments}", "<topology>", len(f"{_BEFORE}given") - len(what)):
        return _values(what, load_text(f"{_BEFORE}given{arguments}{_BEHIND}", "<topology>"))


def builder_program(call: str) -> SourceFiles:
    """A topology that starts like the builder that ``call`` names; errors are to be told ``as_builder_call``."""
    return load_text(f"{_BEFORE}{call}{_BEHIND}", "<builder>")


def as_builder_call(call: str) -> AbstractContextManager[None]:
    """Errors in ``builder_program(call)`` are raised as of ``call`` alone, which is all that its user wrote."""
    return as_written(call, "<builder>", len(_BEFORE))


@contextmanager
def as_written(text: str, name: str, before: int) -> Iterator[None]:
    """Errors of the source ``name``, where ``text`` stands behind ``before`` characters, are raised as of ``text``."""
    try:
        yield
    except ZencError as error:
        source = Source(name, text)
        raise type(error)(_moved(found, source, before) for found in error.diagnostics) from None


def _moved(found: Diagnostic, source: Source, before: int) -> Diagnostic:
    if found.span is None or found.span.source.name != source.name:
        return found
    end = len(source.text)
    start = min(max(found.span.start - before, 0), end)
    ends_early = start == end and found.message.endswith(_FOUND)
    message = found.message.removesuffix(_FOUND) + ", and nothing follows" if ends_early else found.message
    return replace(found, message=message, span=Span(source, start, min(max(found.span.end - before, start), end)))


def _values(what: str, program: SourceFiles) -> dict[str, str]:
    (like,) = program.main.topologies[0].body
    assert isinstance(like, topology_syntax.Like)
    values: dict[str, str] = {}
    for setting in like.settings:
        name = setting.name.text if setting.name else ""
        if not name or name in values:
            wrong = f"is given '{name}' twice" if name else "takes values with their names"
            help = f"write {what}(NAME = VALUE)"
            raise TopologyError(Diagnostic("wrong-arguments", f"{what} {wrong}", setting.span, help=help))
        values[name] = _written(setting)
    return values


def _written(setting: topology_syntax.Setting) -> str:
    """The text of the value alone."""
    assert setting.span is not None
    text = setting.span.source.text[setting.span.start : setting.span.end]
    return text.partition("=")[2].strip()
