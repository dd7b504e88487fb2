"""Resolution of averagings: syntax tree -> Averaging, its divisions as numbers and its scheme resolved.

Errors go to a Collector, so all of it is raised together, as for schemes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from zenc.averaging.model import WORDS, Averaging, Division, EvenDivision, Group, ListedDivision, division_text
from zenc.common.resources import directory
from zenc.common.wording import count, did_you_mean, ranks_text
from zenc.errors import Diagnostic, Span
from zenc.language import syntax, terms
from zenc.language.files import AVERAGINGS, SourceFiles, load_file, shipped_in
from zenc.language.schedule import Expression, Require, Substitution
from zenc.scheme.arguments import Environment, bind_parameters, constant_integer, literal, match_arguments
from zenc.scheme.collector import Collector, Kind, listed, take, unknown
from zenc.scheme.compression_words import read_word, words_of
from zenc.scheme.compressors import check_compressors
from zenc.scheme.library import compression_text
from zenc.scheme.model import Candidate
from zenc.scheme.references import Levels, Naming, candidate
from zenc.scheme.resolve import resolve_scheme
from zenc.scheme.scope import Checker
from zenc.scheme.values import by_key, single_word

AVERAGING_KEYS = ("sums", *WORDS)
"""Keys of an averaging."""
MOST_STEPS = 64
"""Most steps of a period."""
MOST_RANKS = 1 << 16
"""Most ranks that can be listed, or be in one group of a division."""
DIVISIONS: Mapping[str, tuple[str, ...]] = {
    "rows": ("members",),
    "columns": ("members",),
    "strided": ("members", "stride"),
    "everyone": (),
}
"""The names of divisions, each with those of its arguments."""


AVERAGING: Kind[syntax.AveragingSyntax] = Kind(
    "several-schemes",
    "no-averaging",
    "averaging",
    "averagings",
    lambda file: file.averagings,
    "--scheme {0}; in Python scheme={0!r}",
    "write averaging NAME { alternate [rows(2), columns(2)]  sums: dense_ring }",
)


def resolve_averaging(
    program: SourceFiles,
    name: str | None = None,
    parameters: Mapping[str, int | float | str] | None = None,
    levels: Levels | None = None,
) -> tuple[Averaging, tuple[Diagnostic, ...]]:
    """Return the averaging ``name`` of ``program``, or the only one of its main file, and warnings about it.

    Args:
        program: the main file and all that it imports, parsed: see ``zenc.language.files``.
        name: needed where the main file has several.
        parameters: values for parameters of the averaging, also as strings.
        levels: the number of ranks in one unit of a level, for levels without a size.

    Raises:
        SchemeError: with all problems of the averaging, and of the scheme that it names, at once.
    """
    report = Collector()
    found = take(AVERAGING, program, name)
    names = [each.name for each in program.main.averagings]
    names += [each.name for each in program.main.schemes]
    report.twins("averaging or scheme", ((name.text, name.span) for name in names))
    check_compressors(program, report)
    environment = bind_parameters(found, parameters or {}, report)
    reader = _DivisionReader(environment, levels or {}, report)
    divisions = reader.divisions(found)
    entries = by_key(found.entries, AVERAGING_KEYS, report)
    words = {key: _word(entries[key], environment, report) for key in WORDS if key in entries}
    sums = _sums(found, entries.get("sums"), Naming(program, (), environment, report, resolve_scheme), levels or {})
    requirements = _requirements(found, environment, report)
    if not report.failed:
        report.unused(found.parameters, environment.used)
    warnings = report.close()
    assert sums is not None
    alternate = found.alternations[0].span
    word = alternate and Span(alternate.source, alternate.start, alternate.start + len("alternate"))
    whole = found.name.text, found.doc or "", environment.bound, divisions, sums, word, program.sources
    averaging = Averaging(*whole, requirements=requirements, **words, span=found.name.span)
    _ensure_fit(averaging, entries)
    return averaging, warnings


class ShippedAveraging(TypedDict):
    """An averaging that comes with zenc; ``alternate`` has its divisions, ``words`` other entries, as authors write."""

    name: str
    path: str
    alternate: str
    sums: str
    words: dict[str, str]
    summary: str


def shipped_averagings() -> list[ShippedAveraging]:
    """Return the averagings that come with zenc, by name, with their default parameters."""
    found = []
    for name in shipped_in(AVERAGINGS):
        path = directory("schemes") / AVERAGINGS / f"{name}.zen"
        of, _ = resolve_averaging(load_file(path))
        divisions = ", ".join(map(division_text, of.divisions))
        words = {key: words_of(value) for key, value in of.words.items()}
        own = ShippedAveraging(
            name=name, path=str(path), alternate=divisions, sums=of.sums.name, words=words, summary=of.doc
        )
        found.append(own)
    return found


def _word(entry: syntax.EntrySyntax, environment: Environment, report: Collector) -> Any:
    """Return the entry's value, of the words of its key; None, with a diagnostic, for anything else."""
    key = entry.key.text
    if not isinstance(entry.value, terms.Phrase):
        report.error("wrong-value", f"the value of '{key}' is no schedule", entry.value.span)
        return None
    return read_word(f"value of '{key}'", entry.value, WORDS[key], environment, report)


def _sums(
    averaging: syntax.AveragingSyntax, entry: syntax.EntrySyntax | None, naming: Naming, levels: Levels
) -> Candidate | None:
    """Return the scheme of the groups; None, with a diagnostic, where it is missing."""
    if entry is None:
        message = f"averaging '{averaging.name.text}' does not say how a group sums what it averages"
        naming.report.error("missing-key", message, averaging.name.span, help="write sums: dense_ring")
        return None
    word = single_word("sums", entry.value, naming.report)
    return None if word is None else candidate(word, naming, levels)


def _ensure_fit(of: Averaging, entries: Mapping[str, syntax.EntrySyntax]) -> None:
    """Raise SchemeError for words that are right one by one, and wrong beside each other."""
    report, place = Collector(), {key: entry.value.span for key, entry in entries.items()}
    if of.when.steps % of.fragments.count:
        message = f"{of.when.steps} steps are not {count(of.fragments.count, 'run')} of equally many"
        report.error("wrong-range", message, place["fragments"], help="let the steps be a multiple of the runs")
    elif of.overlap and of.overlap.steps >= of.interval:
        message = (
            f"a sum begins each {count(of.interval, 'step')}, so it takes fewer than these, not {of.overlap.steps}"
        )
        report.error("wrong-range", message, place["overlap"], help="give it fewer steps, or average less often")
    if of.period > MOST_STEPS:
        message = f"a period has {MOST_STEPS} steps at most, not {of.period}"
        report.error("wrong-range", message, place["ranks"], help="draw fewer orders of the ranks")
    apart = next((each for each in of.divisions if each != EvenDivision(1)), None)
    if of.outer and apart:
        message = f"an outer optimizer steps from one point, and '{division_text(apart)}' lets groups go apart"
        report.error("outer-groups", message, apart.span, help="write alternate [everyone]")
    if not of.outer and (lost := compression_text(of.sums.scheme)):
        message = f"scheme '{of.sums.name}' does not make the mean of a group: {lost}"
        help = "name one that sums all values as they are, such as dense_ring; or sum changes: outer: sgd(1)"
        report.error("lossy-average", message, of.sums.span, help=help)
    report.close()


def _requirements(
    averaging: syntax.AveragingSyntax, environment: Environment, report: Collector
) -> tuple[Require, ...]:
    checker = Checker(tuple(environment.values), report)
    for each in averaging.requirements:
        checker.expression(each.condition, dict.fromkeys(("size", *environment.values)))
    environment.used |= checker.used
    put = Substitution({name: literal(value) for name, value in environment.bound if isinstance(value, int)})
    return tuple(replace(each, condition=put.expression(each.condition)) for each in averaging.requirements)


@dataclass
class _DivisionReader:
    """A reader of the alternation of an averaging."""

    environment: Environment
    levels: Levels
    report: Collector

    def divisions(self, averaging: syntax.AveragingSyntax) -> tuple[Division, ...]:
        """Return the divisions of a period that can be resolved; the others are reported."""
        if not averaging.alternations:
            message = f"averaging '{averaging.name.text}' does not say which groups average in which step"
            help = "write alternate [rows(2), columns(2)]"
            self.report.error("missing-key", message, averaging.name.span, help=help)
            return ()
        first, *others = averaging.alternations
        for other in others:
            self.report.error("duplicate-key", "an averaging alternates once", other.span)
        if len(first.divisions) > MOST_STEPS:
            message = f"a period has at most {MOST_STEPS} steps"
            self.report.error("wrong-range", message, first.divisions[MOST_STEPS].span)
        found = [self._division(each) for each in first.divisions[:MOST_STEPS]]
        told = tuple(each for each in found if each is not None)
        self._ensure_all_ranks(told)
        return told

    def _division(self, of: syntax.DivisionSyntax) -> Division | None:
        match of:
            case syntax.NamedDivisionSyntax():
                return self._named(of.word)
            case syntax.LevelDivisionSyntax():
                return self._of_levels(of)
        return self._listed(of)

    def _named(self, word: terms.Word) -> Division | None:
        name = word.name.text
        if name not in DIVISIONS:
            also = "inside LEVEL, across LEVEL, or groups [0, 1] [2, 3]"
            self.report.error("unknown-value", unknown("division", name, DIVISIONS, also), word.name.span)
            return None
        given = match_arguments(word, DIVISIONS[name], self.report)
        missing = [argument for argument in DIVISIONS[name] if argument not in given]
        if missing and len(given) == len(word.arguments):
            self.report.error("wrong-arguments", f"'{name}' needs {listed(missing)}", word.span)
        values = [self._number(argument.value, argument.span) for argument in given.values()]
        told = [value for value in values if value is not None]
        if len(told) < len(DIVISIONS[name]):
            return None
        if name == "everyone":
            return EvenDivision(1, span=word.span)
        inner, outer = {"rows": (1, told[0]), "columns": (told[0], None)}.get(name, (told[-1], told[0] * told[-1]))
        return EvenDivision(inner, outer, span=word.span)

    def _of_levels(self, of: syntax.LevelDivisionSyntax) -> Division | None:
        inner = self._level(of.across) if of.across else 1
        outer = self._level(of.inside) if of.inside else None
        if inner is None or (of.inside and outer is None):
            return None
        if outer is not None and outer % inner:
            message = f"{count(outer, 'rank')} inside are not whole units of {inner}"
            self.report.error("tier-size", message, of.span)
            return None
        return EvenDivision(inner, outer, span=of.span)

    def _level(self, word: terms.Word) -> int | None:
        """Return the ranks in one unit of the level that ``word`` names, by its own argument or by the topology."""
        name = word.name.text
        given = match_arguments(word, ("ranks",), self.report)
        if "ranks" in given:
            return self._number(given["ranks"].value, given["ranks"].span)
        if name not in self.levels:
            notes = (f"levels: {listed(self.levels)}{did_you_mean(name, self.levels)}",) if self.levels else ()
            help = f"write how many ranks it has, {name}(8), or give a topology"
            self.report.error("tier-size", f"level '{name}' has no size", word.span, notes=notes, help=help)
        return self.levels.get(name)

    def _number(self, value: Expression | terms.Number, span: Span | None) -> int | None:
        number = constant_integer(value, self.environment, self.report)
        if number is not None and not 1 <= number <= MOST_RANKS:
            self.report.error("wrong-range", f"it takes 1 to {MOST_RANKS:,} ranks, not {number}", span)
            return None
        return number

    def _listed(self, of: syntax.ListedDivisionSyntax) -> Division | None:
        groups = [self._group(group) for group in of.groups]
        told = tuple(group for group in groups if group is not None)
        if len(told) < len(groups):
            return None
        seen: set[int] = set()
        for group, written in zip(told, of.groups, strict=True):
            for rank, expression in zip(group, written, strict=True):
                if rank in seen:
                    message = f"rank {rank} is in two groups of one step" if group.count(rank) == 1 else None
                    message = message or f"rank {rank} is twice in one group"
                    help = "in one step each rank averages once, with one group"
                    self.report.error("overlapping-groups", message, expression.span, help=help)
                    return None
                seen.add(rank)
        return ListedDivision(told, span=of.span)

    def _group(self, written: tuple[Expression, ...]) -> Group | None:
        ranks = [constant_integer(each, self.environment, self.report) for each in written]
        for rank, each in zip(ranks, written, strict=True):
            if rank is not None and not 0 <= rank < MOST_RANKS:
                self.report.error("wrong-range", f"a rank is 0 to {MOST_RANKS - 1:,}, not {rank}", each.span)
                return None
        told = tuple(rank for rank in ranks if rank is not None)
        return told if len(told) == len(ranks) else None

    def _ensure_all_ranks(self, divisions: tuple[Division, ...]) -> None:
        """Report divisions that leave out one of the ranks that any of them lists."""
        lists = [each for each in divisions if isinstance(each, ListedDivision)]
        most = max((rank for each in lists for group in each.listed for rank in group), default=-1)
        for each in lists:
            missing = tuple(sorted(set(range(most + 1)) - {rank for group in each.listed for rank in group}))
            if missing:
                message = f"'{division_text(each)}' is without {ranks_text(missing)}"
                help = "list every rank in every step: one that is to average with nobody is a group by itself, [3]"
                self.report.error("missing-rank", message, each.span, help=help)
