"""Scheme references: the word of a tier or of a choice to the scheme that it names, resolved.

It is a scheme of this file, of an imported one, or one that comes with zenc, in this order. ``choose(SETTINGS) from
[CANDIDATES]`` becomes the candidates, resolved, and how the run time chooses among them. A tier whose scheme has tiers
itself stands for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, TypeVar

from zenc.common.wording import did_you_mean
from zenc.language import syntax, terms
from zenc.language.files import SourceFiles, shipped_names
from zenc.scheme import model
from zenc.scheme.arguments import Environment, constant, integer_within, match_arguments
from zenc.scheme.collector import Collector, listed, unknown

DEEPEST = 4
"""Most schemes in a chain of which each is a tier of the one before."""

Chain: TypeAlias = tuple[syntax.SchemeSyntax, ...]
"""The schemes that are being resolved, each named by the one before."""
Known: TypeAlias = dict[str, tuple[SourceFiles, syntax.SchemeSyntax]]
Levels: TypeAlias = Mapping[str, int]
"""The ranks in one unit of a level: those of a node, of a rack."""
Given: TypeAlias = Mapping[str, int | float | str]
Resolve: TypeAlias = Callable[[SourceFiles, Chain, Given, Levels, Collector], model.Scheme | None]


@dataclass
class Naming:
    """The resolver of scheme names in the last scheme of ``chain``; ``resolve`` resolves the one that is found."""

    program: SourceFiles
    chain: Chain
    environment: Environment
    report: Collector
    resolve: Resolve

    def scheme(self, word: terms.Word, levels: Levels) -> model.Scheme | None:
        """Return the scheme that ``word`` names; None, with a diagnostic, where it is unknown or wrong."""
        known = schemes_of(self.program)
        if word.name.text not in known:
            names = sorted({*known, *shipped_names()})
            self.report.error("unknown-value", unknown("scheme", word.name.text, names), word.name.span)
            return None
        program, scheme = known[word.name.text]
        if not self._is_allowed(scheme, word):
            return None
        values = self.arguments(word, [parameter.name.text for parameter in scheme.parameters])
        if values is None:
            return None
        inner = Collector()  # warnings about a scheme are for those who use it by itself
        resolved = self.resolve(program, (*self.chain, scheme), values, levels, inner)
        self.report.found += [diagnostic for diagnostic in inner.found if diagnostic.severity == "error"]
        return None if inner.failed else resolved

    def arguments(self, word: terms.Word, names: list[str]) -> dict[str, int | float] | None:
        """Return the arguments of ``word`` by name; None where one of them has no value."""
        given = match_arguments(word, names, self.report)
        values = {name: constant(argument.value, self.environment, self.report) for name, argument in given.items()}
        told = {name: value for name, value in values.items() if value is not None}
        return told if len(told) == len(values) else None

    def _is_allowed(self, scheme: syntax.SchemeSyntax, word: terms.Word) -> bool:
        name = scheme.name.text
        if scheme.choices:
            message = f"'{name}' chooses among schemes itself, so it is no scheme to be named here"
            help = "name the schemes that it chooses from"
            self.report.error("nested-choice", message, word.span, help=help)
        elif scheme in self.chain:
            circle = " -> ".join(s.name.text for s in (*self.chain[self.chain.index(scheme) :], scheme))
            self.report.error("recursive-tier", f"'{name}' is a tier of itself: {circle}", word.span)
        elif len(self.chain) >= DEEPEST:
            self.report.error("wrong-range", f"tiers of tiers nest at most {DEEPEST} deep", word.span)
        else:
            return True
        return False


def schemes_of(program: SourceFiles) -> Known:
    """Return the schemes that a word can name, each with the program in which its own words have their meaning."""
    known: Known = {s.name.text: (shipped, s) for shipped in program.shipped for s in shipped.main.schemes}
    known |= {s.name.text: (program, s) for file in reversed(program.files) for s in file.schemes}
    return known


MOST_CANDIDATES = 64


def resolve_choice(
    scheme: syntax.SchemeSyntax, naming: Naming, levels: Levels
) -> tuple[model.Settings, tuple[model.Candidate, ...]] | None:
    """Return the settings and candidates of a choice; None where the report of ``naming`` has an error."""
    _report_company(scheme, naming.report)
    return read_choice(scheme.choices[0], naming, levels)


def read_choice(
    chosen: syntax.ChoiceSyntax, naming: Naming, levels: Levels, may_differ: bool = False
) -> tuple[model.Settings, tuple[model.Candidate, ...]] | None:
    """Return the settings and the candidates of a choice; None where the report of ``naming`` tells of an error.

    Candidates that differ in their losses and keepers are an error, or a warning where they ``may_differ``.
    """
    report = naming.report
    settings = _settings(chosen.settings, naming)
    candidates = [candidate(word, naming, levels) for word in chosen.candidates[:MOST_CANDIDATES]]
    found = tuple(candidate for candidate in candidates if candidate is not None)
    if len(chosen.candidates) > MOST_CANDIDATES:
        message = f"a scheme chooses among {MOST_CANDIDATES} candidates at most"
        report.error("wrong-range", message, chosen.candidates[MOST_CANDIDATES].span)
    report.twins("candidate", ((candidate.name, candidate.span) for candidate in found))
    _report_conflicts(found, report, may_differ)
    return None if settings is None or report.failed else (settings, found)


def _report_company(scheme: syntax.SchemeSyntax, report: Collector) -> None:
    """Report all that can't stand beside a choice."""
    help = "put it in a scheme, and name that as a candidate"
    for what, span in (
        *((f"{entry.key.text} of its own", entry.key.span) for entry in scheme.entries),
        *(("tiers", tier.name.span) for tier in scheme.tiers[:1]),
        *(("second choice", other.settings.span) for other in scheme.choices[1:]),
    ):
        report.error("choice-and-dimensions", f"a scheme that chooses has no {what}", span, help=help)


def _settings(word: terms.Word, naming: Naming) -> model.Settings | None:
    values = naming.arguments(word, list(model.SETTINGS))
    if values is None:
        return None
    spans = {name: argument.span for name, argument in zip(model.SETTINGS, word.arguments, strict=False)}
    spans |= {argument.name.text: argument.span for argument in word.arguments if argument.name}
    for name, value in values.items():
        least, most = model.SETTINGS[name]
        if isinstance(value, float) and name != "margin":
            naming.report.error("wrong-type", f"'{name}' is an integer, not {value}", spans[name])
        elif not least <= value <= most:
            message = f"'{name}' of a choice is {least:,} to {most:,}, not {value}"
            naming.report.error("wrong-range", message, spans[name])
    if naming.report.failed:
        return None
    counts = {name: int(value) for name, value in values.items() if name != "margin"}
    return replace(model.Settings(margin=float(values.get("margin", model.Settings().margin))), **counts)


def candidate(word: terms.Word, naming: Naming, levels: Levels) -> model.Candidate | None:
    """Return the scheme that ``word`` names, with its arguments; None, with a diagnostic, in case of an error."""
    scheme = naming.scheme(word, levels)
    if scheme is None:
        return None
    values = dict(scheme.parameters)
    given = match_arguments(word, list(values), Collector())  # what does not fit was told when the scheme was named
    arguments = ", ".join(f"{name} = {values[name]}" for name in given)
    return model.Candidate(f"{scheme.name}({arguments})" if arguments else scheme.name, scheme, span=word.span)


def _report_conflicts(candidates: tuple[model.Candidate, ...], report: Collector, may_differ: bool) -> None:
    """Report candidates that differ in their unit, or in the units they contribute and the losses they keep."""
    for other in candidates[1:]:
        between = f"candidates '{candidates[0].name}' and '{other.name}' differ in their"
        if other.scheme.unit is not candidates[0].scheme.unit:
            help = "schemes of one unit can be compared: make a choice of those"
            report.error("conflicting-candidates", f"{between} unit", other.span, help=help)
        differ = [key for key, value in _KEPT_BY_NAME.items() if value(other.scheme) != value(candidates[0].scheme)]
        if differ and may_differ:
            help = "what one of them keeps back is contributed in a later call, also where that is by another one"
            report.warn("differing-candidates", f"{between} {' and '.join(differ)}", other.span, help=help)
            continue
        for key in differ:
            help = "what is left out and kept must not depend on the choice: make one of those that agree"
            report.error("conflicting-candidates", f"{between} {key}", other.span, help=help)


_KEPT_BY_NAME: dict[str, Callable[[model.Scheme], object]] = {
    "select": lambda scheme: [each for tier in scheme.tiers if any(each := (tier.select, tier.merge, tier.reselect))],
    "feedback": lambda scheme: scheme.feedback,
    "warmup": lambda scheme: scheme.warmup,
    "transform": lambda scheme: scheme.transform,
}
"""Keys whose values decide which units a call leaves out, and the share of them that the next call gets."""


T = TypeVar("T")

MOST_MEMBERS = 1 << 16
MOST_TIERS = 8
"""Most tiers of a scheme, with those that its tiers stand for; no cluster has as many levels."""


class Resolved(NamedTuple):
    """A tier of the text, its scheme, and the tiers that it stands for."""

    named: syntax.TierSyntax
    scheme: model.Scheme
    tiers: tuple[model.TierDeclaration, ...]


@dataclass
class TierResolver:
    """A resolver of the tiers of the last scheme of ``chain``, each by ``resolve``."""

    program: SourceFiles
    chain: Chain
    environment: Environment
    levels: Levels
    report: Collector
    resolve: Resolve

    def resolved(self) -> list[Resolved]:
        """Return each tier with its scheme; tiers that can't be resolved are reported and left out."""
        tiers = self.chain[-1].tiers
        self.report.twins("tier", ((tier.name.text, tier.name.span) for tier in tiers))
        naming = Naming(self.program, self.chain, self.environment, self.report, self.resolve)
        inner, found = 1, list[Resolved]()
        for tier in tiers[:MOST_TIERS]:
            levels = {name: ranks // inner for name, ranks in self.levels.items() if ranks % inner == 0}
            size = self._size(tier, levels, outermost=tier is tiers[-1])
            scheme = naming.scheme(tier.scheme, levels)
            if scheme is not None:
                found.append(Resolved(tier, scheme, tuple(self._opened(tier, scheme, size))))
            inner *= size or 1
        if len(tiers) > MOST_TIERS or sum(len(resolved.tiers) for resolved in found) > MOST_TIERS:
            span = tiers[min(len(tiers) - 1, MOST_TIERS)].name.span
            self.report.error("wrong-range", f"a scheme has at most {MOST_TIERS} tiers, with those of its tiers", span)
        return found

    def _opened(
        self, named: syntax.TierSyntax, scheme: model.Scheme, size: int | None
    ) -> Iterator[model.TierDeclaration]:
        """Yield the tiers that a tier stands for; those of a scheme with tiers of its own are called NAME.ITS_NAME."""
        name = named.name.text
        *inner, last = scheme.tiers
        for tier in inner:
            yield replace(tier, name=f"{name}.{tier.name}", span=named.span)
        members = math.prod(tier.size or 1 for tier in inner)
        if size is not None and size % members:
            message = f"tier '{name}' has {size} members, and the tiers of '{scheme.name}' make groups of {members}"
            self.report.error("tier-size", message, named.span)
        if last.cut > 1:
            message = f"'{scheme.name}' cuts the tensor in {last.cut} parts for each rank, and a tier has one of each"
            self.report.error("conflicting-tiers", message, named.scheme.span, help="name another scheme here")
        whole = f"{name}.{last.name}" if inner else name
        yield replace(last, name=whole, size=None if size is None else size // members, span=named.span)

    def _size(self, tier: syntax.TierSyntax, levels: Levels, outermost: bool) -> int | None:
        if outermost:
            if tier.size is not None:
                message = f"'{tier.name.text}' is the outermost tier, which takes what is left of the group"
                self.report.error("tier-size", message, tier.size.span, help="leave its size out")
            return None
        if tier.size is None:
            return self._size_from_levels(tier, levels)
        allowed, what = range(1, MOST_MEMBERS + 1), f"a tier has 1 to {MOST_MEMBERS:,} members"
        return integer_within(tier.size, tier.size.span, allowed, what, self.environment, self.report)

    def _size_from_levels(self, tier: syntax.TierSyntax, levels: Levels) -> int | None:
        name = tier.name.text
        if name not in levels:
            help = f"write how many members it has: tier {name}(8)"
            notes = (f"levels: {listed(self.levels)}{did_you_mean(name, self.levels)}",) if self.levels else ()
            self.report.error("tier-size", f"tier '{name}' has no size", tier.name.span, notes=notes, help=help)
        return levels.get(name)


def agreed(
    found: Sequence[Resolved], value: Callable[[model.Scheme], T], yielding: T, key: str, report: Collector
) -> T:
    """Return the value of ``key`` that the tiers agree on, where ``yielding`` gives way to any other."""
    chosen: tuple[syntax.TierSyntax, T] | None = None
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
