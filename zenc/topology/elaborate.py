"""Elaboration: the declarations of a text, carried out one after another on a draft.

The first may be ``like``: the builder, topology or file that a topology starts from.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from zenc.common.wording import count, did_you_mean
from zenc.errors import Diagnostic, Span, TopologyError, raise_if_any
from zenc.language import terms, topology_syntax
from zenc.language.parse import DEEPEST
from zenc.language.schedule import Expression, Let, Require
from zenc.language.terms import Name
from zenc.scheme.arguments import Environment, bind_parameters, constant, constant_integer
from zenc.scheme.collector import Collector, listed
from zenc.scheme.scope import Checker
from zenc.scheme.units import Kind, amount
from zenc.topology.builder import TopologyBuilder, label_of
from zenc.topology.importers import IMPORT_OPTIONS, import_into
from zenc.topology.model import Node
from zenc.topology.shapes import BUILDERS, described

Value = int | float
_MOST_DECLARED = 1 << 20
_MOST_PROBLEMS = 10


@dataclass
class Declarer:
    """The declarer of topologies; ``chain`` holds the names of those being declared, the one asked for first."""

    draft: TopologyBuilder
    report: Collector
    known: Mapping[str, topology_syntax.TopologySyntax]
    environment: Environment
    chain: tuple[str, ...]
    alone: bool = False
    """True where the current declaration is the only one of its topology."""
    count: int = 0
    """The number of declarations carried out."""
    depth: int = 0
    """The number of open blocks, together with those in which a topology starts like this one."""
    _looked_at: int = 0
    """The number of problems known to be no reason to stop."""

    def declare(self, body: topology_syntax.Declarations) -> None:
        """Carry out ``body``; problems are reported. Raises TopologyError where going on makes no sense."""
        mine: list[str] = []
        self._ensure_shallow(body)
        self.alone = len(body) == 1
        for declaration in body:
            self._ensure_an_end(declaration.span)
            if isinstance(declaration, Let):
                mine.append(declaration.name)
            self._one(declaration)
        for name in mine:
            self.environment.values.pop(name, None)
        self.depth -= 1

    def _ensure_shallow(self, body: topology_syntax.Declarations) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            message = f"topologies that start like each other nest at most {DEEPEST} levels, blocks counted"
            help = "start like the one that the last of them starts like"
            raise TopologyError(Diagnostic("nesting", message, body[0].span if body else None, help=help))

    def _ensure_an_end(self, span: Span | None) -> None:
        self.count += 1
        if self.count > _MOST_DECLARED:
            message = "this topology is too large: its loops come to more than a million declarations"
            raise TopologyError(Diagnostic("topology-too-large", message, span))
        if len(self.report.found) >= self._looked_at + _MOST_PROBLEMS:
            raise_if_any(TopologyError, list(dict.fromkeys(self.report.found)))
            self._looked_at = len(self.report.found)

    def _one(self, declaration: topology_syntax.Declaration) -> None:
        match declaration:
            case Let(name, value):
                self.environment.values[name] = self._integer(value)
            case Require(condition, message):
                if self._integer(condition) == 0:
                    message = message or "what this topology requires does not hold"
                    self.report.error("unmet-requirement", message, condition.span)
            case topology_syntax.ForEach():
                self._for_each(declaration)
            case topology_syntax.When(condition, then, otherwise):
                holds = self._integer(condition)
                if holds is not None:
                    self.declare(then if holds else otherwise)
            case _:
                self._change(declaration)

    def _change(self, declaration: topology_syntax.Like | topology_syntax.Change) -> None:
        match declaration:
            case topology_syntax.Like():
                start_like(declaration, self)
            case topology_syntax.Levels():
                self._levels(declaration)
            case topology_syntax.SwitchOf(place):
                self._switch(place)
            case topology_syntax.LinkOf():
                self._link(declaration)
            case topology_syntax.Unlink():
                self._unlink(declaration)
            case topology_syntax.MemoryOf():
                self._memory(declaration)

    def _integer(self, value: Expression) -> int | None:
        return constant_integer(value, self.environment, self.report)

    def _for_each(self, loop: topology_syntax.ForEach) -> None:
        first, last = self._integer(loop.first), self._integer(loop.last)
        if first is None or last is None:
            return
        for value in range(first, last + 1):
            self.environment.values[loop.variable] = value
            self._ensure_an_end(loop.span)
            self.declare(loop.body)
        self.environment.values.pop(loop.variable, None)

    def _levels(self, levels: topology_syntax.Levels) -> None:
        if self.draft.levels:
            names = ", ".join(level.name for level in self.draft.levels)
            help = "all levels stand in one list: levels: node(2), gpu(8)"
            self.report.error("duplicate-key", f"the levels are there already: {names}", levels.span, help=help)
            return
        counted: dict[str, int] = {}
        for level in levels.levels:
            count = self._integer(level.count)
            if level.name.text in counted:
                self.report.error("duplicate-name", f"there is another level '{level.name.text}'", level.name.span)
            elif count is not None and count < 1:
                self.report.error("wrong-range", f"a level has at least 1 place, not {count}", level.count.span)
            elif count is not None:
                counted[level.name.text] = count
        if len(counted) < len(levels.levels):  # nothing that follows would mean anything
            raise_if_any(TopologyError, self.report.found)
        switches = set(self.draft.nodes)
        self.draft.set_levels(*counted.items(), span=levels.span)
        for rank in range(prod(counted.values()) if switches else 0):
            if self.draft.label(rank) in switches:
                self._report_twin(self.draft.label(rank), levels.span)

    def _switch(self, place: topology_syntax.PlaceSyntax) -> None:
        indices = self._indices(place)
        if indices is None:
            return
        label = label_of(place.name.text, indices)
        if place.name.text in (level.name for level in self.draft.levels):
            message = f"'{place.name.text}' is a level"
            self.report.error("duplicate-node", message, place.span, help="give the switch another name")
        elif label in self.draft.nodes:
            self._report_twin(label, place.span)
        else:
            self.draft.add_switch(label, span=place.span)

    def _report_twin(self, label: str, span: Span | None) -> None:
        other = self.draft.nodes[label].get("span")
        notes = (f"the other one: {other}",) if other else ()
        self.report.error("duplicate-node", f"there is another '{label}'", span, notes=notes)

    def _link(self, link: topology_syntax.LinkOf) -> None:
        ends = self._node(link.source), self._node(link.target)
        bandwidth = amount("bandwidth", link.bandwidth, self.environment, self.report)
        latency = 0.0 if link.latency is None else amount("latency", link.latency, self.environment, self.report)
        if None not in ends and bandwidth is not None and latency is not None:
            source, target = ends
            assert source is not None and target is not None
            self.draft.connect(source, target, bandwidth, latency, one_way=link.one_way, span=link.span)

    def _unlink(self, unlink: topology_syntax.Unlink) -> None:
        source, target = self._node(unlink.source), self._node(unlink.target)
        if source is None or target is None:
            return
        ways = [(source, target)] if unlink.one_way else [(source, target), (target, source)]
        if not any(way in self.draft.links for way in ways):
            sign = "->" if unlink.one_way else "-"
            others = [self.draft.label(target) for end, target in self.draft.links if end == source]
            shown = ", ".join(others[:8]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
            note = f"{self.draft.label(source)} is linked to {shown or 'nothing'}"
            message = f"there is no link {self.draft.label(source)} {sign} {self.draft.label(target)}"
            self.report.error("no-such-link", message, unlink.span, notes=(note,))
        self.draft.disconnect(ways)

    def _memory(self, memory: topology_syntax.MemoryOf) -> None:
        size = amount("memory", memory.size, self.environment, self.report)
        indices = self._indices(memory.place)
        if size is None or indices is None:
            return
        names = [level.name for level in self.draft.levels]
        name = memory.place.name.text
        if not 1 <= size < 2**62:
            self.report.error("wrong-range", f"a memory of {size:g} bytes", memory.size.span)
        elif name not in names:
            message = f"'{name}' is no level, and only levels have memory{did_you_mean(name, names)}"
            notes = (f"levels: {listed(names) or 'none so far'}",)
            self.report.error("no-such-node", message, memory.place.span, notes=notes)
        elif problem := self.draft.set_memory(names.index(name), indices, int(size)):
            self.report.error("no-such-node", problem, memory.place.span)

    # Places

    def _indices(self, place: topology_syntax.PlaceSyntax) -> tuple[int, ...] | None:
        found = [self._integer(index) for index in place.indices]
        return None if None in found else tuple(index for index in found if index is not None)

    def _node(self, place: topology_syntax.PlaceSyntax) -> Node | None:
        indices = self._indices(place)
        if indices is None:
            return None
        node = self.draft.find(place.name.text, indices)
        if isinstance(node, Diagnostic):
            self.report.found.append(Diagnostic(node.id, node.message, place.span, node.notes, node.help))
            return None
        return node


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
    """Return the file that ``name`` is the path of: beside the text that names it, or as it is."""
    path = (Path(name.span.source.name).parent if name.span else Path()) / name.text
    return path if os.path.exists(path) else Path(name.text)  # unlike Path.exists, False for a path that can't be


def _matched(
    like: topology_syntax.Like, names: list[str], placed: list[str], declarer: Declarer
) -> dict[str, terms.Setting]:
    """Name -> setting. What does not fit is reported and left out."""
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
