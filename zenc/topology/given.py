"""``WHAT(NAME = VALUE, ...)``: arguments after the path or the name of a topology, as on a command line."""

from __future__ import annotations

from zenc.errors import Diagnostic, TopologyError
from zenc.language import cluster
from zenc.language.load import load_text


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
    program = load_text(f"topology given {{ like given {arguments} }}", f"<arguments of {what}>")
    (like,) = program.main.topologies[0].body
    assert isinstance(like, cluster.Like)
    values: dict[str, str] = {}
    for setting in like.settings:
        name = setting.name.text if setting.name else ""
        if not name or name in values:
            wrong = f"is given '{name}' twice" if name else "takes values with their names"
            help = f"write {what}(NAME = VALUE)"
            raise TopologyError(Diagnostic("wrong-arguments", f"{what} {wrong}", setting.span, help=help))
        values[name] = _written(setting)
    return values


def _written(setting: cluster.Setting) -> str:
    """The text of the value alone."""
    assert setting.span is not None
    text = setting.span.source.text[setting.span.start : setting.span.end]
    return text.partition("=")[2].strip()
