"""Loading of topologies: a file, one of several in a file, a shipped one or a builder, by what the user wrote."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from zenc.errors import Diagnostic, TopologyError
from zenc.language.files import load_file, load_text
from zenc.resources import directory
from zenc.topology.builder import TopologyBuilder
from zenc.topology.importers import IMPORT_OPTIONS, import_into, is_topology_text, read_bytes
from zenc.topology.inheritance import kind_of
from zenc.topology.inline_args import as_builder_call, builder_program, split_given, values_of
from zenc.topology.model import Topology
from zenc.topology.resolve import resolve_topology
from zenc.topology.shapes import BUILDERS
from zenc.topology.units import amount_of_text

Values = Mapping[str, "int | float | str"]

_BUILDER = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\(")
_NAMED = re.compile(r"(.+):([A-Za-z_][A-Za-z0-9_]*)", re.DOTALL)


def load_topology(what: str | os.PathLike[str], values: Values | None = None) -> Topology:
    """The topology that ``what`` means.

    Args:
        what: the path of a text of the language, of NCCL's XML, of the output of ``nvidia-smi topo -m``, of node-link
            JSON or of GraphML; ``FILE:NAME`` where a text has several; the name of a shipped topology; any of these
            with values, such as ``box.txt(nodes = 4)``; a builder, such as ``nodes(4, gpus = 8)``; or a text itself.
        values: for a text, values of the topology's parameters; for NCCL's XML and nvidia-smi, the import options
            (``nodes``, ``network_bandwidth``, ...). Strings are read as in the language: ``"4"``, ``"100 Gbit/s"``.

    Raises:
        SchemeSyntaxError, SchemeError: a text does not parse, or imports what is not there.
        TopologyError: with all that is wrong with the topology.
    """
    return load_with_warnings(what, values)[0]


def load_with_warnings(
    what: str | os.PathLike[str], values: Values | None = None
) -> tuple[Topology, tuple[Diagnostic, ...]]:
    """``load_topology``, and warnings about the text."""
    text = os.fspath(what)
    path, name = _file(text)
    if path is None and (found := split_given(text)) and (at := _file(found[0]))[0] and found[0] not in BUILDERS:
        (path, name), values = at, {**values_of(*found), **(values or {})}
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
    """The topologies that come with zenc, by the names of their files."""
    return sorted(path.stem for path in (directory("schemes") / "topologies").glob("*.zen"))


def _file(text: str) -> tuple[Path | None, str | None]:
    """The file that ``text`` means, and the name of a topology in it."""
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
    """The import options that ``values`` are, as numbers."""
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
    with as_builder_call(call := text.strip()):
        topology, warnings = resolve_topology(builder_program(call))
    return replace(topology, name=" ".join(text.split())), warnings
