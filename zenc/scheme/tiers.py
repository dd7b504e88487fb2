"""The tiers of a scheme -> their schemes, resolved; and what all of them share.

A tier names a scheme of this file, of an imported one, or one that comes with zenc, and may give it arguments. A tier
whose scheme has tiers itself stands for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

from zenc.language import syntax
from zenc.language.load import Program, shipped_names
from zenc.scheme import model
from zenc.scheme.arguments import match_arguments
from zenc.scheme.constants import Environment, constant, constant_integer
from zenc.scheme.report import Report, did_you_mean, listed, unknown

T = TypeVar("T")

MOST_MEMBERS = 1 << 16
MOST_TIERS = 8
"""Those that tiers stand for included. No cluster has as many levels."""
DEEPEST = 4
"""Schemes of which each is a tier of the one before."""

Chain: TypeAlias = tuple[syntax.Scheme, ...]
"""The schemes that are being resolved, each a tier of the one before."""
Known: TypeAlias = dict[str, tuple[Program, syntax.Scheme]]
Levels: TypeAlias = Mapping[str, int]
"""The ranks in one unit of a level: those of a node, of a rack."""
Given: TypeAlias = Mapping[str, int | float | str]
Resolve: TypeAlias = Callable[[Program, Chain, Given, Levels, Report], model.Scheme | None]


class Resolved(NamedTuple):
    """A tier of the text, its scheme, and the tiers that it stands for."""

    named: syntax.Tier
    scheme: model.Scheme
    tiers: tuple[model.Tier, ...]


@dataclass
class TierResolver:
    """Resolves the tiers of the last scheme of ``chain``, each by ``resolve``."""

    program: Program
    chain: Chain
    environment: Environment
    levels: Levels
    report: Report
    resolve: Resolve

    def resolved(self) -> list[Resolved]:
        """Each tier with its scheme, as far as they can be told; what can't be is in the report."""
        tiers = self.chain[-1].tiers
        self._report_twins(tiers)
        known, inner, found = schemes_of(self.program), 1, list[Resolved]()
        for tier in tiers[:MOST_TIERS]:
            levels = {name: ranks // inner for name, ranks in self.levels.items() if ranks % inner == 0}
            size = self._size(tier, levels, outermost=tier is tiers[-1])
            scheme = self._scheme(tier, known, levels)
            if scheme is not None:
                found.append(Resolved(tier, scheme, tuple(self._opened(tier, scheme, size))))
            inner *= size or 1
        self._demand_few(tiers, sum(len(resolved.tiers) for resolved in found))
        return found

    def _demand_few(self, tiers: Sequence[syntax.Tier], opened: int) -> None:
        if len(tiers) > MOST_TIERS or opened > MOST_TIERS:
            span = tiers[min(len(tiers) - 1, MOST_TIERS)].name.span
            self.report.error("wrong-range", f"a scheme has at most {MOST_TIERS} tiers, with those of its tiers", span)

    def _report_twins(self, tiers: Sequence[syntax.Tier]) -> None:
        first: dict[str, syntax.Tier] = {}
        for tier in tiers:
            other = first.setdefault(tier.name.text, tier)
            if other is not tier:
                notes = (f"the other one: {other.name.span}",)
                message = f"there is another tier '{tier.name.text}'"
                self.report.error("duplicate-name", message, tier.name.span, notes=notes)

    def _scheme(self, tier: syntax.Tier, known: Known, levels: Levels) -> model.Scheme | None:
        word = tier.scheme
        if word.name.text not in known:
            names = sorted({*known, *shipped_names()})
            self.report.error("unknown-value", unknown("scheme", word.name.text, names), word.name.span)
            return None
        program, scheme = known[word.name.text]
        if scheme in self.chain:
            circle = " -> ".join(s.name.text for s in (*self.chain[self.chain.index(scheme) :], scheme))
            self.report.error("recursive-tier", f"'{scheme.name.text}' is a tier of itself: {circle}", word.span)
            return None
        if len(self.chain) >= DEEPEST:
            self.report.error("wrong-range", f"tiers of tiers nest at most {DEEPEST} deep", word.span)
            return None
        names = [parameter.name.text for parameter in scheme.parameters]
        given = match_arguments(word, names, self.report)
        values = {name: constant(argument.value, self.environment, self.report) for name, argument in given.items()}
        told = {name: value for name, value in values.items() if value is not None}
        return self._resolved(program, scheme, told, levels) if len(told) == len(values) else None

    def _resolved(self, program: Program, scheme: syntax.Scheme, given: Given, levels: Levels) -> model.Scheme | None:
        """Warnings about a tier's scheme are for those who use it by itself."""
        inner = Report()
        resolved = self.resolve(program, (*self.chain, scheme), given, levels, inner)
        self.report.found += [diagnostic for diagnostic in inner.found if diagnostic.severity == "error"]
        return None if inner.failed else resolved

    def _opened(self, named: syntax.Tier, scheme: model.Scheme, size: int | None) -> Iterator[model.Tier]:
        """The tiers that a tier stands for; those of a scheme with tiers of its own are called NAME.ITS_NAME."""
        name = named.name.text
        *inner, last = scheme.tiers
        for tier in inner:
            yield replace(tier, name=f"{name}.{tier.name}", span=named.span)
        members = math.prod(tier.size or 1 for tier in inner)
        if size is not None and size % members:
            message = f"tier '{name}' has {size} members, and the tiers of '{scheme.name}' make groups of {members}"
            self.report.error("tier-size", message, named.span)
        whole = f"{name}.{last.name}" if inner else name
        yield replace(last, name=whole, size=None if size is None else size // members, span=named.span)

    def _size(self, tier: syntax.Tier, levels: Levels, outermost: bool) -> int | None:
        if outermost:
            if tier.size is not None:
                message = f"'{tier.name.text}' is the outermost tier, which takes what is left of the group"
                self.report.error("tier-size", message, tier.size.span, help="leave its size out")
            return None
        if tier.size is None:
            return self._size_from_levels(tier, levels)
        size = constant_integer(tier.size, self.environment, self.report)
        if size is not None and not 1 <= size <= MOST_MEMBERS:
            self.report.error("wrong-range", f"a tier has 1 to {MOST_MEMBERS:,} members, not {size}", tier.size.span)
            return None
        return size

    def _size_from_levels(self, tier: syntax.Tier, levels: Levels) -> int | None:
        name = tier.name.text
        if name not in levels:
            help = f"write how many members it has: tier {name}(8)"
            notes = (f"levels: {listed(self.levels)}{did_you_mean(name, self.levels)}",) if self.levels else ()
            self.report.error("tier-size", f"tier '{name}' has no size", tier.name.span, notes=notes, help=help)
        return levels.get(name)


def schemes_of(program: Program) -> Known:
    """What a tier can name, with the program in which the words of that scheme have their meaning."""
    known: Known = {s.name.text: (shipped, s) for shipped in program.shipped for s in shipped.main.schemes}
    known |= {s.name.text: (program, s) for file in reversed(program.files) for s in file.schemes}
    return known


def agreed(
    found: Sequence[Resolved],
    value: Callable[[model.Scheme], T],
    yielding: T,
    key: str,
    report: Report,
) -> T:
    """The one value that the tiers agree on for ``key``, where ``yielding`` gives way to any other."""
    chosen: tuple[syntax.Tier, T] | None = None
    for tier, scheme, _ in found:
        mine = value(scheme)
        if mine == yielding:
            continue
        if chosen is not None and chosen[1] != mine:
            message = f"tiers '{chosen[0].name.text}' and '{tier.name.text}' differ in their {key}"
            help = f"say one for all of them: {key}: ..."
            report.error("conflicting-tiers", message, tier.scheme.span, help=help)
        chosen = chosen or (tier, mine)
    return chosen[1] if chosen else yielding
