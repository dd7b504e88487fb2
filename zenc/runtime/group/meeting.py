"""The meeting of the ranks of a group: gloo's connections, tried and if need be made again.

    meeting = come  (connect  try  tell)*      # until all ranks tell that all went well

Gloo takes any connection to its port that says a number for a rank. So its connections are tried, between every two
ranks, before anything depends on them. Each rank reports over the store in which they have met.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from zenc.errors import Diagnostic, SynchronisationError, first_line
from zenc.runtime.group.communicator import ranks_missing
from zenc.runtime.transports.gloo_transport import GlooGroup

log = logging.getLogger("zenc")
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
