"""Resolution of schemes: syntax tree to Scheme, with all errors of a scheme in one exception."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

from zenc.did_you_mean import closest, did_you_mean
from zenc.errors import Diagnostic, SchemeError, Span
from zenc.language import syntax
from zenc.language.files import SourceFiles
from zenc.scheme import model
from zenc.scheme.announce import check_holders, refuse_holders, resolve_announce
from zenc.scheme.arguments import bind_parameters
from zenc.scheme.balance import resolve_balance
from zenc.scheme.choice import resolve_choice
from zenc.scheme.collector import Collector, unknown
from zenc.scheme.communication import ON_THE_SPOT, Resolver, schedules_of
from zenc.scheme.constants import Environment
from zenc.scheme.references import Chain, Naming
from zenc.scheme.tiers import TierResolver, agreed
from zenc.scheme.wire_formats import resolve_format

E = TypeVar("E", bound=Enum)

REQUIRED_KEYS = ("communication", "aggregation", "partition")
DIMENSIONS = (*REQUIRED_KEYS, "push", "pull")
KEYS = (*REQUIRED_KEYS, "balance", "announce", "push", "pull", "unit")

Resolved: TypeAlias = tuple[tuple[model.TierDeclaration, ...], model.Mapping, model.Unit, model.Communication | None]


def resolve(
    program: SourceFiles,
    scheme: str | None = None,
    parameters: Mapping[str, int | float | str] | None = None,
    levels: Mapping[str, int] | None = None,
) -> tuple[model.Scheme, tuple[Diagnostic, ...]]:
    """The scheme of ``program``, and warnings about it.

    Args:
        program: what ``zenc.language.files`` read.
        scheme: the name of the scheme, needed where the file has several.
        parameters: values for parameters of the scheme, also as strings (``"7"``, ``"0x7"``, ``"2.5"``).
        levels: how many ranks one unit of a level has. It is the size of a tier of that name that says none.

    Raises:
        SchemeError: with all problems of the scheme at once; ``choice-of-schemes`` for one that chooses among others.
    """
    resolved, warnings = resolve_any(program, scheme, parameters, levels)
    if isinstance(resolved, model.Choice):
        message = f"'{resolved.name}' chooses among several schemes, and this is about one"
        names = ", ".join(candidate.name for candidate in resolved.candidates)
        help = f"name one of them: {names}"
        raise SchemeError(Diagnostic("choice-of-schemes", message, resolved.span, help=help))
    return resolved, warnings


def resolve_any(
    program: SourceFiles,
    scheme: str | None = None,
    parameters: Mapping[str, int | float | str] | None = None,
    levels: Mapping[str, int] | None = None,
) -> tuple[model.Scheme | model.Choice, tuple[Diagnostic, ...]]:
    """``resolve``, also of a scheme that chooses among others."""
    report = Collector()
    chosen = choose(program, scheme, report)
    given, chain = parameters or {}, (chosen,)
    make = _resolve_choice if chosen.choices else _resolve
    resolved = make(program, chain, given, levels or {}, report)
    warnings = report.close()
    assert resolved is not None
    return resolved, warnings


def _resolve_choice(
    program: SourceFiles,
    chain: Chain,
    parameters: Mapping[str, int | float | str],
    levels: Mapping[str, int],
    report: Collector,
) -> model.Choice | None:
    scheme = chain[-1]
    environment = bind_parameters(scheme, parameters, report)
    schedules_of(program, report)
    found = resolve_choice(scheme, Naming(program, chain, environment, report, _resolve), levels)
    _report_unused(scheme, environment, report)
    if found is None:
        return None
    bound = tuple((name, value) for name, value in environment.values.items() if value is not None)
    return model.Choice(scheme.name.text, scheme.doc or "", bound, *found, program.sources, span=scheme.name.span)


def choose(program: SourceFiles, name: str | None, report: Collector) -> syntax.SchemeSyntax:
    """The scheme called ``name``, or the only one of the main file.

    Raises:
        SchemeError: if it is not there, or there are several and none was named.
    """
    here = program.main.schemes
    _report_twins(here, report)
    known = {scheme.name.text: scheme for file in reversed(program.files) for scheme in file.schemes}
    if name is not None:
        if name in known:
            return known[name]
        message = f"{program.main.source.name} has no scheme '{name}'{did_you_mean(name, known)}"
        raise SchemeError(Diagnostic("unknown-scheme", message, notes=_listed(known)))
    if len({scheme.name.text for scheme in here}) == 1:
        return here[0]
    if not here:
        message = f"{program.main.source.name} has no scheme"
        names = [schedule.name.text for schedule in program.main.schedules if schedule.name]
        notes = (f"it has schedules: {', '.join(names)}",) if names else ()
        raise SchemeError(Diagnostic("no-scheme", message, _start_of(program), notes, help="write scheme NAME { ... }"))
    message = f"{program.main.source.name} has several schemes"
    first = here[0].name.text
    help = f"choose one by its name: --scheme {first}; in Python zenc.compile(..., scheme={first!r})"
    raise SchemeError(Diagnostic("several-schemes", message, here[1].name.span, _listed(known), help))


def _listed(schemes: Mapping[str, syntax.SchemeSyntax]) -> tuple[str, ...]:
    return (f"schemes: {', '.join(schemes)}",) if schemes else ()


def _start_of(program: SourceFiles) -> Span | None:
    declarations: list[syntax.Schedule | syntax.Import] = [*program.main.schedules, *program.main.imports]
    return declarations[0].span if declarations else None


def _report_twins(schemes: Sequence[syntax.SchemeSyntax], report: Collector) -> None:
    first: dict[str, syntax.SchemeSyntax] = {}
    for scheme in schemes:
        other = first.setdefault(scheme.name.text, scheme)
        if other is not scheme:
            message = f"there is another scheme '{scheme.name.text}'"
            report.error("duplicate-name", message, scheme.name.span, notes=(f"the other one: {other.name.span}",))


def _resolve(
    program: SourceFiles,
    chain: Chain,
    parameters: Mapping[str, int | float | str],
    levels: Mapping[str, int],
    report: Collector,
) -> model.Scheme | None:
    """The last scheme of ``chain``, in which each is a tier of the one before."""
    scheme = chain[-1]
    environment = bind_parameters(scheme, parameters, report)
    reader = _SchemeReader(scheme, _entries(scheme, report), environment, report)
    if scheme.tiers:
        found = _tiered(reader, TierResolver(program, chain, environment, levels, report, _resolve))
    else:
        found = _plain(reader, program)
    _report_unused(scheme, environment, report)
    if found is None:
        return None
    tiers, mapping, unit, announce = found
    return model.Scheme(
        name=scheme.name.text,
        doc=scheme.doc or "",
        parameters=tuple((name, value) for name, value in environment.values.items() if value is not None),
        tiers=tiers,
        mapping=mapping,
        unit=unit,
        announce=announce,
        sources=program.sources,
        span=scheme.name.span,
    )


def _plain(reader: _SchemeReader, program: SourceFiles) -> Resolved | None:
    """A scheme that says its four dimensions."""
    entries, report = reader.entries, reader.report
    communication = None
    schedules = schedules_of(program, report)
    resolver = Resolver(program, schedules, reader.environment, report)
    if "communication" in entries:
        communication = resolver.resolve(entries["communication"].value)
    aggregation = reader.choice("aggregation", model.Aggregation)
    partition = reader.choice("partition", model.Partition)
    balance = reader.balance()
    push = reader.format("push")
    pull = reader.format("pull")
    unit = reader.choice("unit", model.Unit, model.Unit.AUTO)
    reader.report_missing(partition)
    check_holders(balance, partition, {"push": push, "pull": pull}, entries, report)
    announce = resolve_announce(balance, entries, resolver, report)
    mapping = _mapping(balance, partition, entries.get("balance"), report)
    if not (communication and aggregation and partition and mapping and push and pull and unit):
        return None
    return (
        (model.TierDeclaration("", None, communication, aggregation, partition, push, pull),),
        mapping,
        unit,
        announce,
    )


def _tiered(reader: _SchemeReader, resolver: TierResolver) -> Resolved | None:
    """A scheme of tiers. It has one mapping and one unit: its own, or those that its tiers agree on."""
    entries, report = reader.entries, reader.report
    schedules_of(resolver.program, report)
    reader.report_dimensions()
    unit = reader.choice("unit", model.Unit, model.Unit.AUTO)
    balance = reader.balance()
    found = resolver.resolved()
    refuse_holders(balance, entries, [(tier.scheme.span, scheme) for tier, scheme, _ in found], report)
    tiers = tuple(tier for resolved in found for tier in resolved.tiers)
    if "unit" not in entries:
        unit = agreed(found, lambda scheme: scheme.unit, model.Unit.AUTO, "unit", report)
    if "balance" not in entries:
        contiguous: model.Mapping = model.Contiguous()
        balance = agreed(found, lambda scheme: scheme.mapping, contiguous, "balance", report)
    cut = any(tier.partition is model.Partition.PARALLELISM for tier in tiers) or report.failed
    partition = model.Partition.PARALLELISM if cut else model.Partition.CENTRALIZATION
    mapping = _mapping(balance, partition, entries.get("balance"), report)
    return (tiers, mapping, unit, None) if mapping and unit and tiers and not report.failed else None


def _entries(scheme: syntax.SchemeSyntax, report: Collector) -> dict[str, syntax.EntrySyntax]:
    """The entries by key; of a key that is there twice the first."""
    entries: dict[str, syntax.EntrySyntax] = {}
    for entry in scheme.entries:
        key = entry.key.text
        if key not in KEYS:
            report.error("unknown-key", unknown("key", key, KEYS), entry.key.span)
        elif key in entries:
            notes = (f"the other one: {entries[key].key.span}",)
            report.error("duplicate-key", f"'{key}' is here twice", entry.key.span, notes=notes)
        else:
            entries[key] = entry
    return entries


@dataclass
class _SchemeReader:
    """Reads the entries of one scheme."""

    scheme: syntax.SchemeSyntax
    entries: Mapping[str, syntax.EntrySyntax]
    environment: Environment
    report: Collector

    def choice(self, key: str, choices: type[E], default: E | None = None) -> E | None:
        """The member of ``choices`` that the value of ``key`` names; ``default`` where the key is missing."""
        entry = self.entries.get(key)
        if entry is None:
            return default
        word = single_word(key, entry.value, self.report)
        if word is None:
            return None
        known: dict[str, E] = {str(member.value): member for member in choices}
        if word.name.text not in known:
            self.report.error("unknown-value", unknown(key, word.name.text, known), word.name.span)
            return None
        if word.arguments:
            message = f"'{word.name.text}' takes no arguments"
            self.report.error("wrong-arguments", message, word.arguments[0].span)
        return known[word.name.text]

    def balance(self) -> model.Mapping | None:
        """The mapping that ``balance`` says; None where it is missing, or wrong."""
        entry = self.entries.get("balance")
        return resolve_balance(entry.value, self.environment, self.report) if entry else None

    def report_dimensions(self) -> None:
        """Report each key that a scheme of tiers can't have."""
        for key in DIMENSIONS:
            if key in self.entries:
                message = f"a scheme of tiers has no {key} of its own: its tiers say it"
                help = "put it in a scheme, and name that as a tier"
                self.report.error("tiers-and-dimensions", message, self.entries[key].key.span, help=help)

    def format(self, key: str) -> model.Format | None:
        """The wire format that the value of ``key`` names; ``auto`` where the key is missing."""
        entry = self.entries.get(key)
        if entry is None:
            return model.Format.AUTO
        word = single_word(key, entry.value, self.report)
        return resolve_format(key, word, self.environment, self.report) if word else None

    def report_missing(self, partition: model.Partition | None) -> None:
        """Report each key that must be there and is not. That of a misspelt one has been told already."""
        wanted = list(REQUIRED_KEYS)
        if partition is model.Partition.PARALLELISM:
            wanted.append("balance")
        slips = {closest(entry.key.text, KEYS) for entry in self.scheme.entries if entry.key.text not in KEYS}
        for key in wanted:
            if key not in self.entries and key not in slips:
                message = f"scheme '{self.scheme.name.text}' does not say its {key}"
                self.report.error("missing-key", message, self.scheme.name.span, help=_HELP_WHEN_MISSING[key])


_HELP_WHEN_MISSING = {
    "communication": f"communication: the name of a schedule, or {ON_THE_SPOT}",
    "aggregation": "aggregation: incremental, or one_shot",
    "partition": "partition: centralization, or parallelism",
    "balance": "balance: imbalanced, or balanced by permutation, hierarchical_hash, or holders",
}


def single_word(key: str, value: syntax.Value, report: Collector) -> syntax.Word | None:
    """The only word of ``value``; None, and a diagnostic, where it is more than that."""
    if isinstance(value, syntax.Phrase) and len(value.words) == 1:
        return value.words[0]
    what = "one word" if isinstance(value, syntax.Phrase) else "a word, and no schedule"
    report.error("wrong-value", f"the value of '{key}' is {what}", value.span)
    return None


def _mapping(
    mapping: model.Mapping | None,
    partition: model.Partition | None,
    entry: syntax.EntrySyntax | None,
    report: Collector,
) -> model.Mapping | None:
    """Under centralization there is one part, so nothing to balance."""
    if partition is not model.Partition.CENTRALIZATION:
        return mapping
    if entry is not None and not isinstance(mapping, model.Contiguous | model.Holders | None):
        message = "balance has no effect under centralization: there is one part only"
        report.warn("no-effect", message, entry.span, help="leave it out")
    return model.Contiguous()


def _report_unused(scheme: syntax.SchemeSyntax, environment: Environment, report: Collector) -> None:
    if report.failed:  # what uses it may be what is wrong
        return
    for parameter in scheme.parameters:
        if parameter.name.text not in environment.used:
            message = f"parameter '{parameter.name.text}' is used nowhere"
            report.warn("unused-name", message, parameter.name.span)
