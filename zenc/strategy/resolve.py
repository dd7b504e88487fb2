"""Resolution of strategies: syntax tree -> Strategy, each rule with the schemes that it names.

A file is about its strategy where it has one, and about a scheme otherwise: schemes beside a strategy are there to be
named by it. Errors go to a Collector, so all of it is raised together, as for schemes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from zenc.errors import Diagnostic
from zenc.language import syntax, terms
from zenc.language.files import SourceFiles
from zenc.scheme.arguments import Environment, bind_parameters, integer_within, match_given
from zenc.scheme.collector import Collector, Kind, take, unknown
from zenc.scheme.compressors import check_compressors
from zenc.scheme.model import Candidate, Choice
from zenc.scheme.references import Levels, Naming, candidate, read_choice, schemes_of
from zenc.scheme.resolve import resolve_choosing, resolve_scheme
from zenc.scheme.units import amount, memory_text
from zenc.scheme.values import by_key
from zenc.strategy.model import (
    DEVICES,
    AllOthers,
    Buckets,
    Cuts,
    Device,
    Fused,
    Groups,
    LargerThan,
    NamedLike,
    SearchedCuts,
    Strategy,
    StrategyRule,
    TensorSet,
    covers,
)

STRATEGY_KEYS = ("groups",)
"""Keys of a strategy."""
MOST_RULES = 2000
MOST_GROUPS = 64
"""Most groups that may be searched for; each is one more search over all tensors."""


STRATEGY: Kind[syntax.StrategySyntax] = Kind(
    "several-schemes",
    "no-strategy",
    "strategy",
    "strategies",
    lambda file: file.strategies,
    "--scheme {0}; in Python scheme={0!r}",
    "write strategy NAME { others: SCHEME }",
)


def resolve_strategy(
    program: SourceFiles,
    name: str | None = None,
    parameters: Mapping[str, int | float | str] | None = None,
    levels: Levels | None = None,
) -> tuple[Strategy, tuple[Diagnostic, ...]]:
    """Return the strategy ``name`` of ``program``, or the only one of its main file, and warnings about it.

    Args:
        program: the main file and all that it imports, parsed: see ``zenc.language.files``.
        name: needed where the main file has several.
        parameters: values for parameters of the strategy, also as strings.
        levels: the number of ranks in one unit of a level, for tiers without a size.

    Raises:
        SchemeError: with all problems of the strategy, and of the schemes that it names, at once.
    """
    report = Collector()
    found = take(STRATEGY, program, name)
    named = [(each.name.text, each.name.span) for each in program.main.strategies]
    named += [(each.name.text, each.name.span) for each in program.main.schemes]
    report.twins("strategy or scheme", named)
    check_compressors(program, report)
    environment = bind_parameters(found, parameters or {}, report)
    options = by_key(found.options, STRATEGY_KEYS, report)
    groups = _groups(options["groups"], environment, report) if "groups" in options else Buckets()
    rules = _RuleReader(found, program, environment, levels or {}, report).rules()
    name_, doc, bound = found.name, found.doc or "", environment.bound
    strategy = Strategy(name_.text, doc, bound, groups or Buckets(), rules, program.sources, span=name_.span)
    _report_covered(strategy, report)
    if not report.failed:
        report.unused(found.parameters, environment.used)
    return strategy, report.close()


# ---- Groups


def _groups(option: syntax.OptionSyntax, environment: Environment, report: Collector) -> Groups | None:
    name = option.name.text
    if name not in GROUPS:
        report.error("unknown-value", unknown("grouping", name, GROUPS), option.name.span)
        return None
    return GROUPS[name](option, environment, report)


def _buckets(option: syntax.OptionSyntax, _: Environment, report: Collector) -> Groups:
    match_given("buckets", option.settings, (), report)
    return Buckets(span=option.span)


def _cuts(option: syntax.OptionSyntax, environment: Environment, report: Collector) -> Groups:
    names = [f"cut {place + 1}" for place in range(len(option.settings))]
    given = match_given("cuts", option.settings, names, report)
    if not option.settings:
        help = "cuts(12, 40): groups end before the tensors 12 and 40; without any, search(1)"
        report.error("wrong-arguments", "'cuts' needs the tensors that groups end before", option.name.span, help=help)
    ends = [_count(setting, "a cut", environment, report) for setting in given.values()]
    told = [(end, setting.span) for end, setting in zip(ends, given.values(), strict=True) if end is not None]
    for (before, _), (end, span) in pairwise(told):
        if end <= before:
            report.error("wrong-range", f"cuts ascend, and {end} stands behind {before}", span)
    return Cuts(tuple(end for end, _ in told), span=option.span)


def _search(option: syntax.OptionSyntax, environment: Environment, report: Collector) -> Groups | None:
    given = match_given("search", option.settings, ("most",), report).get("most")
    if given is None:
        return SearchedCuts(2, span=option.span)
    most = _count(given, "a number of groups", environment, report)
    if most is not None and most > MOST_GROUPS:
        report.error("wrong-range", f"at most {MOST_GROUPS} groups are searched for, not {most}", given.span)
    return SearchedCuts(most, span=option.span) if most is not None else None


def _fused(option: syntax.OptionSyntax, environment: Environment, report: Collector) -> Groups | None:
    given = match_given("fused", option.settings, ("size",), report).get("size")
    if given is None:
        return Fused(span=option.span)
    if not isinstance(given.value, terms.Quantity):
        report.error("wrong-type", "the size of a buffer has a unit", given.span, help="write fused(4 MB)")
        return None
    bytes = amount("memory", given.value, environment, report)
    if bytes is not None and not 1 <= bytes <= 2**50:
        report.error("wrong-range", f"a buffer has 1 byte or more, not {memory_text(bytes)}", given.span)
    return Fused(int(bytes), span=option.span) if bytes is not None else None


GROUPS: Mapping[str, Callable[[syntax.OptionSyntax, Environment, Collector], Groups | None]] = {
    "buckets": _buckets,
    "cuts": _cuts,
    "search": _search,
    "fused": _fused,
}
"""Words that may follow ``groups``, each with its reader."""


def _count(setting: terms.Setting, what: str, environment: Environment, report: Collector) -> int | None:
    if isinstance(setting.value, terms.Quantity):
        report.error("wrong-type", f"{what} is a plain number, without a unit", setting.span)
        return None
    return integer_within(setting.value, setting.span, range(1, 2**64), f"{what} is 1 or more", environment, report)


# ---- Rules, and words


def groups_text(groups: Groups) -> str:
    """Return ``cuts(12, 40)``, ``fused(4 MB)``, ``search(2)`` or ``buckets``, as an author writes it."""
    match groups:
        case Cuts(ends):
            return f"cuts({', '.join(map(str, ends))})"
        case SearchedCuts(most):
            return f"search({most})"
        case Fused(bytes):
            return "fused" if bytes is None else f"fused({memory_text(bytes)})"
    return "buckets"


def tensors_text(tensors: TensorSet) -> str:
    """Return ``tensors "wte.*"``, ``tensors above 1 MB`` or ``others``, as an author writes it."""
    match tensors:
        case NamedLike(pattern):
            return f'tensors "{pattern}"'
        case LargerThan(bytes):
            return f"tensors above {memory_text(bytes)}"
    return "others"


@dataclass
class _RuleReader:
    """A reader of the rules of ``strategy``."""

    strategy: syntax.StrategySyntax
    program: SourceFiles
    environment: Environment
    levels: Levels
    report: Collector

    def rules(self) -> tuple[StrategyRule, ...]:
        """Return the rules that can be resolved; the others are reported."""
        rules, name = self.strategy.rules, self.strategy.name
        if len(rules) > MOST_RULES:
            self.report.error("wrong-range", f"a strategy has at most {MOST_RULES:,} rules", rules[MOST_RULES].span)
        if not any(isinstance(rule.tensors, syntax.AllOthersSyntax) for rule in rules):
            message = f"strategy '{name.text}' does not say how all other tensors are summed"
            help = "write others: dense_ring, which sums them as they are"
            self.report.error("missing-key", message, name.span, help=help)
        found = [self._rule(rule) for rule in rules[:MOST_RULES]]
        return tuple(rule for rule in found if rule is not None)

    def _rule(self, rule: syntax.RuleSyntax) -> StrategyRule | None:
        tensors, device = self._tensors(rule.tensors), self._device(rule.device)
        naming = Naming(self.program, (), self.environment, self.report, resolve_scheme)
        sums = self._sums(rule.sums, tensors, naming)
        if tensors is None or device is None or sums is None:
            return None
        return StrategyRule(tensors, sums, device, span=rule.tensors.span)

    def _tensors(self, of: syntax.TensorsSyntax) -> TensorSet | None:
        match of:
            case syntax.NamedLikeSyntax():
                if not of.pattern or "\0" in of.pattern:
                    self.report.error("wrong-value", "no tensor has this name", of.span, help='"*" is all tensors')
                return NamedLike(of.pattern)
            case syntax.LargerThanSyntax():
                bytes = amount("memory", of.size, self.environment, self.report)
                if bytes is not None and bytes < 0:
                    message = f"a tensor has 0 bytes or more, not {memory_text(bytes)}"
                    self.report.error("wrong-range", message, of.size.span)
                return None if bytes is None else LargerThan(bytes)
        return AllOthers()

    def _device(self, name: terms.Name | None) -> Device | None:
        if name is None:
            return ""
        for device in DEVICES:
            if name.text == device:
                return device
        help = "gpu: by kernels of the GPU that has the gradient; host: copied to the host, and summed there"
        self.report.error("unknown-value", unknown("device", name.text, DEVICES), name.span, help=help)
        return None

    def _sums(
        self, of: terms.Word | syntax.ChoiceSyntax, tensors: TensorSet | None, naming: Naming
    ) -> Candidate | Choice | None:
        if isinstance(of, syntax.ChoiceSyntax):
            return self._choice(of, tensors, naming)
        _, scheme = schemes_of(self.program).get(of.name.text, (None, None))
        return self._named_choice(of, naming) if scheme and scheme.choices else candidate(of, naming, self.levels)

    def _choice(self, of: syntax.ChoiceSyntax, tensors: TensorSet | None, naming: Naming) -> Choice | None:
        read = read_choice(of, naming, self.levels, may_differ=True)
        if read is None or tensors is None:
            return None
        name = f"{self.strategy.name.text}: {tensors_text(tensors)}"
        return Choice(name, "", (), *read, self.program.sources, span=of.settings.span)

    def _named_choice(self, word: terms.Word, naming: Naming) -> Choice | None:
        program, scheme = schemes_of(self.program)[word.name.text]
        values = naming.arguments(word, [parameter.name.text for parameter in scheme.parameters])
        choice = resolve_choosing(program, (scheme,), values or {}, self.levels, self.report)
        return choice and replace(choice, span=word.span)


def covering(strategy: Strategy, rule: StrategyRule) -> StrategyRule | None:
    """Return the first rule before ``rule`` that matches all its tensors; None where there is no such rule."""
    before = takewhile(lambda other: other is not rule, strategy.rules)
    return next((other for other in before if covers(other.tensors, rule.tensors)), None)


def _report_covered(strategy: Strategy, report: Collector) -> None:
    for rule in strategy.rules:
        first = covering(strategy, rule)
        if first is None:
            continue
        text, where = tensors_text(rule.tensors), f"the rule before it: {first.span}"
        if first.tensors == rule.tensors:
            message = f"there are two rules for '{text}', and the first counts"
            report.error("duplicate-rule", message, rule.span, notes=(where,))
        else:
            message = f"'{text}' never matches: '{tensors_text(first.tensors)}' before it matches all of them"
            report.warn("shadowed-rule", message, rule.span, help="write narrower rules first")
