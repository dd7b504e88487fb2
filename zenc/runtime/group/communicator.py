"""Communicator: the ranks that run schemes together, with connections of zenc's own, one order of calls, and agreement.

There is one for each process group of the user, its parent, and it carries all collectives that are loaded for that. It
has a gloo group of its own over the same ranks, so zenc's messages never mix with DDP's or the user's, whatever is in
flight. Its transport sends and receives over that group, and its worker runs the calls of this rank one at a time. When
one rank fails in a call, the communicator is broken for good, on all ranks: they are no longer in the same call.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from zenc.common.wording import ranks_text
from zenc.errors import Diagnostic, SynchronisationError, first_line
from zenc.runtime.call.call_queue import Turn, Worker
from zenc.runtime.transports.gloo_transport import NEVER_SENT, GlooGroup, GlooTransport
from zenc.runtime.transports.shared_transport import SharedTransport
from zenc.runtime.transports.transport import Transport

EXIT_SECONDS = 30.0
"""Seconds for calls under way when a group is closed, or the process ends."""
LINGER_SECONDS = 1.0
"""Seconds in which messages of earlier calls still get through, before a rank that gives up ends its connections."""


class OnGpu(Protocol):
    """A communicator of NCCL over the same ranks, which ``handle`` points to; 0 once it is closed."""

    gpu: str
    handle: int

    def close(self) -> None:
        """Close it: no call may be under way, and none comes after this."""


@dataclass(slots=True)
class Communicator:
    """The ranks of ``parent``, the user's group and the user's to end; ``group`` is zenc's own over the same ranks."""

    parent: weakref.ref[dist.ProcessGroup]
    group: GlooGroup | None
    transport: Transport
    worker: Worker
    calls: int = 0
    broken: SynchronisationError | None = None
    """The error after which the ranks are no longer in step."""
    kept: list[object] = field(default_factory=list)
    """Buffers of a call that failed: gloo may yet write to them."""
    nccl: list[OnGpu] = field(default_factory=list)
    """NCCL's communicators over the same ranks, which all schemes share that are loaded for the group."""
    process: int = field(default_factory=os.getpid)
    """Id of the process that made the communicator."""
    is_whole: bool = True
    """False for a communicator of only some ranks of ``parent``."""
    users: int = 0
    """The number of users that keep it, each of whom counts itself, and may let go of it."""
    is_closed: bool = False
    """True once it was closed: by its users, or since its parent was."""
    enders: list[threading.Thread] = field(default_factory=list)
    """Threads that end gloo's connections, each of which takes a second at most."""

    @property
    def rank(self) -> int:
        """The rank of this process in the group."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.transport.size

    @property
    def wire(self) -> Transport:
        """The transport without shared memory."""
        return self.transport.wire if isinstance(self.transport, SharedTransport) else self.transport

    def next_call(self, waits: bool = False) -> int:
        """Return the number of the next call, from 1; the same on all ranks that make the same calls.

        Leaves the group where another thread ``waits`` in a call: either may come first, on each rank. Raises
        SynchronisationError (``different-calls``) then.
        """
        worker, own = self.worker, threading.get_ident()
        if worker.caller and worker.caller != own and own not in worker.running and self.size > 1:
            message = "two threads of this rank are in calls of one group at once, whose order may differ among ranks"
            help = "hold a lock while a call is made, and take turns alike on all ranks; or use a group for each thread"
            error = SynchronisationError(Diagnostic("different-calls", message, help=help))
            self.abort(error, None)
            raise error
        if waits:
            worker.caller = own
        self.calls += 1
        return self.calls

    def ensure_healthy(self) -> None:
        """Raise the error that broke this communicator, if any; ``forked`` in a process that was forked since."""
        if os.getpid() != self.process:
            self.ensure_own_process()
        if self.is_closed:
            message = "this collective was closed, or its process group was ended"
            raise SynchronisationError(Diagnostic("group-broken", message, help="load the scheme again, in a group"))
        if self.broken is not None:
            message = "an earlier call of this group failed, and its ranks are no longer in step"
            notes = (self.broken.diagnostics[0].message,)
            help = "rebuild() makes a new one of the ranks that live; or start all again, from the last checkpoint"
            raise SynchronisationError(Diagnostic("group-broken", message, notes=notes, help=help)) from self.broken

    def ensure_own_process(self) -> None:
        """Raise SynchronisationError ``forked`` in a child: its connections, threads and GPU are the parent's."""
        if os.getpid() != self.process:
            message = "this process was forked after the scheme was loaded, and is no rank of its group"
            help = 'load schemes in the process that uses them; start processes by torchrun or with "spawn"'
            raise SynchronisationError(Diagnostic("forked", message, help=help))

    def run_together(
        self, start: Callable[[GlooGroup], dist.Work], purpose: str, buffers: object, seconds: float | None = None
    ) -> None:
        """Run a collective of gloo's to its end, for ``seconds`` at most, or the group's timeout.

        A rank that waits in vain leaves the group and raises SynchronisationError (``deadline``, ``peer-lost``), with
        the ``purpose`` of the meeting. ``buffers`` are kept alive then.
        """
        assert self.group is not None
        began = time.monotonic()
        try:
            work = start(self.group)
            work.wait() if seconds is None else work.wait(timedelta(seconds=seconds))
        except RuntimeError as failure:
            others = ranks_text(tuple(rank for rank in range(self.size) if rank != self.rank))
            waited = f"rank {self.rank} waited {time.monotonic() - began:.3g} s in vain for {others} to {purpose}"
            error = _not_together(purpose, seconds, failure, waited)
            self.abort(error, buffers)
            raise error from failure

    def call_failed(self, error: BaseException, kept: object, turn: Turn | None = None) -> None:
        """Give up after ``error`` in a call, for which peers wait; a rank that is alone goes on.

        The call before it, of which its ``turn`` knows, ends first, as it would without this one. Where that fails,
        this one fails by it, and raises its SynchronisationError (``group-broken``).
        """
        if turn is not None:
            turn.wait()
        if self.broken is not None and self.broken is not error:
            self.kept.append(kept)
            self.ensure_healthy()
        if self.size > 1:
            message = f"this rank failed: {type(error).__name__}: {error}"
            own = error if isinstance(error, SynchronisationError) else None
            self.abort(own or SynchronisationError(Diagnostic("call-failed", message)), kept)

    def abort(self, error: SynchronisationError, kept: object) -> None:
        """Leave the group for good, so that peers that wait for this rank learn of it, and this rank waits no more."""
        self.broken = error
        self.kept.append(kept)
        if self.group is not None:
            self.group.abort()
            peers = [(self.rank + step) % self.size for step in range(1, self.size)]
            ender = threading.Thread(target=_end_connections, args=(self.group, peers), daemon=True)
            ender.start()
            self.enders.append(ender)
        self.transport.close()

    def close(self, seconds: float) -> bool:
        """End the calls under way, then zenc's own groups, of NCCL and of gloo, and their threads, files and memory.

        Returns False if ``seconds`` were not enough: threads of a call that failed may wait for their deadline. A gloo
        group that lives on while Python ends may abort the process, and so does a thread that is in gloo then: both
        come back to Python objects.
        """
        until = time.monotonic() + seconds
        ended = self.worker.drain(seconds)
        if ended:
            while self.nccl:
                self.nccl.pop().close()
        self.is_closed = self.is_closed or self.broken is None
        self.broken = self.broken or SynchronisationError(Diagnostic("group-broken", "the group was closed"))
        self.group = None
        self.transport.close()
        for ender in self.enders:
            ender.join(max(0.0, until - time.monotonic()))
        wire = self.wire
        ended = ended and not any(ender.is_alive() for ender in self.enders)
        ended = ended and (not isinstance(wire, GlooTransport) or wire.join(max(0.0, until - time.monotonic())))
        if ended:
            self.transport.release()
            self.kept.clear()
        return ended


def let_go(communicator: Communicator) -> None:
    """Let go of ``communicator``; close it when all its users have, which all ranks do together."""
    communicator.users -= 1
    if communicator.users <= 0:
        communicator.close(EXIT_SECONDS)


def _end_connections(group: GlooGroup, peers: Sequence[int]) -> None:
    """End all connections of ``group``: gloo does so after a wait in vain, and ``abort`` alone does not.

    A connection that has ended already, or ends meanwhile, can't be waited on: then the next one of ``peers`` is.
    """
    nothing, until = torch.empty(1, dtype=torch.uint8, device="cpu"), time.monotonic() + LINGER_SECONDS
    for peer in peers:
        left = max(until - time.monotonic(), 0.001)  # gloo takes 0 for its own timeout
        with suppress(RuntimeError):
            group.recv([nothing], peer, NEVER_SENT).wait(timedelta(seconds=left))


def _not_together(purpose: str, seconds: float | None, failure: RuntimeError, waited: str) -> SynchronisationError:
    """Return the error of ranks that did not all come: they are late, or one has ended its connections."""
    text = first_line(failure)
    if "timed out" in text.lower():
        help = "see whether those ranks are alive and make the same calls; deadline= sets how long to wait"
        late = SynchronisationError(Diagnostic("deadline", waited, notes=(text,), help=help))
        return late if seconds is None else ranks_missing(seconds, failure)
    help = "a rank has died or given up: its own output says why"
    lost = Diagnostic("peer-lost", f"a rank was lost before all came to {purpose}", notes=(text,), help=help)
    return SynchronisationError(lost)


def ranks_missing(deadline: float, error: Exception) -> SynchronisationError:
    """Return the error of a group that can't be formed, as some rank never came."""
    message = f"the ranks of the group did not all come within {deadline:g} s"
    notes = (first_line(error),)
    help = "every rank of the group must load the scheme (zenc.load or zenc.attach), in the same order"
    return SynchronisationError(Diagnostic("deadline", message, notes=notes, help=help))
