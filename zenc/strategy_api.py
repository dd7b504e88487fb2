"""Public functions for strategies, as ``zenc.api`` has them for schemes: check, compile, explain and draw.

A text is about its strategy where it has one; ``scheme`` then names one of several. Arguments are as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zenc.api import AnyPath, asked
from zenc.gradients.spec import DEFAULT_GRADIENT, GradientSpec
from zenc.language.files import load_file, locate
from zenc.scheme.collector import pick
from zenc.scheme.strategies import STRATEGY

if TYPE_CHECKING:
    from zenc.draw.strategy import StrategyDrawing
    from zenc.pipeline.request import Architectures, Parameters, Target
    from zenc.pipeline.strategies import StrategyArtifacts, StrategyReport
    from zenc.scheme.strategy import Strategy
    from zenc.scheme.strategy_checks import NamedSize
    from zenc.strategy.rule_table import RuleTable
    from zenc.strategy.step import TrainingStep
    from zenc.topology.model import Topology


def is_strategy(path: AnyPath, scheme: str | None = None) -> bool:
    """Return whether the file at ``path``, or the part called ``scheme`` in it, is a strategy.

    Raises SchemeSyntaxError, and SchemeError for a file with several strategies where none is named.
    """
    return pick(STRATEGY, load_file(locate(path)), scheme) is not None


def check_strategy(
    path: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    gradient: GradientSpec = DEFAULT_GRADIENT,
    model: AnyPath | None = None,
) -> StrategyReport:
    """Prove the schemes of all rules of the strategy in ``path``; equal ones once.

    ``model``: a profile that ``zenc.attach(ddp, dry_run=True)`` saved, to whose tensors the rules are held.

    Raises ZencError with all errors of the strategy, or of its schemes.
    """
    syntax, request = asked(path, ranks, params, scheme, topology)
    from zenc.pipeline.strategies import resolve_strategy, verify_strategy

    strategy, warnings = resolve_strategy(syntax, request)
    seen = _seen(model)
    if seen:
        from zenc.scheme.strategy_checks import check_model

        warnings += check_model(strategy, seen.tensors, seen.bucket_ends)
    return verify_strategy(strategy, request, gradient, warnings)


def compile_strategy(
    path: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    target: Target = "cpu",
    scheme: str | None = None,
    topology: Topology | None = None,
    arch: Architectures = None,
) -> StrategyArtifacts:
    """Compile the schemes of all rules: those ``on gpu`` for cuda, those ``on host`` for cpu, others for ``target``.

    Raises ZencError of the stage that found something wrong, with all its diagnostics.
    """
    from zenc.pipeline.strategies import strategy_artifacts

    report = check_strategy(path, ranks=ranks, params=params, scheme=scheme, topology=topology)
    return strategy_artifacts(report, target, arch)


def explain_strategy(
    path: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    model: AnyPath | None = None,
) -> RuleTable:
    """Return the rules of the strategy in ``path`` as a table, among ``ranks`` ranks; default: 4, or the topology's.

    Raises as ``check_strategy`` does.
    """
    from zenc.pipeline.request import USUAL_RANKS
    from zenc.strategy.rule_table import rule_table

    size = ranks or (topology.size if topology else USUAL_RANKS)
    report = check_strategy(path, ranks=size, params=params, scheme=scheme, topology=topology, model=model)
    seen = _seen(model)
    plans = {name: replace(one.plan, size=size) for name, one in report.proved.items()}
    return rule_table(report.strategy, plans, size, seen.tensors if seen else None)


def draw_strategy(
    path: AnyPath,
    *,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    model: AnyPath | None = None,
) -> StrategyDrawing:
    """Draw the rules of the strategy in ``path``; with a ``model`` its tensors in groups, by their rules.

    Groups that are searched while a model trains are drawn as DDP's buckets, and called so. Raises as
    ``check_strategy`` does for a text, and DrawingError for more than can be drawn.
    """
    syntax, request = asked(path, None, params, scheme, topology)
    from zenc.draw.strategy import draw_rules
    from zenc.pipeline.strategies import resolve_strategy, verify_strategy

    strategy, _ = resolve_strategy(syntax, request)
    if topology:
        verify_strategy(strategy, request)
    seen = _seen(model)
    if seen is None:
        return draw_rules(strategy)
    from zenc.scheme.strategy_checks import check_model

    check_model(strategy, seen.tensors)
    return draw_rules(strategy, seen.tensors, _group_ends(strategy, seen))


def _group_ends(strategy: Strategy, seen: _SeenModel) -> Sequence[int]:
    from zenc.scheme.strategy import Cuts, Fused
    from zenc.strategy.merging import fused

    match strategy.groups:
        case Cuts(ends):
            return ends
        case Fused(bytes) if bytes:
            return fused(seen.step, bytes)
    return seen.bucket_ends


@dataclass(frozen=True, slots=True)
class _SeenModel:
    """The tensors of a model in the order of the backward pass, and the ends of DDP's buckets by default."""

    step: TrainingStep
    tensors: Sequence[NamedSize]
    bucket_ends: Sequence[int]


def _seen(model: AnyPath | None) -> _SeenModel | None:
    if model is None:
        return None
    from zenc.scheme.strategy_checks import NamedSize
    from zenc.simulator.training.model_profile import read_model_profile
    from zenc.strategy.step import VALUE_BYTES, StepTensor, TrainingStep
    from zenc.strategy.tuning import buckets

    profile = read_model_profile(model)
    order = profile.in_order
    tensors = [NamedSize(each.name, each.bytes) for each in order or profile.parameters]
    step = TrainingStep("model", tuple(StepTensor(name, bytes // VALUE_BYTES, 0.0) for name, bytes in tensors))
    return _SeenModel(step, tensors, buckets(step) if order else ())
