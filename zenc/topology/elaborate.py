"""Elaboration: the declarations of a text, carried out one after another on a draft."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from zenc.errors import Diagnostic, Span, TopologyError, raise_if_any
from zenc.language import topology_syntax
from zenc.language.parse import DEEPEST
from zenc.language.schedule import Expression, Let, Require
from zenc.scheme.arguments import constant_integer
from zenc.scheme.collector import listed
from zenc.scheme.units import amount
from zenc.topology.builder import label_of
from zenc.topology.inheritance import Heir, start_like
from zenc.topology.model import Node
from zenc.wording import did_you_mean

_MOST_DECLARED = 1 << 20
_MOST_PROBLEMS = 10


@dataclass
class Declarer(Heir):
    """The declarations of one topology, carried out."""

    depth: int = 0
    """The number of open blocks, those counted in which a topology starts like this one."""
    _looked_at: int = 0
    """The number of problems that are known to be no reason to stop."""

    def declare(self, body: topology_syntax.Declarations) -> None:
        """As ``Heir.declare``."""
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
        """The node that ``place`` names; None, and a diagnostic, where there is none."""
        indices = self._indices(place)
        if indices is None:
            return None
        node = self.draft.find(place.name.text, indices)
        if isinstance(node, Diagnostic):
            self.report.found.append(Diagnostic(node.id, node.message, place.span, node.notes, node.help))
            return None
        return node
