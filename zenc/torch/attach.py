"""The one line in a DDP script: ``zenc.attach(ddp_model, "auto")``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, overload

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from zenc.api import load
from zenc.codegen.artifact import Artifact
from zenc.common.arguments import ensure_types, names_wrong_types
from zenc.common.environment import is_on, setting
from zenc.errors import ZencError
from zenc.language.files import load_file, locate
from zenc.pipeline.request import Parameters
from zenc.runtime.call.layout import all_plain
from zenc.runtime.choice.autoselect import ChoosingCollective
from zenc.runtime.choice.profiler import Profiler
from zenc.runtime.gpu.capacity import Shares
from zenc.runtime.group.agreement import GroupAgreement, Options
from zenc.runtime.load import deadline_of, obtained_by_all
from zenc.runtime.rebuilding.survivors import Counts, kept_by_all
from zenc.scheme.collector import pick
from zenc.simulator.training.model_profile import ModelProfile
from zenc.strategy.artifact import CompiledStrategy, is_compiled_strategy
from zenc.strategy.resolve import STRATEGY
from zenc.torch.accumulated import accumulating
from zenc.torch.announcer import announcer_of
from zenc.torch.dry_run import SAMPLED_EVERY, DryRun, observed
from zenc.torch.feedback import ScaleWatch, ensure_momentum_once
from zenc.torch.handle import Attachment
from zenc.torch.hook import ZencState
from zenc.torch.loadable import keepers_of
from zenc.torch.parameters import (
    NamedParameters,
    UnusedWatch,
    all_dense_parameters,
    dense_parameters,
    ensure_ddp,
    model_told,
    served_by,
    sparse_parameters,
    trained_parameters,
)
from zenc.torch.profiled_model import ensure_profiled
from zenc.torch.slot import Slot, release, take
from zenc.torch.strategy.active_rule import ActiveRule
from zenc.torch.strategy.grouping import grouping_of
from zenc.torch.strategy.loading import ModelParameters, compiled, plans_of, read, rules_for
from zenc.torch.strategy.table_groups import JOINED_BYTES, kinds_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("zenc")

Scheme: TypeAlias = "str | os.PathLike[str] | Artifact"
"""A scheme: a file, a name, a directory or an artifact: see ``zenc.load``."""


class _Options(TypedDict, total=False):
    params: Parameters | None
    dense: bool | Iterable[str]
    exclude: Iterable[str]
    least_values: int | None
    deadline: float | None
    capacity: Shares | None
    profiler: Profiler | None
    scaler: Any
    optimizer: torch.optim.Optimizer | None
    model: ModelProfile | str | os.PathLike[str] | None
    shared_memory: bool
    announce: Literal["forward"] | None
    join: int


@overload
def attach(
    ddp_model: DistributedDataParallel,
    scheme: Scheme = ...,
    *,
    dry_run: Literal[False] = ...,
    **options: Unpack[_Options],
) -> Attachment: ...
@overload
def attach(
    ddp_model: DistributedDataParallel, scheme: Scheme = ..., *, dry_run: Literal[True], **options: Unpack[_Options]
) -> DryRun: ...
@overload
def attach(
    ddp_model: DistributedDataParallel, scheme: Scheme = ..., *, dry_run: bool = ..., **options: Unpack[_Options]
) -> Attachment | DryRun: ...
@names_wrong_types
def attach(
    ddp_model: DistributedDataParallel,
    scheme: Scheme = "auto",
    *,
    params: Parameters | None = None,
    dense: bool | Iterable[str] = False,
    exclude: Iterable[str] = (),
    least_values: int | None = None,
    deadline: float | None = None,
    capacity: Shares | None = None,
    profiler: Profiler | None = None,
    scaler: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    model: ModelProfile | str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    shared_memory: bool = True,
    announce: Literal["forward"] | None = None,
    join: int = JOINED_BYTES,
) -> Attachment | DryRun:
    """Let a scheme synchronise the sparse gradients of ``ddp_model``, and those dense ones that ``dense`` names.

    Call it on all ranks, after the model was wrapped and before the first backward pass. Works with ``no_sync``,
    gradient accumulation, ``static_graph``, and several or tied ``nn.Embedding(sparse=True)``.

    Args:
        ddp_model: the wrapped model.
        scheme: a ``.zen`` file, a shipped scheme's name, a saved artifact's directory, or an Artifact. In a file with a
            strategy, or a directory that one was compiled to, each rule has a scheme of its own, and all gradients,
            dense ones too, go by the rules.
        params: values of the scheme's parameters, by name: ``params={"seed": 7}``, for a scheme that is compiled here.
        dense: names of parameters whose dense gradients go through the scheme too, in rows: large tables of which a
            step touches few rows, under an optimizer that takes no sparse gradients, such as Adam. True: all dense
            gradients do, element by element, those of a bucket in one call. A scheme that selects or keeps residuals
            sums no other gradients, and needs this; sparse ones stay with DDP then, which is said once.
        exclude: names of parameters that stay with DDP under ``dense=True``; ``*`` stands for anything.
        least_values: tensors of fewer values stay with DDP under ``dense=True``; default: 1024 where the scheme is
            lossy, as biases and norms matter more than their bytes, otherwise 1, and where it sums vectors whole.
        deadline: seconds that any single wait may take; see ``zenc.load``.
        capacity: the room of calls on GPUs, or "exact"; see ``zenc.load``.
        profiler: counts the holders of units on some steps: see ``zenc.Profiler``. All ranks give one, or none.
        scaler: the ``torch.amp.GradScaler`` that scales the loss, if one does: the scheme's residuals follow its scale,
            and steps that it skips leave no trace there.
        optimizer: the one that ``ddp_model`` is trained by, to be told where momentum would be summed twice.
        model: the profile of a model, or its file, that the strategy or the choice of a scheme was made for: an error
            where it is not of the parameters that ``ddp_model`` trains.
        dry_run: change nothing, and load no scheme: DDP goes on its own way, and the handle's ``profile`` has the units
            of gradients, the time of steps, and the share of synchronisation in it. See ``DryRun``.
        shared_memory: False: ranks of one host exchange over the wire, too; see ``zenc.load``.
        announce: "forward": under schemes that are balanced by holders ranks announce the rows they looked up when a
            forward pass in training mode ends whose backward pass synchronises; so their gradients need not wait for
            that. All ranks make such forward passes equally often, also those whose backward never comes. Wrong
            announcements cost time, never a sum. Default: each call announces itself.
        join: bytes of tables, as they lie in memory, whose sparse gradients go in one call, where DDP has them one
            after another, of one width and dtype, on the CPU; 0: each in its own. It is the same on all ranks. Larger
            tables, those that were announced, and those of a strategy have calls of their own.

    Raises:
        SchemeError: ``not-ddp``, ``hook-taken`` (DDP has a hook already), ``tied-to-dense``, ``unknown-parameter``, or
            ``sparse-already`` for one of ``dense`` that has sparse gradients; ``needs-dense``; ``momentum-twice``;
            ``not-announced``; of a strategy ``device-not-there`` and ``cuts-out-of-range``.
        SynchronisationError: ``different-options``, ``different-profilers``; and where another rank has failed.
        TensorError: ``other-model``; ``not-announced``; ``unsupported-dtype``.
        ZencError: as in ``zenc.load``.
    """
    asked = _AttachOptions(
        scheme,
        params,
        dense if isinstance(dense, bool) else _listed(dense),
        _listed(exclude),
        least_values,
        deadline,
        capacity,
        profiler,
        scaler,
        optimizer,
        model,
        shared_memory,
        announce,
        join,
    )
    if dry_run:
        return asked.observed(ddp_model)
    handle = asked.attached(ddp_model)
    if not is_on("ZENC_ATTACH"):
        log.warning("zenc.attach: ZENC_ATTACH=0, and all gradients go DDP's own way")
        handle.detach()
    return handle


@dataclass(frozen=True, slots=True)
class _AttachOptions:
    """The arguments of ``attach``, for this model, and for the next one that it is wrapped in."""

    scheme: Scheme
    params: Parameters | None
    dense: bool | tuple[str, ...]
    exclude: tuple[str, ...]
    least_values: int | None
    deadline: float | None
    capacity: Shares | None
    profiler: Profiler | None
    scaler: Any
    optimizer: torch.optim.Optimizer | None
    model: ModelProfile | str | os.PathLike[str] | None
    shared_memory: bool
    announce: Literal["forward"] | None
    join: int

    def observed(self, ddp_model: DistributedDataParallel) -> DryRun:
        """Return a dry run of ``ddp_model``."""
        profiler = self.profiler or Profiler(SAMPLED_EVERY)
        named = self._agreed(ddp_model, profiler, dry_run=True)
        asked = (*named.sparse, *named.rows, *named.together)
        return observed(ddp_model, named.trained, asked, self.deadline, profiler)

    def attached(self, ddp_model: DistributedDataParallel, before: Attachment | None = None) -> Attachment:
        """Return the handle of the scheme at work, which goes on from the state of ranks that had it ``before``."""
        named = self._agreed(ddp_model, self.profiler)
        group, seconds = ddp_model.process_group, deadline_of(self.deadline, ddp_model.process_group)
        state = self._loaded(named, group, seconds)
        agreement = GroupAgreement(state.collective.communicator, seconds)
        try:
            slot, goes_on = agreement.obtained(
                lambda: self._at_work(ddp_model, named, state), lambda _: _told_of(state), keeps=before is not None
            )
        except BaseException:
            release(ddp_model, state)
            state.announcer.remove()
            raise
        parameters = tuple(name for rule in state.rules for name in rule.served.names)
        if not parameters:
            log.warning("zenc.attach: the model has no nn.Embedding(sparse=True); every gradient stays with DDP")
        watch = UnusedWatch(ddp_model, named.sparse, accumulating(map(named.trained.__getitem__, named.sparse)))
        handle = Attachment(state, parameters, slot, watch, self.attached)
        if goes_on:
            carry_over(before, handle)
        return handle

    def _at_work(self, ddp_model: DistributedDataParallel, named: _Named, state: ZencState) -> Slot:
        for plan in plans_of(each.artifact for each in state.collectives):
            ensure_momentum_once(plan, self.optimizer)
        state.scaling = ScaleWatch(state.collectives, self.scaler) if self.scaler is not None else None
        parameter_of = {name: parameter for parameter, name in named.names.items()}
        for rule in state.rules if ddp_model.mixed_precision is None else ():
            rule.collective.ensure_takes(parameter_of[name].dtype for name in rule.served.names)
        state.announcer = announcer_of(state.rules, named.sparse, parameter_of, ddp_model, self.announce)
        if self.join:
            state.plan.join(kinds_of(state.rules, parameter_of), self.join, waits=not ddp_model.static_graph)
        state.unused = bool(ddp_model.find_unused_parameters or ddp_model.static_graph)
        return take(ddp_model, state)

    def _agreed(self, ddp_model: DistributedDataParallel, profiler: Profiler | None, dry_run: bool = False) -> _Named:
        """Return the parameters of ``ddp_model`` asked for, once all ranks ask for the same with the same options."""
        ensure_ddp(ddp_model)

        def told(named: _Named) -> Options:
            own = {"dry_run": str(dry_run), "profiler": str(profiler or "no profiler"), **self._told()}
            return {**own, **model_told(ddp_model, named.trained, named.sparse)}

        return obtained_by_all(lambda _: self._named(ddp_model), told, ddp_model.process_group, self.deadline)

    def _told(self) -> Options:
        """Return the options that other ranks must have given, too; the scheme's are compared when it is loaded."""
        given = {
            "dense": self.dense if isinstance(self.dense, bool) else sorted(self.dense),
            "exclude": sorted(self.exclude),
            "least_values": self.least_values,
            "announce": self.announce,
            "join": self.join,
            "scaler": "given" if self.scaler is not None else "not given",
            "capacity": self.capacity,
            "shared_memory": self.shared_memory,
            "ZENC_ATTACH": setting("ZENC_ATTACH"),
        }
        return {name: str(value) for name, value in given.items()}

    def _named(self, ddp_model: DistributedDataParallel) -> _Named:
        model, dense, trained = ddp_model.module, self.dense, trained_parameters(ddp_model)
        later = {"profiler": self.profiler, "optimizer": self.optimizer, "shared_memory": self.shared_memory}
        ensure_types(attach, join=self.join, **later)  # they are used when ranks can hear of no error
        if self.model is not None:
            ensure_profiled(trained, self.model)
        sparse = sparse_parameters(model, trained)
        rows = {} if isinstance(dense, bool) else dense_parameters(trained, dense, sparse)
        together = all_dense_parameters(trained, self.exclude, sparse) if dense is True else {}
        names = {parameter: name for name, parameter in model.named_parameters()}
        all_plain((*map(trained.__getitem__, sparse), *rows.values(), *together.values()))
        return _Named(trained, sparse, rows, together, names)

    def _loaded(self, named: _Named, group: dist.ProcessGroup, seconds: float) -> ZencState:
        obtain = _strategy(self.scheme, self.params)
        if obtain is None:
            collective = load(
                self.scheme,
                group,
                params=self.params,
                deadline=self.deadline,
                capacity=self.capacity,
                shared_memory=self.shared_memory,
            )
            plan, sparse = collective.artifact.plan, tuple(named.sparse)
            served = served_by(plan, sparse, named.rows, named.together, self.least_values)
            return ZencState((ActiveRule("", collective, served),), group, named.names, profiler=self.profiler)
        parameters_of = _parameters(named, self.exclude, self.least_values or 1)
        rules, groups = rules_for(parameters_of, obtain, group, seconds, self.capacity, self.shared_memory)
        state = ZencState(rules, group, named.names, profiler=self.profiler)
        chosen = [each for each in state.collectives if isinstance(each, ChoosingCollective)]
        communicator = state.collective.communicator
        state.plan.grouping = grouping_of(groups, communicator, lambda: sum(each.choices for each in chosen))
        return state


@dataclass(frozen=True, slots=True)
class _Named:
    """Parameters of a model that a scheme is asked to serve, by name, and the ``names`` of all that it has.

    Of those ``trained`` by DDP: ``sparse`` ones with the modules that use them; dense ones by ``rows`` or ``together``.
    """

    trained: NamedParameters
    sparse: Mapping[str, list[nn.Module]]
    rows: Mapping[str, nn.Parameter]
    together: Mapping[str, nn.Parameter]
    names: Mapping[torch.Tensor, str]


def _told_of(state: ZencState) -> Options:
    return {f"rule {number}": f"{rule.text}: {', '.join(rule.served.names)}" for number, rule in enumerate(state.rules)}


def _listed(names: Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _strategy(scheme: Scheme, params: Parameters | None) -> Callable[[int], CompiledStrategy] | None:
    """Return a function from the number of ranks to the strategy of ``scheme``; None where it is not a strategy."""
    if isinstance(scheme, Artifact):
        return None
    try:
        path = locate(scheme)
        if os.path.isdir(path):
            return (lambda size: read(path, size, params)) if is_compiled_strategy(path) else None
        syntax = load_file(path)
    except ZencError:  # it is raised where all ranks hear of it
        return None
    return (lambda size: compiled(syntax, size, params)) if pick(STRATEGY, syntax) is not None else None


def _parameters(named: _Named, exclude: Collection[str], least_values: int) -> ModelParameters:
    known, rows, dense = named.trained, named.rows, all_dense_parameters(named.trained, exclude, named.sparse)
    together = {name: each for name, each in dense.items() if name not in rows and each.numel() >= least_values}
    return ModelParameters({name: known[name] for name in named.sparse}, rows, together, len(known))


@dataclass(frozen=True, slots=True)
class KeptByModel:
    """The state of a model to which ``handle`` was attached."""

    handle: Attachment

    def counts(self) -> Counts:
        """Return the counts as ``Kept.counts`` does."""
        return {name: count for keeper in keepers_of(self.handle.state) for name, count in keeper.counts().items()}

    def undo(self, names: Collection[str]) -> None:
        """Undo as ``Kept.undo`` does."""
        for keeper in keepers_of(self.handle.state):
            keeper.undo([name for name in keeper.counts() if name in names])

    def state(self) -> dict[str, Any]:
        """Return the state as ``Kept.state`` does."""
        return self.handle.state_dict()


def carry_over(before: Attachment | None, handle: Attachment) -> None:
    """Let ``handle`` go on from the state of ranks that were attached ``before``; this one may not have been.

    All ranks call it. Raises SynchronisationError as ``kept_by_all`` does, and as ``load_state_dict`` does.
    """
    own, communicator = None if before is None else KeptByModel(before), handle.collective.communicator
    if before is not None:
        before.state.log.undo_step()
        handle.state.log.goes_on_from(before.state.log)
    handle.load_state_dict(communicator.worker.within(lambda: kept_by_all(own, communicator)))
    for old in before.collectives if before is not None else ():
        if old.communicator is communicator:
            old.close()
