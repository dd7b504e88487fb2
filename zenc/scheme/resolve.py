"""Resolution of schemes: syntax tree -> Scheme, in which every name has a meaning, with all errors in one exception.

A scheme says its dimensions itself, in entries of key and value (communication, aggregation, partition, balance); or
it has tiers, which are other schemes, one inside the other; or it is a choice among other schemes. Parameters are bound
to values first: the environment. Errors go to a Collector, which raises all of it in the end, so functions
return None where something is missing, and the next go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias, TypeVar

from zenc.common.wording import closest
from zenc.errors import Diagnostic, SchemeError
from zenc.language import syntax
from zenc.language.files import SourceFiles
from zenc.language.terms import Phrase
from zenc.scheme import model
from zenc.scheme.arguments import Environment, bind_parameters, constant_integer, match_arguments
from zenc.scheme.collector import Collector, Kind, pick, unknown
from zenc.scheme.communication import (
    ON_THE_SPOT,
    Resolver,
    check_across,
    check_holders,
    holders_across,
    resolve_announce,
    schedules_of,
)
from zenc.scheme.compression import Feedback, Transform, Warmup
from zenc.scheme.compression_checks import (
    check_compressed_tiers,
    check_compression,
    check_encoded,
    check_transform,
    check_votes,
    losses_of,
)
from zenc.scheme.compression_words import split
from zenc.scheme.compressors import (
    COMPRESS,
    COMPRESSION_KEYS,
    Compression,
    check_compressors,
    read_compression,
    resolve_compressor,
)
from zenc.scheme.references import Chain, Naming, TierResolver, agreed, resolve_choice
from zenc.scheme.values import by_key, resolve_balance, resolve_format, single_word

E = TypeVar("E", bound=Enum)

REQUIRED_KEYS = ("communication", "aggregation", "partition")
DIMENSIONS = (*REQUIRED_KEYS, "push", "pull")
KEYS = (*REQUIRED_KEYS, "balance", "announce", *COMPRESSION_KEYS, "push", "pull", "unit")

_HELP_WHEN_MISSING = {
    "communication": f"communication: the name of a schedule, or {ON_THE_SPOT}",
    "aggregation": "aggregation: incremental, or one_shot",
    "partition": "partition: centralization, or parallelism",
    "balance": "balance: imbalanced, or balanced by permutation, hierarchical_hash, or holders",
}


def resolve(
    program: SourceFiles,
    scheme: str | None = None,
    parameters: Mapping[str, int | float | str] | None = None,
    levels: Mapping[str, int] | None = None,
) -> tuple[model.Scheme, tuple[Diagnostic, ...]]:
    """Return the scheme of ``program``, and warnings about it.

    Args:
        program: the main file and all that it imports, parsed.
        scheme: the name of the scheme, needed where the file has several.
        parameters: values for parameters of the scheme, also as strings (``"7"``, ``"0x7"``, ``"2.5"``).
        levels: the number of ranks in one unit of a level, such as a node; the default size of a tier of that name.

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
    """Resolve as ``resolve`` does, also a scheme that chooses among others."""
    report = Collector()
    chosen = choose(program, scheme, report)
    check_compressors(program, report)
    resolve_chosen = resolve_choosing if chosen.choices else resolve_scheme
    resolved = resolve_chosen(program, (chosen,), parameters or {}, levels or {}, report)
    warnings = report.close()
    assert resolved is not None
    return resolved, warnings


SCHEME: Kind[syntax.SchemeSyntax] = Kind(
    "several-schemes",
    "no-scheme",
    "scheme",
    "schemes",
    lambda file: file.schemes,
    "--scheme {0}; in Python zenc.compile(..., scheme={0!r})",
    "write scheme NAME { ... }",
    "unknown-scheme",
)


def choose(program: SourceFiles, name: str | None, report: Collector) -> syntax.SchemeSyntax:
    """Return the scheme called ``name``, or the only one of the main file.

    Raises:
        SchemeError: if it is not there, or there are several and none was named.
    """
    main = program.main
    report.twins("scheme", ((each.name.text, each.name.span) for each in main.schemes))
    if (found := pick(SCHEME, program, name)) is not None:
        return found
    names = {
        "schedules": [schedule.name.text for schedule in main.schedules if schedule.name],
        "compressors": [compressor.name.text for compressor in main.compressors],
        "strategies": [strategy.name.text for strategy in main.strategies],
        "averagings": [averaging.name.text for averaging in main.averagings],
    }
    has = tuple(f"it has {kind}: {', '.join(known)}" for kind, known in names.items() if known)
    raise SCHEME.missing(program, name, has)


def resolve_choosing(
    program: SourceFiles,
    chain: Chain,
    parameters: Mapping[str, int | float | str],
    levels: Mapping[str, int],
    report: Collector,
) -> model.Choice | None:
    """Resolve the last scheme of ``chain``, which chooses among others."""
    scheme = chain[-1]
    environment = bind_parameters(scheme, parameters, report)
    schedules_of(program, report)
    choice = resolve_choice(scheme, Naming(program, chain, environment, report, resolve_scheme), levels)
    if not report.failed:  # the error may lie in its use
        report.unused(scheme.parameters, environment.used)
    if choice is None:
        return None
    settings, candidates = choice
    bound = environment.bound
    name = scheme.name
    return model.Choice(name.text, scheme.doc or "", bound, settings, candidates, program.sources, span=name.span)


def resolve_scheme(
    program: SourceFiles,
    chain: Chain,
    parameters: Mapping[str, int | float | str],
    levels: Mapping[str, int],
    report: Collector,
) -> model.Scheme | None:
    """Resolve the last scheme of ``chain``, in which each is a tier of the one before."""
    scheme = chain[-1]
    environment = bind_parameters(scheme, parameters, report)
    reader = _SchemeReader(scheme, by_key(scheme.entries, KEYS, report), environment, report)
    if scheme.tiers:
        contents = _with_tiers(reader, TierResolver(program, chain, environment, levels, report, resolve_scheme))
    else:
        contents = _without_tiers(reader, program)
    if not report.failed:  # the error may lie in its use
        report.unused(scheme.parameters, environment.used)
    if contents is None:
        return None
    name = scheme.name
    return model.Scheme(
        name.text, scheme.doc or "", environment.bound, *contents, sources=program.sources, span=name.span
    )


_Contents: TypeAlias = tuple[
    tuple[model.TierDeclaration, ...],
    model.Mapping,
    model.Unit,
    model.Communication | None,
    Feedback | None,
    Warmup | None,
    Transform | None,
    model.Holders | None,
]
"""The contents of a Scheme from its tiers on, by its entries or its tiers."""


def _without_tiers(reader: _SchemeReader, program: SourceFiles) -> _Contents | None:
    """Return the contents of a scheme that says its four dimensions: one tier, without a name."""
    entries, report = reader.entries, reader.report
    communication = None
    schedules = schedules_of(program, report)
    resolver = Resolver(program, schedules, reader.environment, report)
    if "communication" in entries:
        communication = resolver.resolve(entries["communication"].value)
    aggregation = reader.one_of("aggregation", model.Aggregation)
    partition, cut = reader.partition()
    balance = reader.balance()
    push = reader.format("push")
    pull = reader.format("pull")
    compression = reader.compression(program)
    unit = reader.one_of("unit", model.Unit, model.Unit.AUTO)
    reader.report_missing(partition)
    check_holders(balance, partition, {"push": push, "pull": pull}, entries, report)
    balance, announce = resolve_announce(balance, entries, resolver, report)
    if cut > 1 and (isinstance(balance, model.Encoded) or (isinstance(balance, model.Holders) and balance.directory)):
        message = "parts by encoded sizes, and those of owners that a directory names, are as many as ranks"
        report.error("not-with-holders", message, entries["partition"].span, help="write partition: parallelism")
    mapping = _mapping(balance, partition, entries.get("balance"), report)
    if not (communication and aggregation and partition and mapping and push and pull and unit):
        return None
    tier = model.TierDeclaration(
        "",
        None,
        communication,
        aggregation,
        partition,
        push,
        pull,
        compression.push_code,
        compression.pull_code,
        compression.select,
        compression.reselect,
        compression.merge,
        (compression.said.get("push_code"), compression.said.get("pull_code")),
        cut,
    )
    check_compression(compression, tier, mapping, report)
    check_encoded(mapping, compression, entries, report)
    return (tier,), mapping, unit, announce, compression.feedback, compression.warmup, compression.transform, None


def _with_tiers(reader: _SchemeReader, resolver: TierResolver) -> _Contents | None:
    """Return the contents of a scheme of tiers: one mapping and one unit, its own or those that its tiers agree on.

    Under an outermost tier that is balanced by holders, the mapping is that of the tiers inside.
    """
    entries, report = reader.entries, reader.report
    schedules_of(resolver.program, report)
    reader.report_dimensions()
    unit = reader.one_of("unit", model.Unit, model.Unit.AUTO)
    balance = reader.balance()
    resolved = resolver.resolved()
    named = [(tier.scheme.span, scheme) for tier, scheme, _ in resolved]
    across = holders_across(balance, entries, named, report)
    announce = resolved[-1].scheme.announce if across else None
    tiers = tuple(tier for one in resolved for tier in one.tiers)
    inner = tiers[:-1] if across else tiers
    if "unit" not in entries:
        unit = agreed(resolved, lambda scheme: scheme.unit, model.Unit.AUTO, "unit", report)
    if "balance" not in entries:
        contiguous: model.Mapping = model.Contiguous()
        cut = [one for one in resolved if not isinstance(one.scheme.mapping, model.Holders)]
        balance = agreed(cut, lambda scheme: scheme.mapping, contiguous, "balance", report)
    has_parts = any(tier.partition is model.Partition.PARALLELISM for tier in inner) or report.failed
    partition = model.Partition.PARALLELISM if has_parts else model.Partition.CENTRALIZATION
    mapping = _mapping(balance, partition, entries.get("balance"), report)
    own = read_compression(entries, reader.environment, report)
    feedback, warmup, transform = own.feedback, own.warmup, own.transform
    if "feedback" not in entries:
        feedback = agreed(resolved, lambda scheme: scheme.feedback, None, "feedback", report)
    if "warmup" not in entries:
        warmup = agreed(resolved, lambda scheme: scheme.warmup, None, "warmup", report)
    if "transform" not in entries:
        transform = agreed(resolved, lambda scheme: scheme.transform, None, "transform", report)
    check_compressed_tiers(own, resolved, report)
    said = {**dict.fromkeys(("feedback", "transform"), resolved[0].named.scheme.span if resolved else None), **own.said}
    check_votes(replace(own, feedback=feedback, said=said), tiers, report)
    if transform is not None and tiers:
        check_transform(replace(own, feedback=feedback, transform=transform, said=said), tiers[0], report)
    if across is not None:
        check_across(mapping, losses_of(own, resolved), named[-1], report)
    if not (mapping and unit and tiers) or report.failed:
        return None
    if across is not None and not inner:
        mapping, across = across, None
    return tiers, mapping, unit, announce, feedback, warmup, transform, across


def _mapping(
    mapping: model.Mapping | None,
    partition: model.Partition | None,
    entry: syntax.EntrySyntax | None,
    report: Collector,
) -> model.Mapping | None:
    """Return the mapping; under centralization there is one part, so nothing to balance, and others get a warning."""
    if partition is not model.Partition.CENTRALIZATION:
        return mapping
    if entry is not None and not isinstance(mapping, model.Contiguous | model.Holders | None):
        message = "balance has no effect under centralization: there is one part only"
        report.warn("no-effect", message, entry.span, help="leave it out")
    return model.Contiguous()


@dataclass
class _SchemeReader:
    """A reader of the entries' values of one scheme, which reports errors in them."""

    scheme: syntax.SchemeSyntax
    entries: Mapping[str, syntax.EntrySyntax]
    environment: Environment
    report: Collector

    def one_of(self, key: str, choices: type[E], default: E | None = None) -> E | None:
        """Return the member of ``choices`` that the value of ``key`` names; ``default`` where the key is missing."""
        entry = self.entries.get(key)
        if entry is None:
            return default
        word = single_word(key, entry.value, self.report)
        if word is None:
            return None
        members: dict[str, E] = {str(member.value): member for member in choices}
        if word.name.text not in members:
            self.report.error("unknown-value", unknown(key, word.name.text, members), word.name.span)
            return None
        if word.arguments:
            message = f"'{word.name.text}' takes no arguments"
            self.report.error("wrong-arguments", message, word.arguments[0].span)
        return members[word.name.text]

    def partition(self) -> tuple[model.Partition | None, int]:
        """Return the partition, and the parts of each rank: ``parallelism(4)`` has four."""
        entry = self.entries.get("partition")
        if entry is None or not isinstance(entry.value, Phrase):
            return self.one_of("partition", model.Partition), 1
        first, *more = entry.value.words
        if more or first.name.text != model.Partition.PARALLELISM.value or not first.arguments:
            return self.one_of("partition", model.Partition), 1
        given = match_arguments(first, ("cut",), self.report).get("cut")
        cut = None if given is None else constant_integer(given.value, self.environment, self.report)
        if cut is not None and not 1 <= cut <= model.MOST_CUT:
            message = f"each rank has 1 to {model.MOST_CUT:,} parts, not {cut:,}"
            self.report.error("wrong-range", message, first.arguments[0].span)
            return model.Partition.PARALLELISM, 1
        return model.Partition.PARALLELISM, cut or 1

    def balance(self) -> model.Mapping | None:
        """Return the mapping of ``balance``; None where it is missing or wrong."""
        entry = self.entries.get("balance")
        return resolve_balance(entry.value, self.environment, self.report) if entry else None

    def report_dimensions(self) -> None:
        """Report each key that a scheme of tiers can't have, since its tiers have it."""
        for key in (*DIMENSIONS, COMPRESS, "select", "project", "merge", "reselect"):
            if key in self.entries:
                message = f"a scheme of tiers has no {key} of its own: its tiers say it"
                help = "put it in a scheme, and name that as a tier"
                self.report.error("tiers-and-dimensions", message, self.entries[key].key.span, help=help)

    def format(self, key: str) -> model.Format | None:
        """Return the wire format that the value of ``key`` names; ``auto`` where the key is missing."""
        entry = self.entries.get(key)
        if entry is None:
            return model.Format.AUTO
        phrases = split(entry.value, "as")
        word = single_word(key, phrases[0] if phrases else entry.value, self.report)
        return resolve_format(key, word, self.environment, self.report) if word else None

    def compression(self, program: SourceFiles) -> Compression:
        """Return the compression of the entries, joined with that of the compressor they name."""
        own = read_compression(self.entries, self.environment, self.report)
        if COMPRESS not in self.entries:
            return own
        entry = self.entries[COMPRESS]
        compressor = resolve_compressor(entry, program, self.environment, self.report)
        return own.joined(compressor, entry.value.span, self.report) if compressor else own

    def report_missing(self, partition: model.Partition | None) -> None:
        """Report each key that must be there and is not; a key that is misspelt has been reported as such."""
        required = [*REQUIRED_KEYS, "balance"] if partition is model.Partition.PARALLELISM else REQUIRED_KEYS
        misspelt = {closest(entry.key.text, KEYS) for entry in self.scheme.entries if entry.key.text not in KEYS}
        for key in required:
            if key not in self.entries and key not in misspelt:
                message = f"scheme '{self.scheme.name.text}' does not say its {key}"
                self.report.error("missing-key", message, self.scheme.name.span, help=_HELP_WHEN_MISSING[key])
