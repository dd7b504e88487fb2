"""Communicator: the ranks that run schemes together, with connections of zenc's own, one order of calls, and agreement.

There is one for each process group of the user, its parent, and it carries all collectives that are loaded for that. It
has a gloo group of its own over the same ranks, so zenc's messages never mix with DDP's or the user's, whatever is in
flight. Its transport sends and receives over that group, and its worker runs the calls of this rank one at a time. When
one rank fails in a call, the communicator is broken for good, on all ranks: they are no longer in the same call.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist

from zenc.errors import Diagnostic, SynchronisationError, ZencError, first_line
from zenc.runtime.call_queue import Worker
from zenc.runtime.cpu.gloo_transport import NEVER_SENT, GlooGroup, GlooTransport
from zenc.runtime.cpu.transport import Transport
from zenc.runtime.memory.shared_transport import SharedTransport
from zenc.runtime.turns import Turn

if TYPE_CHECKING:
    from zenc.runtime.gpu.nccl import NcclGroup

REQUEST_BYTES = 1024
"""Of what ranks tell each other before they go on together, the same in all versions."""
LINGER_SECONDS = 1.0
"""Time in which what was sent in earlier calls still gets through, before a rank that gives up ends its connections."""


class JoinRequest(NamedTuple):
    """Request of a rank to go on together: with what is ``told``, or its ``error``; it ``keeps`` something, or not."""

    told: str
    error: str = ""
    keeps: bool = False


@dataclass(slots=True)
class Communicator:
    """``parent`` is the user's group, which is the user's to end; ``group`` zenc's own over the same ranks."""

    parent: weakref.ref[dist.ProcessGroup]
    group: GlooGroup | None
    transport: Transport
    worker: Worker
    calls: int = 0
    broken: SynchronisationError | None = None
    """The error after which the ranks are no longer in step."""
    kept: list[object] = field(default_factory=list)
    """Buffers of a call that failed: gloo may yet write to them."""
    nccl: list[NcclGroup] = field(default_factory=list)
    """NCCL's communicators over the same ranks, which all schemes share that are loaded for the group."""
    process: int = field(default_factory=os.getpid)
    """Id of the process that made it."""
    is_whole: bool = True
    """False: it is of some of the ranks of ``parent``."""

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.transport.size

    @property
    def wire(self) -> Transport:
        """The transport that shares no memory."""
        return self.transport.wire if isinstance(self.transport, SharedTransport) else self.transport

    def next_call(self) -> int:
        """The number of the next call, from 1; the same on all ranks that make the same calls."""
        self.calls += 1
        return self.calls

    def ensure_healthy(self) -> None:
        """Raise the error that broke this communicator, if one did; ``forked`` in a process that was forked since."""
        self.ensure_own_process()
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

    def introduce(self, told: str, deadline: float) -> None:
        """Tell every rank of this one's zenc, before anything else is said: a message alike in all versions.

        Raises SynchronisationError (``different-versions``) on all of them if they differ.
        """
        requests = self._told_by_all(JoinRequest(told), deadline)
        if notes := _notes_of_difference(requests):
            first = requests[0].told
            other = next(rank for rank, request in enumerate(requests) if request.told != first)
            message = f"rank 0 runs {first}, and rank {other} {requests[other].told}"
            help = "install the same zenc on all hosts, and start all ranks with the same environment"
            raise self._raised_by_all(Diagnostic("different-versions", message, notes=notes, help=help))

    def handshake(self, scheme: str, error: str, deadline: float, keeps: bool = False) -> bool:
        """Tell every rank which ``scheme`` this one is about to run, or with which ``error`` it has failed.

        Whether any of them ``keeps`` something of an earlier group, to go on from. Raises SynchronisationError on all
        of them if one has failed (``peer-failed``), or if they differ.
        """
        requests = self._told_by_all(JoinRequest(scheme, error, keeps), deadline)
        if notes := _notes_of_difference(requests):
            help = "load the same scheme, with the same parameters, in the same order"
            message = "the ranks hold different schemes"
            raise self._raised_by_all(Diagnostic("different-schemes", message, notes=notes, help=help))
        return any(request.keeps for request in requests)

    def agree_on_profiling(self, how: str, deadline: float, keeps: bool = False) -> bool:
        """Show every rank when this one profiles; whether any of them ``keeps`` something of an earlier group.

        Raises SynchronisationError on all of them if they differ.
        """
        requests = self._told_by_all(JoinRequest(how, keeps=keeps), deadline)
        if notes := _notes_of_difference(requests):
            help = "give all ranks a profiler with the same numbers, or none of them"
            message = "the ranks would profile different steps"
            raise self._raised_by_all(Diagnostic("different-profilers", message, notes=notes, help=help))
        return any(request.keeps for request in requests)

    def all(self, holds: bool, error: str, deadline: float) -> bool:
        """Whether something ``holds`` on all ranks; raises SynchronisationError on all if one has an ``error``."""
        requests = self._told_by_all(JoinRequest(str(holds), error), deadline)
        return {request.told for request in requests} == {str(True)}

    def broadcast(self, nccl_id: bytes, deadline: float) -> bytes:
        """The ``nccl_id`` of rank 0, for all ranks; raises SynchronisationError as ``all``."""
        return bytes.fromhex(self._told_by_all(JoinRequest(nccl_id.hex()), deadline)[0].told)

    def _told_by_all(self, request: JoinRequest, deadline: float) -> list[JoinRequest]:
        """The ``request`` of each rank; raises SynchronisationError (``peer-failed``) if one has an ``error``.

        Each is at most ``REQUEST_BYTES`` long, as JSON.
        """
        text = json.dumps(request if request.keeps else request[:2]).encode()[:REQUEST_BYTES].ljust(REQUEST_BYTES)
        texts = self._allgather(torch.frombuffer(bytearray(text), dtype=torch.uint8), "load a scheme", deadline)
        requests = [_read_request(bytes(other.tolist()), rank) for rank, other in enumerate(texts)]
        failed = {rank: request.error for rank, request in enumerate(requests) if request.error}
        if failed:
            notes = tuple(f"rank {rank}: {error}" for rank, error in failed.items())
            ranks = ", ".join(map(str, failed))
            message = f"rank {ranks} could not load its scheme"
            help = "its own output says what to do"
            raise self._raised_by_all(Diagnostic("peer-failed", message, notes=notes, help=help))
        return requests

    def _raised_by_all(self, diagnostic: Diagnostic) -> SynchronisationError:
        """An error that all ranks raise: rank 0 shows it whole."""
        error = SynchronisationError(diagnostic)
        error.shown_by_rank_0 = self.rank != 0
        return error

    def allreduce_sum(self, marks: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of ``marks`` [n] over the ranks, in place, and the ``number`` of each rank [size]; both int64.

        On the worker's turn, by all ranks. Raises SynchronisationError where ranks stay away or end, and
        (``different-calls``) where they give other numbers of marks, of which gloo would end the process.
        """
        purpose = "count who holds which units"
        told = torch.stack(self._allgather(torch.tensor([number, len(marks)]), purpose))
        if bool((told[:, 1] != len(marks)).any()):
            help = "all ranks must call the same collectives, on tensors of one name and shape, in the same order"
            message = f"the ranks are in other calls: they count {told[:, 1].tolist()} units of a tensor, by rank"
            error = SynchronisationError(Diagnostic("different-calls", message, help=help))
            self.abort(error, marks)
            raise error
        self._run_together(lambda group: group.allreduce([marks]), purpose, marks)
        return marks, told[:, 0]

    def summed(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of ``values`` [n] float32 over the ranks, added as float64; the same bits on all of them.

        On the worker's turn, by all ranks. Raises SynchronisationError where ranks stay away or end.
        """
        total = values.to(torch.float64)
        if self.size > 1:
            self._run_together(lambda group: group.allreduce([total]), "sum what they keep", total)
        return total.to(torch.float32)

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes that every rank gives, of any length, in rank order.

        On the worker's turn, by all ranks. Raises SynchronisationError where ranks stay away or end.
        """
        purpose = "tell each other what they have seen"
        lengths = [int(length) for length in self._allgather(torch.tensor([len(data)]), purpose)]
        own = torch.frombuffer(bytearray(data.ljust(max(1, *lengths))), dtype=torch.uint8)
        padded = self._allgather(own, purpose)
        return [bytes(each[:length].numpy()) for each, length in zip(padded, lengths, strict=True)]

    def given_by(self, root: int, data: bytes) -> bytes:
        """The ``data`` of rank ``root``, of any length; other ranks give none that counts.

        On the worker's turn, by all ranks. Raises SynchronisationError where ranks stay away or end.
        """
        purpose = "go on from what they have kept"
        own = data if self.rank == root else b""
        length = max(int(each) for each in self._allgather(torch.tensor([len(own)]), purpose))
        found = torch.frombuffer(bytearray(own.ljust(max(length, 1), b"\0")), dtype=torch.uint8)
        self._run_together(lambda group: group.allreduce([found]), purpose, found)  # 0 on all but one
        return bytes(found[:length].numpy())

    def gather_equal(self, data: bytes) -> list[bytes]:
        """The bytes that every rank gives, as many as this one, in rank order; else as ``gather``."""
        own = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return [bytes(each.numpy()) for each in self._allgather(own, "share memory")]

    def exchange(self, pieces: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The bytes that every rank gives this one, in rank order, for ``pieces`` [bytes] uint8, one for each rank.

        On the worker's turn, by all ranks. Raises SynchronisationError where ranks stay away or end.
        """
        if self.size == 1:
            return list(pieces)
        lengths = torch.tensor([len(piece) for piece in pieces])
        coming = self._all_to_all(lengths, [1] * self.size, [1] * self.size)
        found = self._all_to_all(torch.cat(list(pieces)), lengths.tolist(), coming.tolist())
        return list(torch.tensor_split(found, coming.cumsum(0).tolist()[:-1]))

    def _all_to_all(self, own: torch.Tensor, going: list[int], coming: list[int]) -> torch.Tensor:
        """What ranks give this one, one after another: of ``own`` each is given so many elements as are ``going``."""
        found = own.new_empty(sum(coming))
        purpose = "exchange what they asked each other for"
        self._run_together(lambda group: group.alltoall_base(found, own, coming, going), purpose, (own, found))
        return found

    def allreduce_max(self, values: list[float]) -> list[float]:
        """The greatest of each of ``values`` over the ranks, which all give as many; they have met when it returns.

        On the worker's turn, by all ranks. Raises SynchronisationError where ranks stay away or end.
        """
        of_ranks = self._allgather(torch.tensor(values, dtype=torch.float64), "agree on which scheme is the cheapest")
        greatest: list[float] = torch.stack(of_ranks).amax(dim=0).tolist()
        return greatest

    def _allgather(self, own: torch.Tensor, purpose: str, seconds: float | None = None) -> list[torch.Tensor]:
        """The tensors that the ranks give, in rank order; all of one shape and dtype."""
        of_ranks = [torch.empty_like(own) for _ in range(self.size)]
        self._run_together(lambda group: group.allgather([of_ranks], [own]), purpose, (own, of_ranks), seconds)
        return of_ranks

    def _run_together(
        self, start: Callable[[GlooGroup], dist.Work], purpose: str, buffers: object, seconds: float | None = None
    ) -> None:
        """Run a collective of gloo's to its end, for ``seconds`` at most, or the group's timeout.

        A rank that waits in vain leaves the group and raises SynchronisationError (``deadline``, ``peer-lost``), which
        says what the ranks did not come to do: ``purpose``. ``buffers`` are kept alive then.
        """
        assert self.group is not None
        try:
            work = start(self.group)
            work.wait() if seconds is None else work.wait(timedelta(seconds=seconds))
        except RuntimeError as failure:
            error = _not_together(purpose, seconds, failure)
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
            threading.Thread(target=_end_connections, args=(self.group, peers), daemon=True).start()
        self.transport.close()

    def close(self, seconds: float) -> bool:
        """End the calls under way, then zenc's own groups, of NCCL and of gloo, and their threads.

        False if ``seconds`` were not enough: threads of a call that failed may wait for their deadline. A gloo group
        that lives on while Python ends may abort the process: its threads let go of Python objects.
        """
        until = time.monotonic() + seconds
        ended = self.worker.drain(seconds)
        if ended:
            while self.nccl:
                self.nccl.pop().close()
        self.broken = self.broken or SynchronisationError(Diagnostic("group-broken", "this process is ending"))
        self.group = None
        self.transport.close()
        wire = self.wire
        return ended and (not isinstance(wire, GlooTransport) or wire.join(max(0.0, until - time.monotonic())))


def _end_connections(group: GlooGroup, peers: Sequence[int]) -> None:
    """End all connections of ``group``: gloo does so when anyone has waited in vain, and ``abort`` alone does not.

    A connection that has ended already, or does meanwhile, is none to wait on: then the next one of ``peers`` is.
    """
    nothing, until = torch.empty(1, dtype=torch.uint8), time.monotonic() + LINGER_SECONDS
    for peer in peers:
        left = max(until - time.monotonic(), 0.001)  # gloo takes 0 for its own timeout
        with suppress(RuntimeError):
            group.recv([nothing], peer, NEVER_SENT).wait(timedelta(seconds=left))


def _notes_of_difference(requests: list[JoinRequest]) -> tuple[str, ...]:
    """A line for each different thing that is told, with the ranks that tell it; none if all tell the same."""
    ranks: dict[str, list[int]] = {}
    for rank, request in enumerate(requests):
        ranks.setdefault(request.told, []).append(rank)
    return tuple(f"ranks {', '.join(map(str, who))}: {text}" for text, who in ranks.items()) if len(ranks) > 1 else ()


def _read_request(data: bytes, rank: int) -> JoinRequest:
    try:
        told, error, *keeps = json.loads(data)
        return JoinRequest(str(told), str(error), keeps == [True])
    except (ValueError, TypeError) as error:
        message = f"rank {rank} runs another version of zenc, or no zenc at all"
        raise SynchronisationError(Diagnostic("different-versions", message)) from error


def in_a_line(error: Exception) -> str:
    """An error in a line for other ranks: a few hundred bytes at most."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ZencError) and error.diagnostics:
        text = error.diagnostics[0].message
    return " ".join(text.encode("ascii", "replace").decode().split())[:400]


def _not_together(purpose: str, seconds: float | None, failure: RuntimeError) -> SynchronisationError:
    """The error of ranks that did not all come: they are late, or one has ended its connections."""
    text = first_line(failure)
    if "timed out" in text.lower():
        late = Diagnostic("deadline", f"the ranks did not all come to {purpose}", notes=(text,))
        return SynchronisationError(late) if seconds is None else ranks_missing(seconds, failure)
    help = "a rank has died or given up: its own output says why"
    return SynchronisationError(
        Diagnostic("peer-lost", f"a rank was lost before all came to {purpose}", notes=(text,), help=help)
    )


def ranks_missing(deadline: float, error: Exception) -> SynchronisationError:
    """The error of a group that can't be formed: some rank never came."""
    message = f"the ranks of the group did not all come within {deadline:g} s"
    notes = (first_line(error),)
    help = "every rank of the group must load the scheme (zenc.load or zenc.attach), in the same order"
    return SynchronisationError(Diagnostic("deadline", message, notes=notes, help=help))
