"""Saved state of residuals: plain values and tensors for a checkpoint, written and read.

    state  = zenc_residuals: 1  feedback: str  ranks: int  rank: int | None  tensors: {name: tensor}
    tensor = shape: [int]  step: int  threshold: [number, int] | None  ends: [int]
             residual velocity shift sent history: float32 | None   factor: float32  # both factors, where any are kept

``rank`` is None in a state that the ranks have made together: it holds the sums over them, of which each rank takes an
equal share. The history of results and ``sent`` are the same on all ranks, and so are the ends of parts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from zenc.common.versioned import RESIDUALS
from zenc.errors import CostError, Diagnostic, SynchronisationError, TensorError
from zenc.plan.ir import Phase, PhaseKind, Plan
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import gather, summed
from zenc.runtime.lossy.residual_store import VECTORS, Entry, KeptVectors, ResidualStore, Shape, Threshold
from zenc.wire.cuts import Ends

SUMMED = ("residual", "velocity", "shift")
MOST_EXTENTS = 64
"""Most dimensions of a tensor, as in torch."""


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """The state of one name, as ``Entry`` has it; ``vectors`` [elements] are this rank's own."""

    shape: Shape
    step: int
    threshold: Threshold | None
    vectors: KeptVectors
    ends: Ends


@dataclass(frozen=True, slots=True)
class SavedState:
    """State of each name, as it was read."""

    tensors: Mapping[str, SavedTensor]


def first_push(plan: Plan) -> Phase:
    """Return the phase whose selection is that of gradients, and whose code is that of contributions."""
    return plan.of(PhaseKind.PUSH)[0]


def kind_of(plan: Plan) -> str:
    """Return the names of the vectors kept under ``plan``."""
    return " ".join(plan.kept) or "none"


def write_state(store: ResidualStore, plan: Plan, communicator: Communicator, together: bool) -> dict[str, Any]:
    """Return the state of ``store``; of all ranks ``together``, on the turn of their workers."""
    if together:
        _ensure_alike(store, communicator)
    tensors = {name: _written(entry, plan, communicator if together else None) for name, entry in store.entries.items()}
    rank = None if together else communicator.rank
    own = {"feedback": kind_of(plan), "ranks": communicator.size, "rank": rank}
    return {**RESIDUALS.head, **own, "tensors": tensors}


def _ensure_alike(store: ResidualStore, communicator: Communicator) -> None:
    told = repr([(name, entry.shape, entry.step) for name, entry in store.entries.items()])
    if communicator.size > 1 and len(set(gather(communicator, hashlib.sha256(told.encode()).digest()))) > 1:
        message = "the ranks keep residuals of different tensors, or have summed them differently often"
        help = "all ranks must make the same calls, and ask for their state together between two of them"
        raise SynchronisationError(Diagnostic("different-calls", message, help=help))


def _written(entry: Entry, plan: Plan, communicator: Communicator | None) -> dict[str, Any]:
    vectors: dict[str, torch.Tensor | None] = dict.fromkeys(VECTORS)
    for name in plan.kept:
        kept = getattr(entry.vectors, name)
        values = nothing_kept(name, entry.shape) if kept is None else kept.detach().to("cpu", copy=True)
        if communicator is not None and name in SUMMED:
            values = summed(communicator, values)
        vectors[name] = values
    threshold = entry.state.threshold if entry.place == 0 and communicator is None else None
    told = list(threshold) if threshold else None
    ends = list(entry.state.ends) if entry.place == 0 else []
    return {"shape": list(entry.shape), "step": entry.step, "threshold": told, "ends": ends, **vectors}


def nothing_kept(vector: str, shape: Shape) -> torch.Tensor:
    """Return the saved ``vector`` of a tensor of ``shape`` before it has any: zeros, of factors no values."""
    return torch.zeros(math.prod(shape) * (vector in VECTORS), dtype=torch.float32, device="cpu")


@torch.inference_mode(False)
def read_state(state: Any, plan: Plan, rank: int, size: int) -> SavedState:
    """Return the contents of ``state`` for ``rank`` of ``size`` under ``plan``.

    Raises CostError (``bad-state``, ``other-version``), and TensorError (``other-world``) for another rank's own state.
    """
    ensure_held(state)
    if not RESIDUALS.is_form_of(state):
        raise _bad("this is no state of a scheme that leaves something out")
    RESIDUALS.ensure(state, "this state")
    ranks, of, tensors = state.get("ranks"), state.get("rank", -1), state.get("tensors")
    if state.get("feedback") != kind_of(plan):
        raise _bad(f"it keeps {state.get('feedback')!s:.60}, and {plan.scheme} keeps {kind_of(plan)}")
    if not _is_count(ranks) or not (of is None or _is_count(of)) or not isinstance(tensors, Mapping):
        raise _bad("it is cut short: ranks, rank or tensors are missing")
    if of is not None and (of, ranks) != (rank, size):
        message = f"the state is that of rank {of} of {ranks}, and this is rank {rank} of {size}"
        help = "load each rank's own; or save state_dict(together=True), which any number of ranks can load"
        raise TensorError(Diagnostic("other-world", message, help=help))
    share = size if of is None else 1
    return SavedState({str(name): _read(str(name), entry, plan, share) for name, entry in tensors.items()})


def _read(name: str, entry: Any, plan: Plan, share: int) -> SavedTensor:
    if not isinstance(entry, Mapping) or not _is_count(entry.get("step")) or not isinstance(entry.get("shape"), list):
        raise _bad(f"what it has of '{name}' is cut short")
    shape, threshold = tuple(entry["shape"]), entry.get("threshold")
    if not all(_is_count(extent) for extent in shape) or len(shape) > MOST_EXTENTS:
        raise _bad(f"'{name}' has the shape {shape!s:.60}")
    if not (
        threshold is None or (isinstance(threshold, list) and len(threshold) == 2 and all(map(_is_count, threshold)))
    ):
        raise _bad(f"the threshold of '{name}' is {threshold!r:.60}")
    ends = entry.get("ends", [])
    if not isinstance(ends, list) or not all(map(_is_count, ends)) or ends != sorted(ends):
        raise _bad(f"the parts of '{name}' end at {ends!r:.60}")
    vectors = KeptVectors()
    for vector in plan.kept:
        values = entry.get(vector, None if vector in VECTORS else nothing_kept(vector, shape))
        if not isinstance(values, torch.Tensor) or values.dtype != torch.float32 or values.dim() != 1:
            raise _bad(f"the {vector} of '{name}' is missing, or no float32 vector")
        if values.numel() > math.prod(shape) or (vector in VECTORS and values.numel() < math.prod(shape)):
            raise _bad(f"the {vector} of '{name}' has {values.numel()} elements, and its shape {math.prod(shape)}")
        setattr(vectors, vector, values / share if share > 1 and vector in SUMMED else values.clone())
    known = (threshold[0], threshold[1]) if threshold else None
    return SavedTensor(shape, entry["step"], known, vectors, tuple(ends))


def ensure_held(state: Any) -> None:
    """Raise CostError (``bad-state``) for tensors in ``state`` that are larger than their memory.

    A few bytes of a file can be a tensor of any size, whose strides are 0, or which is sparse or has no memory at all.
    """
    pending, seen = [state], set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided or value.is_meta or value.nbytes > value.untyped_storage().nbytes():
                raise _bad(f"a tensor of the shape {tuple(value.shape)} in it has too little memory")
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            pending += value.values() if isinstance(value, Mapping) else value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _bad(why: str) -> CostError:
    return CostError(Diagnostic("bad-state", f"this state can't be gone on from: {why}"))
