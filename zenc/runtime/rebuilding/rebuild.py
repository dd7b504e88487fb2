"""Rebuilding of a collective: the same scheme among other ranks, which go on from their state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from zenc.runtime.group.communicator import Communicator, let_go

if TYPE_CHECKING:
    from zenc.runtime.collective import Collective


@dataclass(frozen=True, slots=True)
class Origin:
    """The way to load a collective ``again`` among the ranks of another communicator, where it goes on from this one.

    ``deadline``: seconds that any single wait may take.
    """

    again: Callable[[Communicator, Collective], Collective]
    deadline: float


def rebuild(collective: Collective, group: dist.ProcessGroup | None = None) -> Collective:
    """Return the same scheme on another group, which goes on from this rank's state: after a call that failed, say.

    All ranks of ``group`` take part, at the same place among their calls: those that have this collective call
    ``rebuild``, and new ones ``zenc.load``, with the same arguments as it was loaded with. The old group's threads and
    connections end if it is broken; this collective is not to be used any more.

    The state are the residuals of each rank, the number of calls of each tensor, and the decisions of a scheme that
    chooses. A call that some ranks have ended, and others not, counts for none of them. The residuals of a rank that is
    gone are lost with it.

    ``group`` has the ranks that go on, more or fewer than before, or all of them again; by default all ranks.

    Raises ZencError as ``zenc.load`` does, such as ``wrong-size`` where the scheme was compiled for another number of
    ranks, and SynchronisationError (``different-states``) where the ranks' states are of other calls.
    """
    from zenc.runtime.group.process_groups import communicator_for

    assert collective.origin is not None
    return collective.origin.again(communicator_for(group, collective.origin.deadline), collective)


def close(collective: Collective) -> None:
    """Let go of the group; all ranks call it, after the last call.

    When everything loaded for a group has been closed, zenc's threads, connections, files and shared memory of it end,
    and so they do when the group is destroyed, or nobody refers to it any more, or the process ends. A later call is an
    error, ``group-broken``. It may be closed again, which does nothing.
    """
    if not collective.has_let_go:
        collective.has_let_go = True
        let_go(collective.communicator)
