"""States of handles: whether one can be gone on from, which all ranks find out together, before anything is changed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

import torch

from zenc.errors import CostError, Diagnostic, SynchronisationError, TensorError, ZencError
from zenc.runtime.communicator import in_a_line
from zenc.runtime.compression.lossy_collective import LossyCollective
from zenc.runtime.compression.saved_state import read_state
from zenc.torch.hook import ZencState

STATE_VERSION = 1
FAILED = b"failed: "


def ensure_loadable(state: Any, of: ZencState, parameters: Collection[str]) -> None:
    """Raise the error of ``state`` for the scheme of ``of``, which sums the gradients of ``parameters``.

    All ranks call it. A rank whose own state is fine raises SynchronisationError (``different-states``) where another's
    is not, or where what is the same on all ranks differs.
    """
    communicator = of.collective.communicator
    failure = _failure(state, of, parameters)
    told = FAILED + in_a_line(failure).encode() if failure else _digest(state)
    answers = communicator.worker.within(lambda: communicator.gather(told))
    if failure is not None:
        raise failure
    failed = {rank: each for rank, each in enumerate(answers) if each.startswith(FAILED)}
    if failed or len(set(answers)) > 1:
        notes = tuple(f"rank {rank} {each.decode()}" for rank, each in failed.items())
        message = "the ranks were given different states to go on from"
        help = "load the same checkpoint on all ranks; of residuals each rank's own, or those of all together"
        raise SynchronisationError(Diagnostic("different-states", message, notes=notes, help=help))


def _failure(state: Any, of: ZencState, parameters: Collection[str]) -> ZencError | None:
    """What is wrong with the state of this rank alone."""
    try:
        if not isinstance(state, Mapping) or state.get("zenc_state") != STATE_VERSION:
            raise CostError(Diagnostic("bad-state", "this is no state of a handle, or of another version of zenc"))
        if isinstance(of.collective, LossyCollective):
            _ensure_residuals(state, of, parameters)
    except ZencError as error:
        return error
    return None


def _ensure_residuals(state: Mapping[str, Any], of: ZencState, parameters: Collection[str]) -> None:
    """Raise CostError or TensorError for residuals that are not those of ``parameters``."""
    collective = of.collective
    assert isinstance(collective, LossyCollective)
    if not collective.keeps:
        return
    if "residuals" not in state:
        message = f"this state has no residuals, and {collective.artifact.name} goes on from them"
        help = "save handle.state_dict() of a handle with this scheme; to begin at zero, load none"
        raise CostError(Diagnostic("bad-state", message, help=help))
    read = read_state(state["residuals"], collective.artifact.plan, collective.rank, collective.size)
    here = {name: of.shapes[name] for name in parameters}
    there = {name: tensor.shape for name, tensor in read.tensors.items()}
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            ours, theirs = (_shown(of_it.get(name)) for of_it in (here, there))
            message = f"'{name}' is {ours} that goes through {collective.artifact.name} here, and {theirs} in the state"
            help = "load the state of this model, attached in the same way"
            raise TensorError(Diagnostic("other-model", message, help=help))


def _shown(shape: tuple[int, ...] | None) -> str:
    return "no tensor" if shape is None else f"a tensor of the shape {list(shape)}"


def completed(kept: dict[str, Any], of: ZencState, parameters: Collection[str]) -> dict[str, Any]:
    """The state ``kept`` with those of ``parameters`` that no call has summed so far, of which nothing is kept."""
    tensors = dict(kept["tensors"])
    for name in parameters:
        if name not in tensors:
            shape = of.shapes[name]
            zeros = {vector: torch.zeros(math.prod(shape)) for vector in of.collective.artifact.plan.kept}
            tensors[name] = {"shape": list(shape), "step": 0, "threshold": None, **zeros}
    return {**kept, "tensors": tensors}


def _digest(state: Mapping[str, Any]) -> bytes:
    """Of all that is the same on all ranks."""
    residuals = state.get("residuals")
    own = isinstance(residuals, Mapping) and residuals.get("rank") is not None
    shared = {key: value for key, value in state.items() if key != "residuals" or not own}
    return hashlib.sha256(json.dumps(shared, sort_keys=True, default=_told).encode()).digest()


def _told(value: object) -> object:
    """A tensor in a state, for its digest."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return hashlib.sha256(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
