"""Loading of strategies: text -> rules at work, by all ranks together, for the parameters of one model.

    text --resolve, verify--> rules and artifacts --this module--> the parameters of each rule --load--> ActiveRule*
    directory --read--> rules and artifacts

Errors of a strategy and this model are found before anything is loaded, and all ranks hear of them.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist

from zenc.api import artifact_for
from zenc.codegen.artifact import Artifact
from zenc.common.wording import count
from zenc.errors import Diagnostic, SchemeError
from zenc.language.files import SourceFiles
from zenc.pipeline import backend
from zenc.pipeline.request import Parameters, Request
from zenc.plan.ir import Plan
from zenc.runtime.call.collective import Collective
from zenc.runtime.gpu.capacity import Shares
from zenc.runtime.load import load_collective, obtained_by_all
from zenc.strategy.artifact import CompiledRule, CompiledStrategy, load_compiled_strategy
from zenc.strategy.model import AllOthers, Cuts, Groups
from zenc.strategy.pipeline import resolve_strategy, strategy_artifacts, verify_strategy
from zenc.strategy.resolve import tensors_text
from zenc.torch.parameters import Served, takes_dense_only
from zenc.torch.strategy.active_rule import ActiveRule
from zenc.torch.strategy.grouping import say
from zenc.torch.strategy.host_offload import CudaCopies, HostOffload

log = logging.getLogger("zenc")


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """The parameters of a model that a strategy is about, by name, in the order of the model.

    ``sparse`` ones have sparse gradients; dense ones go by ``rows`` or ``together``. ``count``: the number of all
    trained ones.
    """

    sparse: Mapping[str, torch.Tensor]
    rows: Mapping[str, torch.Tensor]
    together: Mapping[str, torch.Tensor]
    count: int

    @property
    def all(self) -> dict[str, torch.Tensor]:
        """The parameters by name, each of any shape."""
        return {**self.sparse, **self.rows, **self.together}


def compiled(syntax: SourceFiles, size: int, params: Parameters | None) -> CompiledStrategy:
    """Return the strategy of ``syntax`` for ``size`` ranks; kernels of GPUs are compiled in the first call with them.

    Raises the ZencError of the arrow that found something wrong.
    """
    request = Request(size, params)
    strategy, warnings = resolve_strategy(syntax, request)
    report = verify_strategy(strategy, request, warnings=warnings)
    anywhere = tuple(replace(rule, device="") for rule in strategy.rules)
    made = strategy_artifacts(replace(report, strategy=replace(strategy, rules=anywhere)))
    return replace(made, strategy=strategy).compiled


def read(directory: str | os.PathLike[str], size: int, params: Parameters | None) -> CompiledStrategy:
    """Return the strategy compiled to ``directory``, for ``size`` ranks; raises ArtifactError as ``zenc.load`` does."""
    strategy = load_compiled_strategy(directory)
    for rule in strategy.rules:
        artifact_for(size, rule.artifact, params)
    return strategy


def rules_for(
    model: ModelParameters,
    compile: Callable[[int], CompiledStrategy],
    group: dist.ProcessGroup | None,
    deadline: float,
    capacity: Shares | None = None,
    shared_memory: bool = True,
) -> tuple[tuple[ActiveRule, ...], Groups]:
    """Return the rules of a strategy at work for ``model``, those that serve something, and its groups.

    All ranks call it, and load each scheme once. Raises SchemeError (``device-not-there``, ``cuts-out-of-range``), and
    as ``compile`` and ``zenc.load`` do.
    """

    def obtain(size: int) -> CompiledStrategy:
        made = compile(size)
        ensure_fit(made, model)
        return made

    made = obtained_by_all(obtain, lambda found: {"scheme": f"strategy {told(found)}"}, group, deadline)
    loaded: dict[tuple[str, bool], Collective] = {}
    rules = []
    for rule in made.rules:
        artifact, served = rule.artifact, served_of(rule, made, model)
        if not served.names:
            continue
        on_host = rule.device == "host"
        key = artifact.digest, on_host
        if key not in loaded:
            on = torch.device("cpu") if on_host else None
            shares = None if on_host else capacity
            obtained = partial(_given, artifact)
            loaded[key] = load_collective(
                obtained, backend, group, deadline, shares, on=on, may_lose=True, shared_memory=shared_memory
            )
        host = _offload([*served.rows.values(), *served.together.values()]) if on_host else None
        rules.append(ActiveRule(rule_text(rule), loaded[key], served, artifact.choosing is not None, host))
    if not rules:
        message = f"strategy '{made.name}' is about no gradient of this model"
        raise SchemeError(Diagnostic("no-such-tensor", message, help="leave out exclude= and least_values="))
    return tuple(rules), made.groups


def _given(artifact: Artifact, _: int) -> Artifact:
    return artifact


def told(made: CompiledStrategy) -> str:
    """Return a strategy's name, and digits that two share only if all ranks sum the same tensors in the same calls."""
    rules = [(rule_text(rule), rule.artifact.digest) for rule in made.rules]
    digest = hashlib.sha256(repr([made.groups, *rules]).encode()).hexdigest()
    return f"{made.name[:60]} ({digest[:12]})"


def rule_text(rule: CompiledRule) -> str:
    """Return ``tensors above 1 MB on host``, as its author wrote it, without the scheme."""
    return tensors_text(rule.tensors) + (f" on {rule.device}" if rule.device else "")


def ensure_fit(strategy: CompiledStrategy, model: ModelParameters) -> None:
    """Raise SchemeError for rules and groups that ``model`` can't have; log rules without a tensor of it."""
    problems = [each for name, of in model.all.items() if (each := _wrong_device(strategy, name, of))]
    cuts = strategy.groups.ends if isinstance(strategy.groups, Cuts) else ()
    if beyond := [cut for cut in cuts if cut >= model.count]:
        message = f"no group can end before tensor {beyond[0]}: the model has {count(model.count, 'tensor')} to train"
        help = f"cuts are from 1 to {model.count - 1}; `zenc profile show` lists the tensors in their order"
        problems.append(Diagnostic("cuts-out-of-range", message, strategy.span, help=help))
    if problems:
        raise SchemeError(list(dict.fromkeys(problems)))
    matched = {id(strategy.matching(name, bytes_of(of))) for name, of in model.all.items()}
    for rule in strategy.rules:
        if id(rule) not in matched and not isinstance(rule.tensors, AllOthers):
            message = f"the model has no tensor for the rule '{rule_text(rule)}'"
            say(Diagnostic("no-such-tensor", message, help="ddp.module.named_parameters() has the names"))


def _wrong_device(strategy: CompiledStrategy, name: str, of: torch.Tensor) -> Diagnostic | None:
    rule = strategy.matching(name, bytes_of(of))
    if rule.device != "gpu" or of.is_cuda:
        return None
    message = f"the rule '{rule_text(rule)}' sums on a GPU, and '{name}' is on the {of.device.type}"
    help = "move the model to a GPU before it is wrapped, or leave out 'on gpu'"
    return Diagnostic("device-not-there", message, rule.span, help=help)


def bytes_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor of any shape."""
    return tensor.numel() * tensor.element_size()


def served_of(rule: CompiledRule, strategy: CompiledStrategy, model: ModelParameters) -> Served:
    """Return the parameters of ``model`` that ``rule`` is the first to match, without sparse ones that it can't sum."""

    def own(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: each for name, each in parameters.items() if strategy.matching(name, bytes_of(each)) is rule}

    sparse = tuple(own(model.sparse))
    if sparse and not any(not takes_dense_only(plan) for plan in plans_of([rule.artifact])):
        scheme = rule.artifact.plan.scheme
        log.warning("zenc.attach: %s sums dense gradients; %s stay with DDP", scheme, ", ".join(sparse))
        sparse = ()
    return Served(sparse, own(model.rows), own(model.together))


def plans_of(artifacts: Iterable[Artifact]) -> list[Plan]:
    """Return the plans of ``artifacts``, and of all candidates of those that choose."""
    return [each.plan for one in artifacts for each in (one.choosing.candidates.values() if one.choosing else (one,))]


def _offload(parameters: Iterable[torch.Tensor]) -> HostOffload | None:
    devices = {each.device for each in parameters if each.is_cuda}
    return HostOffload(CudaCopies(devices.pop())) if devices else None
