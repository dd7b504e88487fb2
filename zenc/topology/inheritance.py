"""Inheritance: ``like``, the builder, topology or file that a topology starts from."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from zenc.errors import TopologyError
from zenc.language import terms, topology_syntax
from zenc.language.terms import Name
from zenc.scheme.arguments import bind_parameters, constant, constant_integer
from zenc.scheme.collector import listed
from zenc.scheme.scope import Checker
from zenc.scheme.units import Kind, amount
from zenc.topology.importers import IMPORT_OPTIONS, import_into
from zenc.topology.shapes import BUILDERS, described
from zenc.wording import count, did_you_mean

if TYPE_CHECKING:
    from zenc.topology.elaborate import Declarer

Value = int | float


def start_like(like: topology_syntax.Like, declarer: Declarer) -> None:
    """Fill the draft of ``declarer``, which must be empty so far."""
    if declarer.draft.nodes:
        help = "a topology starts like one other, and then adds to it or takes from it"
        declarer.report.error("late-like", "'like' stands before what else is declared", like.span, help=help)
        return
    name = like.what.text
    others = {other: topology for other, topology in declarer.known.items() if other not in declarer.chain}
    if like.is_file:
        _like_file(like, declarer)
    elif name in others:
        _like_topology(like, others[name], declarer)
    elif name in BUILDERS:
        _like_builder(like, declarer)
    elif name in declarer.chain:
        chain = " -> ".join((*declarer.chain, name))
        declarer.report.error("like-cycle", f"topology '{name}' would start like itself: {chain}", like.what.span)
    else:
        choices = [*BUILDERS, *others]
        message = f"unknown topology '{name}'; one of {listed(choices)}{did_you_mean(name, choices)}"
        declarer.report.error("unknown-builder", message, like.what.span)


def _like_topology(like: topology_syntax.Like, other: topology_syntax.TopologySyntax, declarer: Declarer) -> None:
    names = [parameter.name.text for parameter in other.parameters]
    matched = _matched(like, names, names, declarer)
    given: dict[str, int | float | str] = {}
    for name, setting in matched.items():
        if isinstance(setting.value, terms.Quantity):
            declarer.report.error("wrong-type", f"'{name}' is a plain number, without a unit", setting.span)
        elif (value := constant(setting.value, declarer.environment, declarer.report)) is not None:
            given[name] = value
    if declarer.report.failed:
        return
    Checker((), declarer.report).check_topology(other)
    environment = bind_parameters(other, given, declarer.report)
    if not declarer.report.failed:
        chain = (*declarer.chain, other.name.text)
        inner = replace(declarer, environment=environment, chain=chain)
        inner.declare(other.body)
        declarer.count = inner.count


def _like_builder(like: topology_syntax.Like, declarer: Declarer) -> None:
    fill = BUILDERS[like.what.text]
    parameters = list(inspect.signature(fill).parameters.values())[1:]
    many = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    placed = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    sides: list[int | None] = []
    if many:
        sides = [_integer(setting, declarer) for setting in like.settings if setting.name is None]
        like = replace(like, settings=tuple(setting for setting in like.settings if setting.name is not None))
    matched = _matched(like, [p.name for p in parameters if p.name != many], placed, declarer)
    values = {name: _value(name, setting, declarer) for name, setting in matched.items()}
    missing = [name for name in placed if name not in matched]
    if missing:
        message = f"'{like.what.text}' needs {' and '.join(missing)}"
        declarer.report.error("wrong-arguments", message, like.span, help=f"write {like.what.text}({missing[0]} = 2)")
    if missing or declarer.report.failed:
        return
    own, declarer.draft.span = declarer.draft.span, like.span
    own_words = described(fill, *sides, **values) if declarer.alone else f"Starts like {like.what.text}."
    declarer.draft.doc = declarer.draft.doc or own_words
    fill(declarer.draft, *sides, **values)
    declarer.draft.span = own


def _like_file(like: topology_syntax.Like, declarer: Declarer) -> None:
    matched = _matched(like, list(IMPORT_OPTIONS), [], declarer)
    options = {name: _value(name, setting, declarer) for name, setting in matched.items()}
    if declarer.report.failed:
        return
    paths = [_beside(name) for name in (like.what, *like.more)]
    try:
        import_into(declarer.draft, paths, options, like.what.span)
    except TopologyError as error:
        raise TopologyError([*declarer.report.found, *error.diagnostics]) from error


def _beside(name: Name) -> Path:
    """Return the file at the path ``name``: beside the text that names it, or as it is."""
    path = (Path(name.span.source.name).parent if name.span else Path()) / name.text
    return path if os.path.exists(path) else Path(name.text)  # unlike Path.exists, False for a path that can't be


def _matched(
    like: topology_syntax.Like, names: list[str], placed: list[str], declarer: Declarer
) -> dict[str, terms.Setting]:
    """Return the settings by name; report and leave out those that do not fit."""
    matched: dict[str, terms.Setting] = {}
    for place, setting in enumerate(like.settings):
        if setting.name is not None and setting.name.text not in names:
            known = f"; one of {listed(names)}" if names else ""
            message = f"'{like.what.text}' takes no '{setting.name.text}'{known}"
            message += did_you_mean(setting.name.text, names)
            declarer.report.error("wrong-arguments", message, setting.name.span)
            continue
        if setting.name is None and place >= len(placed):
            values = count(len(placed), "value")
            message = f"'{like.what.text}' takes {values} without a name, and this is number {place + 1}"
            declarer.report.error("wrong-arguments", message, setting.span)
            continue
        name = setting.name.text if setting.name else placed[place]
        if name in matched:
            declarer.report.error("wrong-arguments", f"'{like.what.text}' is given '{name}' twice", setting.span)
        matched[name] = setting
    return matched


def kind_of(name: str) -> Kind | None:
    """Return the kind of quantity of the parameter ``name`` of a builder or an importer; None for a count."""
    for kind in ("bandwidth", "latency", "memory"):
        if name == kind or name.endswith(f"_{kind}"):
            return kind
    return None


def _value(name: str, setting: terms.Setting, declarer: Declarer) -> Value | None:
    kind = kind_of(name)
    if kind is None:
        return _integer(setting, declarer)
    if isinstance(setting.value, terms.Quantity):
        value = amount(kind, setting.value, declarer.environment, declarer.report)
        if kind != "memory" or value is None:
            return value
        if 1 <= value < 2**62:
            return int(value)
        declarer.report.error("wrong-range", f"a memory of {value:g} bytes", setting.span)
        return None
    declarer.report.error("unknown-unit", f"'{name}' is a {kind}, and needs a unit", setting.span)
    return None


def _integer(setting: terms.Setting, declarer: Declarer) -> int | None:
    if isinstance(setting.value, terms.Quantity):
        declarer.report.error("wrong-type", "this is a count, and has no unit", setting.span)
        return None
    return constant_integer(setting.value, declarer.environment, declarer.report)
