"""Communicators of process groups: each made once, by all ranks together, and closed when the process ends."""

from __future__ import annotations

import atexit
import itertools
import os
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import cast

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from zenc.environment import ensure_sound, is_on
from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.call_queue import Worker
from zenc.runtime.cpu.gloo_transport import GlooGroup, GlooTransport
from zenc.runtime.group.agreement import GroupAgreement
from zenc.runtime.group.communicator import Communicator, ranks_missing
from zenc.runtime.group.host_collectives import gather_equal
from zenc.runtime.group.versions import SWITCH, told_of_zenc, warn_if_untested
from zenc.runtime.memory.shared_transport import sharing
from zenc.runtime.sockets.connections import address_of, connected, listening

EXIT_SECONDS = 30.0
"""Time for calls under way when the process ends."""
USELESS_SECONDS = 0.25
"""Time for the threads of groups that are useless when another one is made."""

_communicators: list[Communicator] = []
_generations: weakref.WeakKeyDictionary[dist.ProcessGroup, itertools.count[int]] = weakref.WeakKeyDictionary()
"""By parent, the numbers of the groups that are made over it: of a new parent the same in old and new processes."""


def communicator_for(parent: dist.ProcessGroup | None, deadline: float) -> Communicator:
    """The communicator of ``parent`` (default: the group of all ranks); made at first use, by all ranks together.

    Raises SynchronisationError (``no-process-group``) without one, and (``deadline``) if ranks stay away.
    """
    group = _ensured(parent)
    for communicator in _communicators:
        if communicator.parent() is group and communicator.is_whole and communicator.broken is None:
            return communicator
    _end_useless()
    communicator = _make(group, deadline)
    _communicators.append(communicator)
    return communicator


def communicator_among(ranks: Sequence[int], whole: Communicator, deadline: float) -> Communicator:
    """A communicator of those ``ranks`` of ``whole`` among which this one is; they make it together.

    All ranks of ``whole`` make communicators at the same places among each other, each of its own group. Raises
    SynchronisationError (``deadline``) if ranks of the group stay away.
    """
    parent = whole.parent()
    assert parent is not None
    made = _make(parent, deadline, tuple(ranks))
    _communicators.append(made)
    return made


def _end_useless() -> None:
    """End threads and connections of communicators that are broken, or whose parent the user has ended.

    The ranks of a new group wait for this one: threads that still wait themselves are looked at again the next time.
    """
    useless = [each for each in _communicators if each.broken is not None or each.parent() is None]
    until = time.monotonic() + USELESS_SECONDS
    for communicator in useless:
        left = EXIT_SECONDS if communicator.broken is None else max(0.0, until - time.monotonic())
        if communicator.close(left):
            _communicators.remove(communicator)


def _ensured(parent: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        help = "call torch.distributed.init_process_group('gloo') first; torchrun starts the processes"
        raise SynchronisationError(Diagnostic("no-process-group", "there is no process group yet", help=help))
    group = dist.group.WORLD if parent is None else parent
    if group is None or not isinstance(group, dist.ProcessGroup):
        message = "this rank is not in the process group that was given"
        raise SynchronisationError(Diagnostic("no-process-group", message))
    return group


def _make(parent: dist.ProcessGroup, deadline: float, some: tuple[int, ...] | None = None) -> Communicator:
    """A gloo group over the ranks of ``parent``, or over ``some`` of them, whatever backend that has.

    Not by ``dist.new_group``: without all ranks of the world it derives the name of a group from how many groups this
    process knows, and so fails where ranks are in different groups.
    """
    generation = next(_generations.setdefault(parent, itertools.count()))
    ranks, of_some = some or range(parent.size()), f"/{some[0]}" if some else ""
    store = PrefixStore(f"zenc/{parent.group_name}/{generation}{of_some}", _store_of(parent))
    before = listening()
    try:
        own = dist.ProcessGroupGloo(store, ranks.index(parent.rank()), len(ranks), timedelta(seconds=deadline))
    except RuntimeError as error:
        raise ranks_missing(deadline, error) from error
    group, address = cast(GlooGroup, own), address_of(listening() - before)
    if parent.rank() == 0:
        warn_if_untested()
    wire = GlooTransport(group)
    communicator = Communicator(weakref.ref(parent), group, wire, Worker(f"zenc-rank-{wire.rank}"), is_whole=not some)
    if not some:
        GroupAgreement(communicator, deadline).introduce(told_of_zenc())
        ensure_sound()  # after what all ranks hear, so that none waits for one that ends here
    ways = partial(gather_equal, communicator), deadline
    own_wire = connected(wire, address if _wants(SWITCH, parent) else "", *ways)
    communicator.transport = sharing(own_wire, *ways, wanted=_wants("ZENC_SHARED_MEMORY", parent))
    return communicator


def _wants(variable: str, parent: dist.ProcessGroup) -> bool:
    """Whether ranks are to exchange as ``variable`` says: not in a group for GPUs alone, which need it seldom."""
    kinds = {device.type for device in getattr(parent, "_device_types", ())}
    return kinds != {"cuda"} and is_on(variable)


def _store_of(parent: dist.ProcessGroup) -> Store:
    """The store in which the ranks of ``parent`` have met; early releases of torch keep it in a table alone."""
    if hasattr(parent, "get_group_store"):
        return parent.get_group_store()
    table: dict[dist.ProcessGroup, tuple[str, Store]] = dist.distributed_c10d._world.pg_map
    return table[parent][1]


@atexit.register
def _close_all() -> None:
    """Calls that nobody waited for still end, so that the peers get what they need."""
    own = [communicator for communicator in _communicators if communicator.process == os.getpid()]
    until = time.monotonic() + EXIT_SECONDS
    for communicator in own:
        _communicators.remove(communicator)
        communicator.close(max(0.0, until - time.monotonic()))
