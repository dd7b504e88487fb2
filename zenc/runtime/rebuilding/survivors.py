"""Survivors of a group: the ranks of a new one find out together which state they go on from.

    each rank comes with its state, or as a new one without any
    1. all exchange the number of calls of each tensor
    2. a call that some ranks have ended, and others not, is undone where it has ended
    3. the first rank with a state gives all ranks the common part: decisions, counts, the history of results
    4. each rank keeps its own part, residuals and velocities, which begins at zero on a rank without any
    5. what all ranks have sent becomes the sum of what those that are there have

The residuals of a rank that is gone are lost with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import gather, given_by, summed
from zenc.runtime.lossy.residual_store import CallCount
from zenc.runtime.lossy.saved_state import SUMMED
from zenc.runtime.rebuilding.plain_data import packed, unpacked

if TYPE_CHECKING:
    from zenc.runtime.call.collective import Collective

Counts: TypeAlias = "dict[str, CallCount]"
"""The name of a tensor -> its shape, and the number of its calls."""


class Kept(Protocol):
    """State that this rank has kept of an earlier group."""

    def counts(self) -> Counts:
        """Return the counts of each tensor with a state."""

    def undo(self, names: Collection[str]) -> None:
        """Go back to before the last call of each of ``names``."""

    def state(self) -> dict[str, Any]:
        """Return plain data and tensors: the common state of all ranks, and the ``residuals`` of this one, if any."""


@dataclass(frozen=True, slots=True)
class KeptByCollective:
    """The state of ``collective``."""

    collective: Collective

    def counts(self) -> Counts:
        """Return the counts as ``Kept.counts`` does."""
        return self.collective.keeper.counts() if self.collective.keeper else {}

    def undo(self, names: Collection[str]) -> None:
        """Undo as ``Kept.undo`` does."""
        if self.collective.keeper:
            self.collective.keeper.undo(names)

    def state(self) -> dict[str, Any]:
        """Return the state as ``Kept.state`` does."""
        keeper = self.collective.keeper
        choices = self.collective.state_dict() if self.collective.artifact.choosing else {}
        own = {"residuals": keeper.state_dict(), "closed": keeper.is_closed} if keeper else {}
        return {"choices": choices, **own}


def go_on(collective: Collective, kept: Mapping[str, Any]) -> None:
    """Let ``collective``, which has summed nothing yet, go on from the state ``kept`` by another one."""
    keeper = collective.keeper
    if collective.artifact.choosing:
        collective.load_state_dict(kept["choices"])
    if keeper:
        keeper.load_state_dict(kept["residuals"])
        keeper.is_closed = bool(kept["closed"])


def kept_by_all(own: Kept | None, communicator: Communicator) -> dict[str, Any]:
    """Return the state that this rank goes on from, by those of all ranks of ``communicator``; some rank has one.

    All ranks call it on the worker's turn. Raises SynchronisationError (``different-states``) on all of them where
    their states can't be made the same.
    """
    told = json.dumps(own.counts()).encode() if own else b""
    found = [_read(each) if each else None for each in gather(communicator, told)]
    least = _least({rank: each for rank, each in enumerate(found) if each is not None})
    if own:
        own.undo([name for name, count in own.counts().items() if count.step > least[name]])
    state = own.state() if own else {}
    root = next(rank for rank, each in enumerate(found) if each is not None)
    shared = unpacked(given_by(communicator, root, packed(_shared(state)) if communicator.rank == root else b""))
    if "residuals" in shared:
        shared["residuals"] = _with_own(shared["residuals"], state.get("residuals") or {}, communicator)
    return dict(shared)


def _least(found: Mapping[int, Counts]) -> dict[str, int]:
    """Return the number of calls of each tensor that all ranks with a state have made."""
    names = dict.fromkeys(name for each in found.values() for name in each)
    return {name: _least_of(name, {rank: each.get(name) for rank, each in found.items()}) for name in names}


def _least_of(name: str, counts: Mapping[int, CallCount | None]) -> int:
    known = {rank: count for rank, count in counts.items() if count is not None}
    some, (shape, *_) = next(iter(known.items()))
    last = min(counts, key=lambda rank: known[rank].step if rank in known else 0)
    least = known[last].step if last in known else 0
    for rank, count in known.items():
        if count.shape != shape:
            raise _different(f"'{name}' has the shape {shape} on rank {some}, and {count.shape} on rank {rank}")
        if count.step > least + count.can_undo:
            more = "" if count.can_undo else ", and has begun the next one"
            raise _different(f"rank {rank} has ended call {count.step} of '{name}'{more}; rank {last} call {least}")
    return least


def _read(told: bytes) -> Counts:
    found = {name: (tuple(shape), step, can_undo) for name, (shape, step, can_undo) in json.loads(told).items()}
    return {name: CallCount(*count) for name, count in found.items()}


def _different(what: str) -> SynchronisationError:
    message = f"the ranks have kept what does not belong together: {what}"
    help = "rebuild what took part in the same calls; or load the last checkpoint on all ranks"
    return SynchronisationError(Diagnostic("different-states", message, help=help))


def _shared(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``state`` that is the same on all ranks; an empty vector stands where each has its own."""
    if "residuals" not in state:
        return dict(state)
    residuals = state["residuals"]
    tensors = {name: {**entry, "threshold": None, **_emptied(entry)} for name, entry in residuals["tensors"].items()}
    return {**state, "residuals": {**residuals, "tensors": tensors}}


def _emptied(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        vector: None if entry[vector] is None else torch.empty(0, dtype=torch.float32, device="cpu")
        for vector in SUMMED
    }


def _with_own(shared: Mapping[str, Any], own: Mapping[str, Any], communicator: Communicator) -> dict[str, Any]:
    known = own.get("tensors", {})
    tensors = {name: _own_entry(entry, known.get(name, {})) for name, entry in shared["tensors"].items()}
    for entry in tensors.values():
        if entry.get("sent") is not None:
            entry["sent"] = -summed(communicator, entry["shift"])
    return {**shared, "rank": communicator.rank, "ranks": communicator.size, "tensors": tensors}


def _own_entry(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    filled = {vector: own.get(vector, _zeros(shared["shape"])) for vector in SUMMED if shared[vector] is not None}
    return {**shared, "threshold": own.get("threshold"), **filled}


def _zeros(shape: Sequence[int]) -> torch.Tensor:
    return torch.zeros(math.prod(shape), dtype=torch.float32, device="cpu")
