"""The value of ``communication`` -> the moves: a schedule by name, two of them, or one written on the spot.

Under ``balanced by holders`` also the announce, the schedule that gathers all index sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zenc.errors import Span
from zenc.language import syntax, terms
from zenc.language.files import SourceFiles
from zenc.language.formatter import expression_text
from zenc.language.schedule import BUILTIN_NAMES, Block, Expression, Let, Substitution, names_in
from zenc.language.syntax import Schedule, Value
from zenc.language.terms import Argument, Number, Parameter, Word
from zenc.scheme import model
from zenc.scheme.arguments import Environment, check_parameters, constant_integer, literal, match_arguments
from zenc.scheme.collector import Collector, unknown
from zenc.scheme.compression_words import split
from zenc.scheme.model import Communication
from zenc.scheme.scope import Checker

ON_THE_SPOT = "schedule { ... }"


def schedules_of(program: SourceFiles, report: Collector) -> dict[str, Schedule]:
    """Return the named schedules of all files; check those of the main file, whether used or not."""
    imported_first = [schedule for file in reversed(program.files) for schedule in file.schedules]
    report.twins("schedule", ((each.name.text, each.name.span) for each in imported_first if each.name))
    known = {s.name.text: s for file in program.files for s in file.schedules if s.name}
    for schedule in program.main.schedules:
        check_schedule(schedule, report)
    return known


def check_schedule(schedule: Schedule, report: Collector, environment: Environment | None = None) -> None:
    """Report meaningless names and statements in ``schedule``; one without a name knows its scheme's parameters."""
    check_parameters(schedule.parameters, report)
    own = [parameter.name.text for parameter in schedule.parameters]
    _check_phases(schedule, report)
    checker = Checker([*own, *(environment.values if environment else ())], report)
    checker.check(schedule.push)
    checker.check(schedule.pull)
    if environment:
        environment.used |= checker.used
    report.unused(schedule.parameters, checker.used)


def _check_phases(schedule: Schedule, report: Collector) -> None:
    for phase, spans in (("push", schedule.push_spans), ("pull", schedule.pull_spans)):
        place = schedule.name.span if schedule.name else schedule.span
        if not spans:
            help = f"write {phase} {{ }} if nothing is to be sent"
            report.error("missing-phase", f"this schedule has no {phase} block", place, help=help)
        for span in spans[1:]:
            report.error("duplicate-phase", f"this schedule has two {phase} blocks", span)


@dataclass
class Resolver:
    """A resolver of the communication of one scheme."""

    program: SourceFiles
    schedules: Mapping[str, Schedule]
    environment: Environment
    report: Collector

    def resolve(self, value: Value) -> Communication | None:
        """Return the moves; None, with a diagnostic, where they can't be resolved."""
        if isinstance(value, Schedule):
            return self._on_the_spot(value)
        if set(value.connectives) - {"then"} or len(value.words) > 2:
            message = "a communication is one schedule, or two: the push of A, and the pull of B"
            self.report.error("wrong-value", message, value.span, help="write 'A' or 'A then B'")
            return None
        named = [self._named(word) for word in value.words]
        push, pull = named[0], named[-1]
        if push is None or pull is None:
            return None
        return Communication(
            " then ".join(map(_word_text, value.words)), push.push, pull.pull, push.push_span, pull.pull_span
        )

    def _on_the_spot(self, schedule: Schedule) -> Communication | None:
        check_schedule(schedule, self.report, self.environment)
        values: dict[str, Expression] = {}
        for name, value in self.environment.values.items():
            if isinstance(value, int):
                values[name] = literal(value)
            elif value is not None:
                self._refuse_fraction(schedule, name, value)
        put = Substitution(values)
        return _communication("schedule", schedule, put.block(schedule.push), put.block(schedule.pull))

    def _refuse_fraction(self, schedule: Schedule, name: str, value: float) -> None:
        checker = Checker([name], Collector())
        checker.check(schedule.push)
        checker.check(schedule.pull)
        if name in checker.used:
            message = f"schedules count in integers, and parameter '{name}' is {value}"
            self.report.error("wrong-type", message, schedule.span)

    def _named(self, word: Word) -> Communication | None:
        schedule = self.schedules.get(word.name.text)
        if schedule is None:
            message = unknown("communication", word.name.text, self.schedules, also=ON_THE_SPOT)
            self.report.error("unknown-value", message, word.name.span)
            return None
        if schedule not in self.program.main.schedules:
            check_schedule(schedule, self.report)
        values = self._arguments(schedule, word)
        constants = {name: value for name, value in values.items() if not any(names_in(value))}
        lets = {name: value for name, value in values.items() if name not in constants}
        push, pull = (_with_lets(Substitution(constants).block(b), lets) for b in (schedule.push, schedule.pull))
        return _communication(word.name.text, schedule, push, pull)

    def _arguments(self, schedule: Schedule, word: Word) -> dict[str, Expression]:
        names = [parameter.name.text for parameter in schedule.parameters]
        given = match_arguments(word, names, self.report)
        values: dict[str, Expression] = {}
        for parameter in schedule.parameters:
            value = self._argument(parameter, given.get(parameter.name.text), word)
            if value is not None:
                values[parameter.name.text] = value
        return values

    def _argument(self, parameter: Parameter, given: Argument | None, word: Word) -> Expression | None:
        """Return an argument: an integer, or an expression over the language's names, which differs by rank."""
        value: Expression | Number | None = parameter.default
        environment = Environment()
        if given is not None:
            value, environment = given.value, self.environment
        if value is None:
            message = f"'{word.name.text}' needs a value for '{parameter.name.text}'"
            self.report.error("wrong-arguments", message, word.span)
            return None
        if not isinstance(value, Number) and any(name in BUILTIN_NAMES for name in names_in(value)):
            return self._per_rank(value, environment)
        constant = constant_integer(value, environment, self.report)
        return None if constant is None else literal(constant, value.span)

    def _per_rank(self, value: Expression, environment: Environment) -> Expression:
        Checker(tuple(environment.values), self.report, environment.used).expression(
            value, dict.fromkeys((*BUILTIN_NAMES, *environment.values))
        )
        integers = {name: literal(v) for name, v in environment.values.items() if isinstance(v, int)}
        return Substitution(integers).expression(value)


def _with_lets(block: Block, lets: Mapping[str, Expression]) -> Block:
    checker = Checker(tuple(lets), Collector())
    checker.check(block)
    return (*(Let(name, value, span=value.span) for name, value in lets.items() if name in checker.used), *block)


def _communication(name: str, schedule: Schedule, push: Block, pull: Block) -> Communication:
    push_span = schedule.push_spans[0] if schedule.push_spans else None
    pull_span = schedule.pull_spans[0] if schedule.pull_spans else None
    return Communication(name, push, pull, push_span, pull_span)


def _word_text(word: Word) -> str:
    given: list[str] = []
    for each in word.arguments:
        value = str(each.value.value) if isinstance(each.value, Number) else expression_text(each.value)
        given.append(f"{each.name.text} = {value}" if each.name else value)
    return f"{word.name.text}({', '.join(given)})" if given else word.name.text


DIRECTORY = "directory"
DEFAULT_ANNOUNCE = "point_to_point"
DEFAULT_DIRECTORY = ("point_to_point", "bruck")
"""The schedules by which index sets travel to a directory, and the answers from it."""


def resolve_announce(
    mapping: model.Mapping | None, entries: Mapping[str, syntax.EntrySyntax], resolver: Resolver, report: Collector
) -> tuple[model.Mapping | None, model.Communication | None]:
    """Return ``mapping``, and the schedule of its index sets: the one that ``announce`` names, or point_to_point.

    ``announce: directory(from = N) by SCHEDULE`` makes a directory part of the mapping. No schedule for other mappings
    than holders, where ``announce`` has no effect.
    """
    entry = entries.get("announce")
    if not isinstance(mapping, model.Holders):
        if entry is not None and mapping is not None:
            message = "announce has no effect: ranks tell each other what they hold under 'balanced by holders' only"
            report.warn("no-effect", message, entry.span, help="leave it out")
        return mapping, None
    if entry is None:
        return mapping, resolver.resolve(_phrase((DEFAULT_ANNOUNCE,), entries["balance"].span))
    phrases = split(entry.value, "by")
    if not phrases or phrases[0].words[0].name.text != DIRECTORY:
        return mapping, resolver.resolve(entry.value)
    by = phrases[1:]
    least, moves = (
        _least_ranks(phrases[0], by, resolver, report),
        resolver.resolve(by[0] if by else _phrase(DEFAULT_DIRECTORY, entry.span)),
    )
    return (None, None) if least is None else (replace(mapping, directory=least), moves)


def _phrase(names: Sequence[str], span: Span | None) -> terms.Phrase:
    words = tuple(terms.Word(terms.Name(name, span=span), span=span) for name in names)
    return terms.Phrase(words, ("then",) * (len(words) - 1), span=span)


def _least_ranks(said: terms.Phrase, by: Sequence[terms.Phrase], resolver: Resolver, report: Collector) -> int | None:
    """Return the least number of ranks with a directory; None, with a diagnostic, where it can't be resolved."""
    if len(said.words) > 1 or len(by) > 1:
        message = "a directory is announced to by one schedule, or by two"
        report.error("wrong-value", message, said.span, help="write 'directory(from = 64) by A then B'")
        return None
    given = match_arguments(said.words[0], ("from",), report).get("from")
    least = 1 if given is None else constant_integer(given.value, resolver.environment, report)
    if least is not None and least < 1:
        report.error("wrong-value", f"a directory is for 1 rank or more, not from {least} on", said.span)
        return None
    return least


def holders_across(
    mapping: model.Mapping | None,
    entries: Mapping[str, syntax.EntrySyntax],
    tiers: Sequence[tuple[Span | None, model.Scheme]],
    report: Collector,
) -> model.Holders | None:
    """Return the owners of the outermost of ``tiers``, (where it is named, scheme), where that tier has its own.

    Holders anywhere else are reported: in the ``mapping`` of the scheme that has these tiers, or further inside.
    """
    if isinstance(mapping, model.Holders):
        message = "the tiers share one cut of the tensor, which is the same in every call"
        help = "name a scheme that is balanced by holders as the outermost tier"
        report.error("not-with-holders", message, entries["balance"].span, help=help)
    for place, (span, scheme) in enumerate(tiers, 1):
        if place < len(tiers) and _owners_of(scheme) is not None:
            message = f"'{scheme.name}' is balanced by holders, and other tiers go on with its parts"
            help = "put it outermost, or use 'balanced by permutation' there"
            report.error("not-with-holders", message, span, help=help)
    return _owners_of(tiers[-1][1]) if tiers else None


def _owners_of(scheme: model.Scheme) -> model.Holders | None:
    return scheme.mapping if isinstance(scheme.mapping, model.Holders) else scheme.across


def check_across(
    mapping: model.Mapping | None,
    losses: Sequence[tuple[Span | None, str]],
    of: tuple[Span | None, model.Scheme],
    report: Collector,
) -> None:
    """Report conflicts with a tier that is balanced by holders, and is named (where, scheme) ``of``.

    Parts that are cut anew in each call conflict with it, and ``losses``: (where they are said, in words).
    """
    span, scheme = of
    if isinstance(mapping, model.Encoded):
        message = (
            f"'{scheme.name}' is balanced by holders, and the parts of the tiers inside are the same in every call"
        )
        report.error("not-with-holders", message, span, help="use 'balanced by permutation' inside")
    if scheme.tiers[-1].cut > 1:
        message = f"'{scheme.name}' cuts what each rank owns, and owners in a tier have one part each"
        report.error("not-with-holders", message, span, help="write partition: parallelism there")
    for place, what in losses:
        message = f"{what}, and beside a tier that is balanced by holders nothing is lost"
        help = "leave that out, or put a scheme with another balance outermost"
        report.error("not-with-holders", message, place, help=help)


def check_holders(
    mapping: model.Mapping | None,
    partition: model.Partition | None,
    formats: Mapping[str, model.Format | None],
    entries: Mapping[str, syntax.EntrySyntax],
    report: Collector,
) -> None:
    """Report entries without a meaning under ``balanced by holders``: one part, and formats of indices.

    ``formats`` are those of ``push`` and ``pull``.
    """
    if not isinstance(mapping, model.Holders):
        return
    if partition is model.Partition.CENTRALIZATION:
        message = "owners among holders share the units out, and under centralization there is one part only"
        help = "write partition: parallelism, or leave out balance"
        report.error("not-with-holders", message, entries["balance"].span, help=help)
    for key, format in formats.items():
        if format not in (None, model.Format.AUTO):
            message = f"no format for the {key}: all ranks know the units before, so values travel alone"
            help = f"leave out {key}, or write {key}: auto"
            report.error("not-with-holders", message, entries[key].value.span, help=help)
