"""Strategies as ``zenc.open`` returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from zenc.api import AnyPath, OpenedText
from zenc.gradients.spec import DEFAULT_GRADIENT, GradientSpec

if TYPE_CHECKING:
    from zenc.pipeline.request import Architectures, Target
    from zenc.strategy.checks import NamedSize
    from zenc.strategy.picture import StrategyDrawing
    from zenc.strategy.pipeline import StrategyArtifacts, StrategyReport
    from zenc.strategy.rule_table import RuleTable
    from zenc.strategy.simulation.step import TrainingStep


class StrategyText(OpenedText):
    """A text about a strategy, as ``zenc.open`` returns it: which scheme sums which tensors of a model.

    ``model`` is a profile that ``zenc.attach(ddp, dry_run=True)`` saved, to whose tensors rules are held.
    """

    kind: ClassVar[Literal["strategy"]] = "strategy"

    def check(self, gradient: GradientSpec = DEFAULT_GRADIENT, *, model: AnyPath | None = None) -> StrategyReport:
        """Prove the schemes of all rules; equal ones once.

        Raises ZencError with all errors of the strategy, or of its schemes.
        """
        from zenc.strategy.pipeline import resolve_strategy, verify_strategy

        strategy, warnings = resolve_strategy(self.syntax, self.asked)
        seen = _seen(model)
        if seen:
            from zenc.strategy.checks import check_model

            warnings += check_model(strategy, seen.tensors, seen.bucket_ends)
        return verify_strategy(strategy, self.asked, gradient, warnings)

    def compile(self, target: Target = "cpu", arch: Architectures = None) -> StrategyArtifacts:
        """Compile the schemes of all rules: ``on gpu`` for cuda, ``on host`` for cpu, and others for ``target``.

        Raises ZencError of the stage that found something wrong, with all its diagnostics.
        """
        from zenc.strategy.pipeline import strategy_artifacts

        return strategy_artifacts(self.check(), target, arch)

    def explain(self, *, model: AnyPath | None = None) -> RuleTable:
        """Return the rules as a table, among 4 ranks unless others are asked for. Raises as ``check`` does."""
        from zenc.pipeline.request import USUAL_RANKS
        from zenc.strategy.rule_table import rule_table

        size = self.asked.size or USUAL_RANKS
        report = self.at(size).check(model=model)
        seen = _seen(model)
        plans = {name: replace(one.plan, size=size) for name, one in report.proved.items()}
        return rule_table(report.strategy, plans, size, seen.tensors if seen else None)

    def draw(self, *, model: AnyPath | None = None) -> StrategyDrawing:
        """Draw the rules; with a ``model`` its tensors in groups, by their rules.

        Groups that are searched while a model trains are drawn as DDP's buckets, and called so. Raises as ``check``
        does for a text, and DrawingError for more than can be drawn.
        """
        from zenc.strategy.picture import draw_rules
        from zenc.strategy.pipeline import resolve_strategy, verify_strategy

        strategy, _ = resolve_strategy(self.syntax, self.asked)
        if self.asked.topology:
            verify_strategy(strategy, self.asked)
        seen = _seen(model)
        if seen is None:
            return draw_rules(strategy)
        from zenc.strategy.checks import check_model
        from zenc.strategy.merging import ends_of

        check_model(strategy, seen.tensors)
        return draw_rules(strategy, seen.tensors, ends_of(strategy.groups, seen.step, seen.bucket_ends))

    def load(self, *_: object, **__: object) -> NoReturn:
        """Raise SchemeError (``wrong-kind``): a strategy is about a model, not about one tensor."""
        raise self.lacks("load", "zenc.attach(ddp_model, FILE) sums the gradients of a model by it")


@dataclass(frozen=True, slots=True)
class _SeenModel:
    """The tensors of a model in the order of the backward pass, and the ends of DDP's buckets by default."""

    step: TrainingStep
    tensors: Sequence[NamedSize]
    bucket_ends: Sequence[int]


def _seen(model: AnyPath | None) -> _SeenModel | None:
    if model is None:
        return None
    from zenc.simulator.training.model_profile import read_model_profile
    from zenc.strategy.checks import NamedSize
    from zenc.strategy.search.tuning import buckets
    from zenc.strategy.simulation.step import VALUE_BYTES, StepTensor, TrainingStep

    profile = read_model_profile(model)
    order = profile.in_order
    tensors = [NamedSize(each.name, each.bytes) for each in order or profile.parameters]
    step = TrainingStep("model", tuple(StepTensor(name, bytes // VALUE_BYTES, 0.0) for name, bytes in tensors))
    return _SeenModel(step, tensors, buckets(step) if order else ())
