"""States of handles: a check that one can be loaded, which all ranks make together, before anything is changed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from zenc.common.versioned import CHOICES, COUNTS, HANDLE
from zenc.errors import CostError, Diagnostic, SynchronisationError, TensorError, ZencError, first_line
from zenc.plan.ir import Plan
from zenc.runtime.call.collective import Collective
from zenc.runtime.group.agreement import in_a_line
from zenc.runtime.group.host_collectives import gather
from zenc.runtime.lossy.keeper import Keeper
from zenc.runtime.lossy.residual_store import VECTORS
from zenc.runtime.lossy.saved_state import SUMMED, ensure_held, kind_of, nothing_kept, read_state
from zenc.torch.hook import ZencState

FAILED = b"failed: "


def keepers_of(of: ZencState) -> dict[Keeper, tuple[str, ...]]:
    """Return collectives that may lose something, each with the names of the parameters that it sums."""
    found: dict[Keeper, tuple[str, ...]] = {}
    for rule in of.rules:
        if (keeper := rule.collective.keeper) is not None:
            found[keeper] = (*found.get(keeper, ()), *rule.served.names)
    return found


def choosers_of(of: ZencState) -> list[Collective]:
    """Return collectives whose own state is about choices, not about residuals."""
    return [each for each in of.collectives if each.artifact.choosing]


def choices_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decisions in ``state``, each with the number of ranks that it was made for."""
    found, ranks = state.get("choices"), {"ranks": state.get("ranks")}
    decided = found if isinstance(found, Mapping) else {}
    return {key: {**ranks, **each} if isinstance(each, Mapping) else each for key, each in decided.items()}


def ensure_loadable(state: Any, of: ZencState) -> None:
    """Raise the error of ``state`` for the rules of ``of``.

    All ranks call it. A rank whose own state is fine raises SynchronisationError (``different-states``) where another's
    is not, or where the common parts differ.
    """
    communicator = of.collective.communicator
    failure: ZencError | None = None
    try:
        told = _sound(state, of)
    except ZencError as error:
        failure, told = error, FAILED + in_a_line(error).encode()
    answers = communicator.worker.within(lambda: gather(communicator, told))
    if failure is not None:
        raise failure
    failed = {rank: each for rank, each in enumerate(answers) if each.startswith(FAILED)}
    if failed or len(set(answers)) > 1:
        notes = tuple(f"rank {rank} {each.decode()}" for rank, each in failed.items())
        message = "the ranks were given different states to go on from"
        help = "load the same checkpoint on all ranks; of residuals each rank's own, or those of all together"
        raise SynchronisationError(Diagnostic("different-states", message, notes=notes, help=help))


def _sound(state: Any, of: ZencState) -> bytes:
    """Return the digest of a state that fits the rules of ``of``; raises CostError and TensorError."""
    try:
        if not HANDLE.is_form_of(state):
            raise CostError(Diagnostic("bad-state", "this is no state of a handle"))
        for form, part in ((HANDLE, state), (CHOICES, state.get("choices")), (COUNTS, state.get("profiler"))):
            if isinstance(part, Mapping):
                form.ensure(part, "this state")
        ensure_held(state)
        _ensure_residuals(state, of)
        return _digest(state)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        message = f"this is no state of a handle: {first_line(error)}"
        raise CostError(Diagnostic("bad-state", message)) from error


def _ensure_residuals(state: Mapping[str, Any], of: ZencState) -> None:
    """Raise CostError or TensorError for residuals that are not those of the parameters with keeping rules."""
    keepers, residuals = keepers_of(of), state.get("residuals")
    keeping = {keeper: names for keeper, names in keepers.items() if keeper.keeps}
    if keeping and not isinstance(residuals, Mapping):
        message = f"this state has no residuals, and {next(iter(keeping)).artifact.name} goes on from them"
        help = "save handle.state_dict() of a handle with this scheme; to begin at zero, load none"
        raise CostError(Diagnostic("bad-state", message, help=help))
    calls, scale = state.get("calls") or [], state.get("scale")
    if not isinstance(calls, list) or not all(isinstance(call, list) and call for call in calls):
        raise CostError(Diagnostic("bad-state", "it is cut short: the calls of its last step are no lists of names"))
    if not (scale is None or (isinstance(scale, int | float) and 0 < scale < math.inf)):
        raise CostError(Diagnostic("bad-state", "the scale of its gradients is no number above 0"))
    there: dict[str, tuple[int, ...]] = {}
    for keeper, names in keepers.items() if isinstance(residuals, Mapping) else ():
        own, among = part_of(residuals, keeper, names, of.shapes), keeper.communicator
        read = read_state(own, keeper.artifact.plan, among.rank, among.size)
        there.update({name: tensor.shape for name, tensor in read.tensors.items() if keeper.keeps})
    here = {name: of.shapes[name] for names in keeping.values() for name in names}
    for name, rest in _left_over(residuals, here, of.shapes):
        there[name] = rest
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            ours, theirs = (_shown(of_it.get(name)) for of_it in (here, there))
            message = f"'{name}' is {ours} that goes through {of.name} here, and {theirs} in the state"
            help = "load the state of this model, attached in the same way"
            raise TensorError(Diagnostic("other-model", message, help=help))


def _left_over(
    residuals: Any, here: Collection[str], shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes in a state that no rule keeps, without parameters whose residuals are zero."""
    tensors = residuals.get("tensors") if isinstance(residuals, Mapping) else None
    for name, entry in tensors.items() if isinstance(tensors, Mapping) else ():
        if name not in here and isinstance(entry, Mapping):
            kept = any(isinstance(each := entry.get(vector), torch.Tensor) and bool(each.any()) for vector in SUMMED)
            shape = tuple(entry.get("shape") or ())
            if kept or shapes.get(name) != shape:
                yield name, shape


def part_of(residuals: Any, keeper: Keeper, names: Collection[str], shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return the part of ``residuals`` that ``keeper`` goes on from: those of ``names``, whichever scheme kept them.

    Vectors that it did not keep, such as momentum, begin at zero, in the ``shapes`` by name. A value that is not such a
    state is returned as it is.
    """
    tensors = residuals.get("tensors") if isinstance(residuals, Mapping) else None
    if not isinstance(tensors, Mapping):
        return residuals
    plan = keeper.artifact.plan
    own = {name: _completed(tensors[name], plan, shapes[name]) for name in names if name in tensors}
    counts = {} if keeper.keeps else {"rank": None}  # by these it draws at random, alike on all ranks
    return {**residuals, **counts, "feedback": kind_of(plan), "tensors": own}


def _completed(entry: Any, plan: Plan, shape: tuple[int, ...]) -> Any:
    missing = [vector for vector in plan.kept if isinstance(entry, Mapping) and entry.get(vector, 0) is None]
    if not missing or entry.get("shape") != list(shape):
        return entry
    return {**entry, **{vector: nothing_kept(vector, shape) for vector in missing}}


def _shown(shape: tuple[int, ...] | None) -> str:
    return "no tensor" if shape is None else f"a tensor of the shape {list(shape)}"


def completed(kept: Sequence[Mapping[str, Any]], of: ZencState) -> dict[str, Any]:
    """Return the states ``kept`` of all keepers as one, with parameters that no call has summed so far.

    Under a strategy it has also the parameters of rules that keep nothing, so that other rules can take them later.
    """
    tensors = {name: entry for each in kept for name, entry in each["tensors"].items()}
    for rule in of.rules:
        for name in (*rule.served.rows, *rule.served.together):
            if name not in tensors and (rule.collective.keeper is not None or rule.text):
                tensors[name] = _nothing(of.shapes[name], rule.collective.keeper)
    kinds = dict.fromkeys(each["feedback"] for each in kept)
    return {**kept[0], "feedback": ", ".join(kinds), "tensors": tensors}


def _nothing(shape: tuple[int, ...], keeper: Keeper | None) -> dict[str, Any]:
    vectors: dict[str, torch.Tensor | None] = dict.fromkeys(VECTORS)
    for vector in keeper.artifact.plan.kept if keeper else ():
        vectors[vector] = nothing_kept(vector, shape)
    return {"shape": list(shape), "step": 0, "threshold": None, "ends": [], **vectors}


def _digest(state: Mapping[str, Any]) -> bytes:
    residuals = state.get("residuals")
    own = isinstance(residuals, Mapping) and residuals.get("rank") is not None
    shared = {key: value for key, value in state.items() if key != "residuals" or not own}
    return hashlib.sha256(json.dumps(shared, sort_keys=True, default=_told).encode()).digest()


def _told(value: object) -> object:
    """Return a tensor in a state as text, for its digest."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return hashlib.sha256(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
