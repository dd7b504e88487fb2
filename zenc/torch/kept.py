"""The state of an attached model from an earlier group, for the ranks of another one to go on from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zenc.runtime.rebuilding.survivors import Counts, kept_by_all
from zenc.torch.loadable import keepers_of

if TYPE_CHECKING:
    from zenc.torch.handle import Attachment


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
