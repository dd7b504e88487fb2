"""Keeper: what the calls of a collective leave out, by the names of tensors, read and changed between calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.lossy.residual_store import CallCount, ResidualStore, no_residual
from zenc.runtime.lossy.saved_state import SavedState, read_state, write_state


class Keeper:
    """Residuals of the calls of ``artifact``. ``keeps``: whether anything is kept by name, or calls are counted."""

    def __init__(self, artifact: Artifact, communicator: Communicator, keeps: bool) -> None:
        self.artifact, self.communicator, self.keeps = artifact, communicator, keeps
        self.store = ResidualStore()
        """Residuals by name; others that sum the same tensors may share the store, from before the first call on."""

    def residual(self, name: str) -> torch.Tensor:
        """Return the residual of the tensor ``name``, float32, in its shape, as ``Collective.residual`` does."""
        return self.communicator.worker.run(lambda: self._residual(name))

    def _residual(self, name: str) -> torch.Tensor:
        entry = self.store.entries.get(name)
        if entry is None or self.artifact.plan.feedback is None:
            raise no_residual(self.artifact.plan.scheme, name)
        if (kept := entry.vectors.added) is None:
            return torch.zeros(entry.shape, dtype=torch.float32, device="cpu")
        return kept.clone().view(entry.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of which something is kept, or was loaded."""
        return tuple(self.store.entries)

    @property
    def is_closed(self) -> bool:
        """True where a name of which nothing is kept yet is an error, as after ``load_state_dict``."""
        return self.store.closed

    @is_closed.setter
    def is_closed(self, closed: bool) -> None:
        self.store.closed = closed

    def counts(self) -> dict[str, CallCount]:
        """Return the count of each name that was summed."""
        return self.store.counts()

    def undo(self, names: Iterable[str]) -> None:
        """Undo the last call of each of ``names``, which counts no more then."""
        chosen = list(names)
        self.communicator.worker.run(lambda: self.store.undo(chosen))

    def take_back(self, names: Iterable[str]) -> None:
        """Undo what the last call of each of ``names`` has kept, as ``LossyCollective.take_back`` does."""
        chosen = list(names)
        self.communicator.worker.run(lambda: self.store.take_back(chosen))

    def rescale(self, factor: float) -> None:
        """Multiply all that is kept by ``factor``: gradients now come scaled by that much more than before."""
        self.communicator.worker.run(lambda: self.store.scale(factor))

    def state_dict(self, together: bool = False) -> dict[str, Any]:
        """Return the state, as ``Collective.state_dict`` does."""
        return self.communicator.worker.within(
            lambda: write_state(self.store, self.artifact.plan, self.communicator, together)
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load ``state``, as ``Collective.load_state_dict`` does."""
        read = read_state(state, self.artifact.plan, self.communicator.rank, self.communicator.size)
        self.communicator.worker.run(lambda: self._restore(read))

    def _restore(self, read: SavedState) -> None:
        for name, known in self.store.entries.items():
            if (found := read.tensors.get(name)) is None or found.shape != known.shape:
                of = f"is of shape {found.shape}, not {known.shape}" if found else "is not there"
                message = f"the state is of another model: '{name}', which was summed already, {of}"
                raise TensorError(Diagnostic("other-model", message, help="load the state of this model"))
        store = ResidualStore()
        for name, entry in read.tensors.items():
            store.restore(name, entry.shape, entry.step, entry.vectors, entry.threshold, entry.ends)
        self.store.entries, self.store.closed = store.entries, True
