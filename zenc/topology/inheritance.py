"""Inheritance: ``like``, the builder, topology or file that a topology starts from."""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from zenc.errors import TopologyError
from zenc.language import terms, topology_syntax
from zenc.language.terms import Name
from zenc.scheme.arguments import Environment, bind_parameters, constant, constant_integer
from zenc.scheme.collector import Collector, listed
from zenc.scheme.scope import Checker
from zenc.scheme.units import Kind, amount
from zenc.topology.builder import TopologyBuilder
from zenc.topology.importers import IMPORT_OPTIONS, import_into
from zenc.topology.shapes import BUILDERS, described
from zenc.wording import count, did_you_mean

Value = int | float


@dataclass
class Heir(ABC):
    """A topology that is being declared, and may start like another one.

    ``chain`` holds the names of the topologies that are being declared, the one that was asked for first.
    """

    draft: TopologyBuilder
    report: Collector
    known: Mapping[str, topology_syntax.TopologySyntax]
    environment: Environment
    chain: tuple[str, ...]
    alone: bool = False
    """True where the declaration that is carried out is the only one of its topology."""
    count: int = 0
    """The number of declarations that were carried out."""

    @abstractmethod
    def declare(self, body: topology_syntax.Declarations) -> None:
        """Carry out ``body``. What is wrong is in the report; raises TopologyError where going on makes no sense."""


def start_like(like: topology_syntax.Like, heir: Heir) -> None:
    """Fill the draft of ``heir``, which must be empty so far."""
    if heir.draft.nodes:
        help = "a topology starts like one other, and then adds to it or takes from it"
        heir.report.error("late-like", "'like' stands before what else is declared", like.span, help=help)
        return
    name = like.what.text
    others = {other: topology for other, topology in heir.known.items() if other not in heir.chain}
    if like.is_file:
        _like_file(like, heir)
    elif name in others:
        _like_topology(like, others[name], heir)
    elif name in BUILDERS:
        _like_builder(like, heir)
    elif name in heir.chain:
        chain = " -> ".join((*heir.chain, name))
        heir.report.error("like-cycle", f"topology '{name}' would start like itself: {chain}", like.what.span)
    else:
        choices = [*BUILDERS, *others]
        message = f"unknown topology '{name}'; one of {listed(choices)}{did_you_mean(name, choices)}"
        heir.report.error("unknown-builder", message, like.what.span)


def _like_topology(like: topology_syntax.Like, other: topology_syntax.TopologySyntax, heir: Heir) -> None:
    names = [parameter.name.text for parameter in other.parameters]
    matched = _matched(like, names, names, heir)
    given: dict[str, int | float | str] = {}
    for name, setting in matched.items():
        if isinstance(setting.value, terms.Quantity):
            heir.report.error("wrong-type", f"'{name}' is a plain number, without a unit", setting.span)
        elif (value := constant(setting.value, heir.environment, heir.report)) is not None:
            given[name] = value
    if heir.report.failed:
        return
    Checker((), heir.report).check_topology(other)
    environment = bind_parameters(other, given, heir.report)
    if not heir.report.failed:
        chain = (*heir.chain, other.name.text)
        inner = replace(heir, environment=environment, chain=chain)
        inner.declare(other.body)
        heir.count = inner.count


def _like_builder(like: topology_syntax.Like, heir: Heir) -> None:
    fill = BUILDERS[like.what.text]
    parameters = list(inspect.signature(fill).parameters.values())[1:]
    many = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    placed = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    sides: list[int | None] = []
    if many:
        sides = [_integer(setting, heir) for setting in like.settings if setting.name is None]
        like = replace(like, settings=tuple(setting for setting in like.settings if setting.name is not None))
    matched = _matched(like, [p.name for p in parameters if p.name != many], placed, heir)
    values = {name: _value(name, setting, heir) for name, setting in matched.items()}
    missing = [name for name in placed if name not in matched]
    if missing:
        message = f"'{like.what.text}' needs {' and '.join(missing)}"
        heir.report.error("wrong-arguments", message, like.span, help=f"write {like.what.text}({missing[0]} = 2)")
    if missing or heir.report.failed:
        return
    own, heir.draft.span = heir.draft.span, like.span
    own_words = described(fill, *sides, **values) if heir.alone else f"Starts like {like.what.text}."
    heir.draft.doc = heir.draft.doc or own_words
    fill(heir.draft, *sides, **values)
    heir.draft.span = own


def _like_file(like: topology_syntax.Like, heir: Heir) -> None:
    matched = _matched(like, list(IMPORT_OPTIONS), [], heir)
    options = {name: _value(name, setting, heir) for name, setting in matched.items()}
    if heir.report.failed:
        return
    paths = [_beside(name) for name in (like.what, *like.more)]
    try:
        import_into(heir.draft, paths, options, like.what.span)
    except TopologyError as error:
        raise TopologyError([*heir.report.found, *error.diagnostics]) from error


def _beside(name: Name) -> Path:
    """The file that ``name`` is the path of: beside the text that names it, or as it is."""
    path = (Path(name.span.source.name).parent if name.span else Path()) / name.text
    return path if os.path.exists(path) else Path(name.text)  # unlike Path.exists, False for a path that can't be


def _matched(like: topology_syntax.Like, names: list[str], placed: list[str], heir: Heir) -> dict[str, terms.Setting]:
    """Name -> setting. What does not fit is reported and left out."""
    matched: dict[str, terms.Setting] = {}
    for place, setting in enumerate(like.settings):
        if setting.name is not None and setting.name.text not in names:
            known = f"; one of {listed(names)}" if names else ""
            message = f"'{like.what.text}' takes no '{setting.name.text}'{known}"
            message += did_you_mean(setting.name.text, names)
            heir.report.error("wrong-arguments", message, setting.name.span)
            continue
        if setting.name is None and place >= len(placed):
            values = count(len(placed), "value")
            message = f"'{like.what.text}' takes {values} without a name, and this is number {place + 1}"
            heir.report.error("wrong-arguments", message, setting.span)
            continue
        name = setting.name.text if setting.name else placed[place]
        if name in matched:
            heir.report.error("wrong-arguments", f"'{like.what.text}' is given '{name}' twice", setting.span)
        matched[name] = setting
    return matched


def kind_of(name: str) -> Kind | None:
    """The kind of quantity of the parameter ``name`` of a builder or an importer; None for a count."""
    for kind in ("bandwidth", "latency", "memory"):
        if name == kind or name.endswith(f"_{kind}"):
            return kind
    return None


def _value(name: str, setting: terms.Setting, heir: Heir) -> Value | None:
    kind = kind_of(name)
    if kind is None:
        return _integer(setting, heir)
    if isinstance(setting.value, terms.Quantity):
        value = amount(kind, setting.value, heir.environment, heir.report)
        if kind != "memory" or value is None:
            return value
        if 1 <= value < 2**62:
            return int(value)
        heir.report.error("wrong-range", f"a memory of {value:g} bytes", setting.span)
        return None
    heir.report.error("unknown-unit", f"'{name}' is a {kind}, and needs a unit", setting.span)
    return None


def _integer(setting: terms.Setting, heir: Heir) -> int | None:
    if isinstance(setting.value, terms.Quantity):
        heir.report.error("wrong-type", "this is a count, and has no unit", setting.span)
        return None
    return constant_integer(setting.value, heir.environment, heir.report)
