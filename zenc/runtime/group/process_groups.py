"""Communicators of process groups: each made once, by all ranks together, and closed when the process ends."""

from __future__ import annotations

import atexit
import itertools
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import partial

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from zenc.common.environment import ensure_sound, is_on
from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.call.call_queue import Worker
from zenc.runtime.group.agreement import GroupAgreement
from zenc.runtime.group.communicator import EXIT_SECONDS, Communicator
from zenc.runtime.group.host_collectives import gather_equal
from zenc.runtime.group.meeting import meet
from zenc.runtime.group.versions import SWITCH, told_of_zenc, warn_if_untested
from zenc.runtime.transports.connections import address_of, connected, listening
from zenc.runtime.transports.gloo_transport import GlooTransport
from zenc.runtime.transports.shared_transport import sharing

USELESS_SECONDS = 0.25
"""Seconds for the threads of useless groups when another one is made."""

_communicators: list[Communicator] = []
_generations: weakref.WeakKeyDictionary[dist.ProcessGroup, itertools.count[int]] = weakref.WeakKeyDictionary()
"""The numbers of the groups made over each parent: for a new parent the same in old and new processes."""

_watched: weakref.WeakSet[dist.ProcessGroup] = weakref.WeakSet()
"""The parents whose end is watched."""


def communicator_for(parent: dist.ProcessGroup | None, deadline: float) -> Communicator:
    """Return the communicator of ``parent`` (default: all ranks), made at first use by all ranks together.

    Raises SynchronisationError (``no-process-group``) without one, and (``deadline``) if ranks stay away.
    """
    group = _ensured(parent)
    for communicator in _communicators:
        if communicator.parent() is group and communicator.is_whole and communicator.broken is None:
            communicator.users += 1
            return communicator
    _end_useless()
    communicator = _make(group, deadline)
    communicator.users = 1
    return communicator


def communicator_among(ranks: Sequence[int], whole: Communicator, deadline: float) -> Communicator:
    """Return a communicator of ``ranks`` of ``whole``, this one among them; they make it together.

    All ranks of ``whole`` make communicators at the same places among each other, each of its own group. Raises
    SynchronisationError (``deadline``) if ranks of the group stay away.
    """
    parent = whole.parent()
    assert parent is not None
    return _make(parent, deadline, tuple(ranks))


def _end_useless() -> None:
    """End threads and connections of communicators that are broken, or whose parent the user has ended.

    The ranks of a new group wait for this one: threads that still wait themselves are ended the next time.
    """
    useless = [each for each in _own() if each.broken is not None or _has_ended(each.parent())]
    until = time.monotonic() + USELESS_SECONDS
    for communicator in useless:
        left = EXIT_SECONDS if communicator.broken is None else max(0.0, until - time.monotonic())
        if communicator.close(left) and communicator in _communicators:
            _communicators.remove(communicator)


def _own() -> list[Communicator]:
    """Return the communicators that this process has made, without those from before a fork."""
    return [each for each in _communicators if each.process == os.getpid()]


def _has_ended(parent: dist.ProcessGroup | None) -> bool:
    """Return whether ``parent`` is gone, or was destroyed; its users, such as DDP, may keep it for long."""
    return parent is None or (parent in _watched and parent not in _known())


def _known() -> Mapping[dist.ProcessGroup, tuple[str, Store]]:
    """Return the groups of this process that are not destroyed, with their stores."""
    return dist.distributed_c10d._world.pg_map


def _end_with(parent: dist.ProcessGroup) -> None:
    """Have everything made over ``parent`` end when it is destroyed; its store, which torch keeps till then, tells."""
    _, store = _known().get(parent, ("", None))
    if store is not None and parent not in _watched:
        _watched.add(parent)
        weakref.finalize(store, _end_useless).atexit = False


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
    """Make a gloo group over the ranks of ``parent``, or over ``some`` of them, whatever its backend.

    ``dist.new_group`` does not do: without all ranks of the world it derives the name of a group from the number of
    groups that this process knows, and so fails where ranks are in different groups.
    """
    _end_with(parent)
    generation = next(_generations.setdefault(parent, itertools.count()))
    ranks, of_some = some or range(parent.size()), f"/{some[0]}" if some else ""
    store = PrefixStore(f"zenc/{parent.group_name}/{generation}{of_some}", _store_of(parent))
    before = listening()
    group = meet(store, ranks.index(parent.rank()), len(ranks), deadline)
    address = address_of(listening() - before)
    if parent.rank() == 0:
        warn_if_untested()
    wire = GlooTransport(group)
    communicator = Communicator(weakref.ref(parent), group, wire, Worker(f"zenc-rank-{wire.rank}"), is_whole=not some)
    _communicators.append(communicator)
    try:
        if not some:
            GroupAgreement(communicator, deadline).introduce(told_of_zenc())
            ensure_sound()  # after what all ranks hear, so that none waits for one that ends here
        ways = partial(gather_equal, communicator), deadline
        communicator.transport = connected(wire, address if _wants(SWITCH, parent) else "", *ways)
        wanted = _wants("ZENC_SHARED_MEMORY", parent)
        communicator.transport = sharing(communicator.transport, *ways, wanted=wanted)
    except Exception as error:
        if communicator.broken is None:
            communicator.call_failed(error, None)
        raise
    return communicator


def _wants(variable: str, parent: dist.ProcessGroup) -> bool:
    """Return whether ranks exchange as ``variable`` says: not in a group for GPUs alone, which need it seldom."""
    kinds = {device.type for device in getattr(parent, "_device_types", ())}
    return kinds != {"cuda"} and is_on(variable)


def _store_of(parent: dist.ProcessGroup) -> Store:
    """Return the store in which the ranks of ``parent`` have met; early releases of torch keep it in a table alone."""
    if hasattr(parent, "get_group_store"):
        return parent.get_group_store()
    return _known()[parent][1]


@atexit.register
def _close_all() -> None:
    """Close all communicators; calls that nobody waited for still end, so that peers get their data."""
    own = _own()
    until = time.monotonic() + EXIT_SECONDS
    for communicator in own:
        _communicators.remove(communicator)
        communicator.close(max(0.0, until - time.monotonic()))
