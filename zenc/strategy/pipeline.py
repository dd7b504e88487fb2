"""The pipeline for strategies: each rule goes along the arrows of ``zenc.pipeline``, and equal schemes go once.

Syntax --resolve_strategy--> Strategy --verify_strategy--> StrategyReport --strategy_artifacts--> StrategyArtifacts
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from zenc.codegen.artifact import Artifact
from zenc.common.wording import count
from zenc.errors import BuildError, Diagnostic, VerificationError, ZencError
from zenc.gradients.spec import DEFAULT_GRADIENT, GradientSpec
from zenc.language.files import SourceFiles
from zenc.pipeline import build, joined, prove, render
from zenc.pipeline.request import Architectures, Report, Request, Schemes, Target, proved_lines
from zenc.plan.lower import lower
from zenc.scheme.model import Choice, Scheme
from zenc.strategy import resolve
from zenc.strategy.artifact import CompiledRule, CompiledStrategy
from zenc.strategy.model import Device, Strategy, StrategyRule

MOST_LETTERS = 60
"""Most letters of the name of a directory."""
TARGETS: Mapping[Device, Target] = {"gpu": "cuda", "host": "cpu"}
"""The target that a device is compiled for; a rule without a device is for the requested target."""


@dataclass(frozen=True, slots=True)
class StrategyReport:
    """A strategy, with a report on the schemes of each rule, in their order; equal schemes share one."""

    strategy: Strategy
    reports: tuple[Report, ...]
    warnings: tuple[Diagnostic, ...]

    def of(self, rule: StrategyRule) -> Report:
        """Return the report on the scheme of ``rule``, or on its candidates."""
        return self.reports[self.strategy.rules.index(rule)]

    @property
    def name(self) -> str:
        """The name of the strategy."""
        return self.strategy.name

    def to_json(self) -> dict[str, object]:
        """Return the rules, with tensors, device and the names of schemes, and what was proved, as JSON data."""
        rules = [
            {
                "rule": resolve.tensors_text(rule.tensors),
                "device": rule.device,
                "schemes": [each.name for each in rule.candidates],
            }
            for rule in self.strategy.rules
        ]
        schemes = {name: {**one.proof_json(), **one.placement_json()} for name, one in self.proved.items()}
        return {"rules": rules, "schemes": schemes, "diagnostics": [warning.to_json() for warning in self.warnings]}

    def lines(self, file: str) -> list[str]:
        """Return the report in words, as those of ``file``."""
        proved = self.proved
        rules, schemes = count(len(self.strategy.rules), "rule"), count(len(proved), "scheme")
        first = f"{file}: strategy {self.name} has {rules} with {schemes}: {', '.join(proved)}"
        return [first, *proved_lines(file, proved)]

    @property
    def proved(self) -> dict[str, Report]:
        """The report on each scheme by its name, each once."""
        found: dict[str, Report] = {}
        for rule, report in zip(self.strategy.rules, self.reports, strict=True):
            for each in rule.candidates:
                if not report.choice or each.name in report.candidates:
                    found.setdefault(each.name, report.candidates.get(each.name, report))
        return found


@dataclass(frozen=True, slots=True)
class StrategyArtifacts:
    """A compiled strategy: an artifact for each rule, in their order; rules that are compiled alike share one."""

    strategy: Strategy
    artifacts: tuple[Artifact, ...]

    def of(self, rule: StrategyRule) -> Artifact:
        """Return the artifact that sums the tensors of ``rule``."""
        return self.artifacts[self.strategy.rules.index(rule)]

    @property
    def compiled(self) -> CompiledStrategy:
        """The rules and groups with their artifacts, without their texts."""
        pairs = zip(self.strategy.rules, self.artifacts, strict=True)
        rules = tuple(CompiledRule(rule.tensors, rule.device, each, span=rule.span) for rule, each in pairs)
        return CompiledStrategy(self.strategy.name, self.strategy.groups, rules, span=self.strategy.span)

    def save(self, directory: str | os.PathLike[str]) -> dict[str, Path]:
        """Write each artifact once, and the rules, to ``directory``; return the place of each artifact, by name.

        Raises ArtifactError (``artifact-not-written``) where they can't be written.
        """
        return self.compiled.save(directory, self.distinct)

    @property
    def distinct(self) -> dict[str, Artifact]:
        """The distinct artifacts, by a name that a directory can have: of its scheme with arguments, or of its rule."""
        found: dict[str, Artifact] = {}
        for rule, artifact in zip(self.strategy.rules, self.artifacts, strict=True):
            if all(artifact is not other for other in found.values()):
                name = re.sub(r"\W+", "_", rule.sums.name).strip("_")[:MOST_LETTERS]
                name = f"{name}_{artifact.target}" if name in found else name
                found[name if name not in found else f"{name}_{len(found)}"] = artifact
        return found

    def rules_of(self, artifact: Artifact) -> list[StrategyRule]:
        """Return the rules whose tensors are summed by ``artifact``."""
        pairs = zip(self.strategy.rules, self.artifacts, strict=True)
        return [rule for rule, each in pairs if each is artifact]


def resolve_strategy(syntax: SourceFiles, request: Request) -> tuple[Strategy, tuple[Diagnostic, ...]]:
    """Resolve the syntax to a strategy, and warnings; raises SchemeError. ``request.scheme`` is the strategy's name."""
    return resolve.resolve_strategy(syntax, request.scheme, request.params or {}, request.levels)


def verify_strategy(
    strategy: Strategy,
    request: Request,
    gradient: GradientSpec = DEFAULT_GRADIENT,
    warnings: tuple[Diagnostic, ...] = (),
) -> StrategyReport:
    """Lower and prove the strategy rule by rule; a scheme that several rules name is proved once.

    Raises:
        VerificationError: with the errors of all schemes; notes name their rules.
        TopologyError: for the first scheme that a topology does not fit.
    """
    proved: dict[Scheme, Report] = {}
    problems: list[Diagnostic] = []
    reports: list[Report] = []
    for rule in strategy.rules:
        try:
            reports.append(_proved(rule, request, gradient, proved))
        except VerificationError as error:
            problems += _noted(error, strategy, rule)
    if problems:
        raise VerificationError(problems)
    found = dict.fromkeys(warning for report in reports for warning in report.warnings)
    return StrategyReport(strategy, tuple(reports), (*warnings, *found))


def _noted(error: ZencError, strategy: Strategy, rule: StrategyRule) -> list[Diagnostic]:
    note = f"rule of strategy '{strategy.name}': {rule.span}"
    return [replace(each, notes=(*each.notes, note)) for each in error.diagnostics]


def _proved(rule: StrategyRule, request: Request, gradient: GradientSpec, proved: dict[Scheme, Report]) -> Report:
    choice = rule.sums if isinstance(rule.sums, Choice) else None
    schemes = Schemes({each.name: each.scheme for each in rule.candidates}, (), choice).able(request.size)
    for scheme in schemes.schemes.values():
        if scheme not in proved:
            proved[scheme] = prove(scheme, lower(scheme, request.size), request, gradient)
    return joined(schemes, {name: proved[scheme] for name, scheme in schemes.schemes.items()})


def strategy_artifacts(report: StrategyReport, target: Target = "cpu", arch: Architectures = None) -> StrategyArtifacts:
    """Compile the artifacts of the rules: each for the device of its rule, or otherwise for ``target``.

    Raises BuildError for a scheme that a target can't do, and as ``zenc.compile`` does.
    """
    made: list[tuple[Report, Target, Artifact]] = []
    artifacts: list[Artifact] = []
    for rule, one in zip(report.strategy.rules, report.reports, strict=True):
        wanted = target if target == "plan" else TARGETS.get(rule.device, target)
        known = (artifact for other, at, artifact in made if at == wanted and _alike(other, one))
        try:
            artifact = next(known, None) or build(render(one, wanted), arch if wanted == "cuda" else None)
        except BuildError as error:
            raise BuildError(_noted(error, report.strategy, rule)) from error
        made.append((one, wanted, artifact))
        artifacts.append(artifact)
    return StrategyArtifacts(report.strategy, tuple(artifacts))


def _alike(first: Report, second: Report) -> bool:
    """Return whether two rules are compiled to the same."""
    return first.choice == second.choice and first.scheme == second.scheme
