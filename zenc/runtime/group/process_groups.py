"""Communicators of process groups: each made once, by all ranks together, and closed when the process ends."""

from __future__ import annotations

import atexit
import errno
import itertools
import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from zenc.common.environment import ensure_sound, is_on
from zenc.errors import Diagnostic, SynchronisationError, first_line
from zenc.runtime.call.call_queue import Worker
from zenc.runtime.call.layout import in_plain_surroundings
from zenc.runtime.group.agreement import GroupAgreement
from zenc.runtime.group.communicator import EXIT_SECONDS, Communicator, ranks_missing
from zenc.runtime.group.host_collectives import gather_equal
from zenc.runtime.group.versions import SWITCH, told_of_zenc, warn_if_untested
from zenc.runtime.transports.connections import address_of, connected, listening
from zenc.runtime.transports.gloo_transport import GlooGroup, GlooTransport
from zenc.runtime.transports.shared_transport import sharing

log = logging.getLogger("zenc")
T = TypeVar("T")
FIRST_SECONDS = 20.0
"""Most seconds of the first attempt, when all ranks have come; each further one has twice that, as far as it goes."""
LEAST_SECONDS = 2.0
"""The least seconds of an attempt, if that many are left: hosts may be busy."""
TRIES = 3
"""The least number of attempts that the deadline is divided by."""
TOO_FEW_FILES = os.strerror(errno.EMFILE)
"""The error text of libraries when the process has reached its limit of open files."""


def meet(store: Store, rank: int, size: int, deadline: float) -> GlooGroup:
    """Return a gloo group of ``size`` ranks, which come with a ``store`` of their own, within ``deadline`` seconds.

    Raises SynchronisationError: ``deadline``, ``too-few-connections``.
    """
    until = time.monotonic() + deadline
    _come(store, rank, size, deadline)
    for attempt in itertools.count():
        left = max(0.001, until - time.monotonic())
        some = max(min(left, LEAST_SECONDS), min(left / TRIES, FIRST_SECONDS * 2**attempt))
        seconds = some if _is_settable() else left
        made, trouble = _connected(PrefixStore(f"made/{attempt}", store), rank, size, seconds)
        of_ranks = _told(PrefixStore(f"told/{attempt}", store), rank, size, trouble, left)
        if made is not None and not any(of_ranks):
            if _is_settable():
                cast(Any, made).set_timeout(timedelta(seconds=deadline))
            return made
        _ensure_files(of_ranks)
        log.warning("rank %d: connections of the ranks were disturbed, and are made again: %s", rank, _noted(of_ranks))
        if time.monotonic() + deadline / 20 > until or not _is_settable():
            raise _disturbed(of_ranks, deadline, attempt + 1)
    raise AssertionError


def _is_settable() -> bool:
    return hasattr(dist.ProcessGroupGloo, "set_timeout")


def _come(store: Store, rank: int, size: int, deadline: float) -> None:
    try:
        store.set(f"here/{rank}", "1")
        store.wait([f"here/{peer}" for peer in range(size)], timedelta(seconds=deadline))
    except RuntimeError as error:
        raise ranks_missing(deadline, error) from error


def _connected(store: Store, rank: int, size: int, seconds: float) -> tuple[GlooGroup | None, str]:
    """Return a group in which every two ranks have exchanged something; or None, and the reason."""
    try:
        made = cast(GlooGroup, dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=seconds)))
        own = torch.full((size,), rank, dtype=torch.int64, device="cpu")
        found = torch.empty(size, dtype=torch.int64, device="cpu")
        made.alltoall_base(found, own, [1] * size, [1] * size).wait(timedelta(seconds=seconds))
    except RuntimeError as error:
        return None, first_line(error) or "no connection"
    return (made, "") if found.tolist() == list(range(size)) else (None, "another rank answers")


def _told(store: Store, rank: int, size: int, trouble: str, seconds: float) -> list[str]:
    """Return the trouble of each rank, in words; an empty text for a rank without any."""
    names = [str(peer) for peer in range(size)]
    try:
        store.set(str(rank), f"-{trouble}"[:500])
        store.wait(names, timedelta(seconds=seconds))
        return [store.get(name).decode("utf-8", "replace")[1:] for name in names]
    except RuntimeError as error:
        _ensure_files([*[""] * rank, trouble])  # the others may have ended by now
        raise ranks_missing(seconds, error) from error


def _ensure_files(of_ranks: Sequence[str]) -> None:
    short = [str(rank) for rank, trouble in enumerate(of_ranks) if TOO_FEW_FILES.lower() in trouble.lower()]
    if short:
        raise too_few_files(f"rank {', '.join(short)} can't open as many files as connections take")


def too_few_files(message: str) -> SynchronisationError:
    """Return the error of a process that has as many files open as it may."""
    help = "raise the limit in the shell that starts the ranks: ulimit -n 65536"
    return SynchronisationError(Diagnostic("too-few-connections", message, help=help))


def _noted(of_ranks: Sequence[str]) -> str:
    return "; ".join(f"rank {rank}: {trouble}" for rank, trouble in enumerate(of_ranks) if trouble)


def _disturbed(of_ranks: Sequence[str], deadline: float, attempts: int) -> SynchronisationError:
    message = f"the ranks could not connect within {deadline:g} s: what they made {attempts} times was disturbed"
    help = "see who else connects to ports of these hosts, such as a scanner; or raise deadline="
    return SynchronisationError(Diagnostic("deadline", message, notes=(_noted(of_ranks),), help=help))


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
            return communicator
    _end_useless()
    return in_plain_surroundings(partial(_make, group, deadline))


def again_if_left(rebuild: Callable[[], T]) -> T:
    """Return the result of ``rebuild``, which is called once more where it finds that other ranks have left the group.

    A rank whose own call failed before it had sent anything does not know of that.
    """
    joined = [each for each in _communicators if each.broken is None]
    try:
        return rebuild()
    except SynchronisationError:
        if not any(each.broken and not each.is_closed for each in joined):
            raise
    return rebuild()


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
