"""One line in a DDP script: ``zenc.attach(ddp_model, "schemes/balanced.zen")``."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Collection, Iterable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from zenc.codegen.artifact import Artifact
from zenc.compiler import load
from zenc.errors import Diagnostic, SchemeError, ZencError
from zenc.runtime.capacity import Shares
from zenc.runtime.deadline import deadline_of
from zenc.runtime.profiler import Profiler, agree
from zenc.torch.handle import Attachment
from zenc.torch.hook import ZencState
from zenc.torch.slot import take
from zenc.torch.unused import UnusedWatch

log = logging.getLogger("zenc")


def attach(
    ddp_model: DistributedDataParallel,
    scheme: str | os.PathLike[str] | Artifact,
    *,
    dense: Iterable[str] = (),
    deadline: float | None = None,
    capacity: Shares | None = None,
    profiler: Profiler | None = None,
) -> Attachment:
    """Let a scheme synchronise the sparse gradients of ``ddp_model``; its dense ones stay with DDP, but for ``dense``.

    Call it on all ranks, after the model was wrapped and before the first backward pass. Works with ``no_sync``,
    gradient accumulation, ``static_graph``, and several or tied ``nn.Embedding(sparse=True)``.

    Args:
        ddp_model: the wrapped model.
        scheme: a ``.zen`` file, a shipped scheme's name, a saved artifact's directory, or an Artifact.
        dense: names of parameters whose dense gradients go through the scheme too, in rows: large tables of which a
            step touches few rows, under an optimizer that takes no sparse gradients, such as Adam.
        deadline: seconds that any single wait may take; see ``zenc.load``.
        capacity: room instead of counts, on GPUs; see ``zenc.load``.
        profiler: counts on some steps which ranks hold which units: see ``zenc.Profiler``. All ranks give one, or none.

    Raises:
        SchemeError: ``not-ddp``, ``hook-taken`` (DDP has a hook already), ``tied-to-dense``, ``unknown-parameter``, or
            ``sparse-already`` for one of ``dense`` that has sparse gradients.
        SynchronisationError: ``different-profilers``.
        ZencError: as ``zenc.load``.
    """
    if not isinstance(ddp_model, DistributedDataParallel):
        message = f"attach takes a model wrapped in DistributedDataParallel, not a {type(ddp_model).__name__}"
        raise SchemeError(Diagnostic("not-ddp", message, help="wrap it first: ddp = DistributedDataParallel(model)"))
    sparse = _sparse_parameters(ddp_model.module)
    asked = _dense_parameters(ddp_model.module, dense, sparse)
    names = {parameter: name for name, parameter in ddp_model.module.named_parameters()}
    collective = load(scheme, ddp_model.process_group, deadline=deadline, capacity=capacity)
    agree(profiler, collective.communicator, deadline_of(deadline, ddp_model.process_group))
    state = ZencState(collective, ddp_model.process_group, names, asked.values(), profiler)
    slot = take(ddp_model, state)
    if not sparse and not asked:
        log.warning("zenc.attach: the model has no nn.Embedding(sparse=True); every gradient stays with DDP")
    return Attachment(state, (*sparse, *asked), slot, UnusedWatch(ddp_model, sparse))


def _sparse_parameters(model: nn.Module) -> dict[str, list[nn.Module]]:
    """Name -> the modules that use it, of the parameters whose gradients are sparse."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad:
                owners.setdefault(id(parameter), []).append((type(module).__name__, module))
    found = {}
    for name, parameter in model.named_parameters():
        users = owners.get(id(parameter), [])
        sparse = [module for _, module in users if getattr(module, "sparse", False) is True]
        if sparse and len(sparse) != len(users):
            raise _tied(name, [kind for kind, module in users if module not in sparse])
        if sparse:
            found[name] = sparse
    return found


def _dense_parameters(model: nn.Module, names: Iterable[str], sparse: Collection[str]) -> dict[str, torch.nn.Parameter]:
    """Name -> parameter, of the dense ones that the caller asks for."""
    known = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name in sparse:
            message = f"'{name}' has sparse gradients, which go through the scheme anyway"
            raise SchemeError(Diagnostic("sparse-already", message, help="leave it out of dense="))
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            help = f"did you mean '{near[0]}'?" if near else "model.named_parameters() has the names"
            raise SchemeError(
                Diagnostic("unknown-parameter", f"the model has no parameter '{name}' to train", help=help)
            )
    return {name: known[name] for name in wanted}


def _tied(name: str, others: list[str]) -> ZencError:
    message = f"'{name}' is a sparse embedding's and also used by {', '.join(others)}, which gives it a dense gradient"
    help = "use sparse=False for this embedding, or weights of its own for the other module"
    return SchemeError(Diagnostic("tied-to-dense", message, help=help))
