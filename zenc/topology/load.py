"""Loading of topologies: a file, one of several in a file, a shipped one or a builder, by the user's text.

A text is resolved: which of its topologies is meant, with which values of its parameters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from zenc.common.arguments import names_wrong_types
from zenc.common.resources import directory
from zenc.errors import Diagnostic, Source, Span, TopologyError, ZencError
from zenc.language import topology_syntax
from zenc.language.files import SourceFiles, load_file, load_text
from zenc.scheme.arguments import bind_parameters
from zenc.scheme.collector import Collector, Kind, take
from zenc.scheme.scope import Checker
from zenc.scheme.units import amount_of_text
from zenc.topology.builder import TopologyBuilder
from zenc.topology.elaborate import Declarer, kind_of
from zenc.topology.importers import IMPORT_OPTIONS, import_into, is_topology_text, read_bytes
from zenc.topology.model import Topology
from zenc.topology.shapes import BUILDERS

_BEFORE, _BEHIND = "topology given { like ", " }"
"""Text around a call that makes it a text of the language."""
_FOUND = ", found '}'"
"""End of the message about a text that is cut short before ``_BEHIND``."""


def _split_given(text: str) -> tuple[str, str] | None:
    """Split ``box.txt(nodes = 4)`` into ``box.txt`` and ``(nodes = 4)``; None where no arguments stand at the end."""
    start = text.find("(")
    if start < 1 or text[0].isspace() or not text.rstrip().endswith(")"):
        return None
    return text[:start].rstrip(), text[start:].rstrip()


def _values_of(what: str, arguments: str) -> dict[str, str]:
    """Return the values, as they are written, in the parentheses after ``what``, by name.

    Raises SchemeSyntaxError where that does not parse, and TopologyError (``wrong-arguments``) for a value without a
    name, or two of one name.
    """
    with _as_written(f"{what}{arguments}", "<topology>", len(f"{_BEFORE}given") - len(what)):
        return _values(what, load_text(f"{_BEFORE}given{arguments}{_BEHIND}", "<topology>"))


@contextmanager
def _as_written(text: str, name: str, before: int) -> Iterator[None]:
    """Raise errors of the source ``name``, in which ``before`` characters precede ``text``, as errors of ``text``."""
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
        assert setting.span is not None
        written = setting.span.source.text[setting.span.start : setting.span.end]
        values[name] = written.partition("=")[2].strip()
    return values


def resolve_topology(
    program: SourceFiles, name: str | None = None, parameters: Mapping[str, int | float | str] | None = None
) -> tuple[Topology, tuple[Diagnostic, ...]]:
    """Return the topology of ``program``, and warnings about it.

    Args:
        program: the program as ``zenc.language.files`` read it.
        name: the name of the topology, needed where the file has several.
        parameters: values for parameters of the topology, also as strings (``"7"``, ``"2.5"``).

    Raises:
        TopologyError: with all problems found.
    """
    chosen = take(TOPOLOGY, program, name)
    draft = TopologyBuilder(chosen.name.text, chosen.doc or "", chosen.name.span)
    report = Collector(draft.problems)
    report.twins("topology", ((one.name.text, one.name.span) for one in program.main.topologies))
    Checker((), report).check_topology(chosen)
    environment = bind_parameters(chosen, parameters or {}, report)
    if not report.failed:
        Declarer(draft, report, TOPOLOGY.known(program), environment, (chosen.name.text,)).declare(chosen.body)
    return draft.finish(), tuple(found for found in draft.problems if found.severity == "warning")


TOPOLOGY: Kind[topology_syntax.TopologySyntax] = Kind(
    "several-topologies",
    "no-topology",
    "topology",
    "topologies",
    lambda file: file.topologies,
    "{1}:{0}",
    "write topology NAME { ... }",
    "unknown-topology",
    TopologyError,
)

Values = Mapping[str, "int | float | str"]

_BUILDER = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\(")
_NAMED = re.compile(r"(.+):([A-Za-z_][A-Za-z0-9_]*)", re.DOTALL)


@names_wrong_types
def load_topology(what: str | os.PathLike[str], values: Values | None = None) -> Topology:
    """Return the topology that ``what`` means.

    Args:
        what: the path of a text of the language, of NCCL's XML, of the output of ``nvidia-smi topo -m``, of node-link
            JSON or of GraphML; ``FILE:NAME`` where a text has several; the name of a shipped topology; any of these
            with values, such as ``box.txt(nodes = 4)``; a builder, such as ``nodes(4, gpus = 8)``; or a text itself.
        values: for a text, values of the topology's parameters; for NCCL's XML and nvidia-smi, the import options
            (``nodes``, ``network_bandwidth``, ...). Strings are read as in the language: ``"4"``, ``"100 Gbit/s"``.

    Raises:
        SchemeSyntaxError, SchemeError: a text does not parse, or an import is not found.
        TopologyError: with all problems of the topology.
    """
    return load_with_warnings(what, values)[0]


def load_with_warnings(
    what: str | os.PathLike[str], values: Values | None = None
) -> tuple[Topology, tuple[Diagnostic, ...]]:
    """Return the topology as ``load_topology`` does, and warnings about the text."""
    text = os.fspath(what)
    path, name = _file(text)
    if path is None and (found := _split_given(text)) and (at := _file(found[0]))[0] and found[0] not in BUILDERS:
        (path, name), values = at, {**_values_of(*found), **(values or {})}
    if path is not None:
        return _from_file(path, name, values or {})
    if "{" in text:
        return resolve_topology(load_text(text), None, values)
    if _BUILDER.match(text):
        return _from_builder(text, values or {})
    message = f"there is no topology {text[:80]!r}: no such file, and no builder"
    help = f"shipped are {', '.join(names()) or 'none'}; a builder is written with its arguments: nodes(4, gpus = 8)"
    raise TopologyError(Diagnostic("unknown-topology", message, help=help))


def names() -> list[str]:
    """Return the topologies that come with zenc, by the names of their files."""
    return sorted(path.stem for path in (directory("schemes") / "topologies").glob("*.zen"))


def _file(text: str) -> tuple[Path | None, str | None]:
    """Return the file that ``text`` means, and the name of a topology in it."""
    if (path := _existing(text)) is not None:
        return path, None
    named = _NAMED.fullmatch(text)
    return (_existing(named[1]), named[2]) if named else (None, None)


def _existing(text: str) -> Path | None:
    if os.path.exists(text):
        return Path(text)
    shipped = directory("schemes") / "topologies" / f"{text}.zen"
    return shipped if re.fullmatch(r"\w+", text) and os.path.isfile(shipped) else None


def _from_file(path: Path, name: str | None, values: Values) -> tuple[Topology, tuple[Diagnostic, ...]]:
    if path.suffix == ".zen" or is_topology_text(read_bytes(path)):
        return resolve_topology(load_file(path), name, values)
    if name is not None:
        message = f"{path} holds one topology, so none can be chosen by the name '{name}'"
        raise TopologyError(Diagnostic("unknown-topology", message))
    draft = TopologyBuilder(path.stem)
    import_into(draft, [path], _options(values))
    return draft.finish(), tuple(draft.problems)


def _options(values: Values) -> dict[str, int | float | None]:
    options: dict[str, int | float | None] = {}
    for name, value in values.items():
        if name not in IMPORT_OPTIONS:
            message = f"an imported topology has no '{name}'; one of {', '.join(IMPORT_OPTIONS)}"
            raise TopologyError(Diagnostic("unknown-parameter", message))
        options[name] = _option(name, value)
    return options


def _option(name: str, value: int | float | str) -> int | float:
    kind = kind_of(name)
    if kind is None:
        if not re.fullmatch(r"\s*[0-9]{1,9}\s*", str(value)):
            raise TopologyError(Diagnostic("wrong-type", f"'{name}' is a count, not {str(value)[:40]!r}"))
        return int(value)
    amount = amount_of_text(kind, value) if isinstance(value, str) else value
    if isinstance(amount, str):
        raise TopologyError(Diagnostic("unknown-unit", amount))
    return amount


def _from_builder(text: str, values: Values) -> tuple[Topology, tuple[Diagnostic, ...]]:
    if values:
        message = f"a builder takes its values as arguments, and has no parameter '{next(iter(values))}'"
        raise TopologyError(Diagnostic("unknown-parameter", message))
    call = text.strip()
    with _as_written(call, "<builder>", len(_BEFORE)):
        topology, warnings = resolve_topology(load_text(f"{_BEFORE}{call}{_BEHIND}", "<builder>"))
    return replace(topology, name=" ".join(text.split())), warnings
