"""Communicator: the ranks that run schemes together, with connections of zenc's own, one order of calls, and agreement.

There is one for each process group of the user, its parent, and it carries all collectives that are loaded for that. It
has a gloo group of its own over the same ranks, so zenc's messages never mix with DDP's or the user's, whatever is in
flight. Its transport sends and receives over that group, and its worker runs the calls of this rank one at a time. When
one rank fails in a call, the communicator is broken for good, on all ranks: they are no longer in the same call.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from zenc.errors import Diagnostic, SynchronisationError, ZencError, first_line
from zenc.runtime.call_queue import Worker
from zenc.runtime.cpu.transport import GlooGroup, GlooTransport, Transport
from zenc.runtime.versions import warn_if_untested

if TYPE_CHECKING:
    from zenc.runtime.gpu.nccl import NcclGroup

REQUEST_BYTES = 1024
"""Of what ranks tell each other before they go on together, the same in all versions."""
EXIT_SECONDS = 30.0
"""Time for calls under way when the process ends."""


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

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.transport.size

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
            help = "end all ranks and start them again, from the last checkpoint"
            raise SynchronisationError(Diagnostic("group-broken", message, notes=notes, help=help)) from self.broken

    def ensure_own_process(self) -> None:
        """Raise SynchronisationError ``forked`` in a child: its connections, threads and GPU are the parent's."""
        if os.getpid() != self.process:
            message = "this process was forked after the scheme was loaded, and is no rank of its group"
            help = 'load schemes in the process that uses them; start processes by torchrun or with "spawn"'
            raise SynchronisationError(Diagnostic("forked", message, help=help))

    def handshake(self, scheme: str, error: str, deadline: float) -> None:
        """Tell every rank which ``scheme`` this one is about to run, or with which ``error`` it has failed.

        Raises SynchronisationError on all of them if one has failed (``peer-failed``), or if they differ.
        """
        if notes := _notes_of_difference(self._told_by_all(scheme, error, deadline)):
            help = "load the same scheme, with the same parameters and the same version of zenc, in the same order"
            message = "the ranks hold different schemes"
            raise self._raised_by_all(Diagnostic("different-schemes", message, notes=notes, help=help))

    def agree_on_profiling(self, how: str, deadline: float) -> None:
        """Show every rank when this one profiles; raises SynchronisationError on all of them if they differ."""
        if notes := _notes_of_difference(self._told_by_all(how, "", deadline)):
            help = "give all ranks a profiler with the same numbers, or none of them"
            message = "the ranks would profile different steps"
            raise self._raised_by_all(Diagnostic("different-profilers", message, notes=notes, help=help))

    def all(self, holds: bool, error: str, deadline: float) -> bool:
        """Whether something ``holds`` on all ranks; raises SynchronisationError on all if one has an ``error``."""
        return set(self._told_by_all(str(holds), error, deadline)) == {str(True)}

    def broadcast(self, nccl_id: bytes, deadline: float) -> bytes:
        """The ``nccl_id`` of rank 0, for all ranks; raises SynchronisationError as ``all``."""
        return bytes.fromhex(self._told_by_all(nccl_id.hex(), "", deadline)[0])

    def _told_by_all(self, told: str, error: str, deadline: float) -> list[str]:
        """What each rank has ``told``; raises SynchronisationError (``peer-failed``) if one has an ``error``.

        Both are at most ``REQUEST_BYTES`` long, as JSON.
        """
        text = json.dumps([told, error]).encode()[:REQUEST_BYTES].ljust(REQUEST_BYTES)
        texts = self._allgather(torch.frombuffer(bytearray(text), dtype=torch.uint8), "load a scheme", deadline)
        requests = [_read_request(bytes(other.tolist()), rank) for rank, other in enumerate(texts)]
        failed = {rank: error for rank, (_, error) in enumerate(requests) if error}
        if failed:
            notes = tuple(f"rank {rank}: {error}" for rank, error in failed.items())
            ranks = ", ".join(map(str, failed))
            message = f"rank {ranks} could not load its scheme"
            help = "its own output says what to do"
            raise self._raised_by_all(Diagnostic("peer-failed", message, notes=notes, help=help))
        return [told for told, _ in requests]

    def _raised_by_all(self, diagnostic: Diagnostic) -> SynchronisationError:
        """An error that all ranks raise: rank 0 shows it whole."""
        error = SynchronisationError(diagnostic)
        error.shown_by_rank_0 = self.rank != 0
        return error

    def allreduce_sum(self, marks: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of ``marks`` [n] over the ranks, in place, and the ``number`` of each rank [size]; both int64.

        On the worker's turn, by all ranks. Raises SynchronisationError (``deadline``) where ranks stay away.
        """
        purpose = "count who holds which units"
        self._run_together(lambda group: group.allreduce([marks]), purpose, marks)
        return marks, torch.cat(self._allgather(torch.tensor([number]), purpose))

    def summed(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of ``values`` [n] float32 over the ranks, added as float64; the same bits on all of them.

        On the worker's turn, by all ranks. Raises SynchronisationError (``deadline``) where ranks stay away.
        """
        total = values.to(torch.float64)
        if self.size > 1:
            self._run_together(lambda group: group.allreduce([total]), "sum what they keep", total)
        return total.to(torch.float32)

    def gather(self, data: bytes) -> list[bytes]:
        """The bytes that every rank gives, of any length, in rank order.

        On the worker's turn, by all ranks. Raises SynchronisationError (``deadline``) where ranks stay away.
        """
        purpose = "tell each other what they have seen"
        lengths = [int(length) for length in self._allgather(torch.tensor([len(data)]), purpose)]
        own = torch.frombuffer(bytearray(data.ljust(max(1, *lengths))), dtype=torch.uint8)
        padded = self._allgather(own, purpose)
        return [bytes(each[:length].numpy()) for each, length in zip(padded, lengths, strict=True)]

    def allreduce_max(self, values: list[float]) -> list[float]:
        """The greatest of each of ``values`` over the ranks, which all give as many; they have met when it returns.

        On the worker's turn, by all ranks. Raises SynchronisationError (``deadline``) where ranks stay away.
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

        A rank that waits in vain leaves the group and raises SynchronisationError (``deadline``), which says what the
        ranks did not come to do: ``purpose``. ``buffers`` are kept alive then.
        """
        assert self.group is not None
        try:
            work = start(self.group)
            work.wait() if seconds is None else work.wait(timedelta(seconds=seconds))
        except RuntimeError as failure:
            message = f"the ranks did not all come to {purpose}"
            late = SynchronisationError(Diagnostic("deadline", message, notes=(first_line(failure),)))
            error = late if seconds is None else _ranks_missing(seconds, failure)
            self.abort(error, buffers)
            raise error from failure

    def call_failed(self, error: BaseException, kept: object) -> None:
        """Give up after ``error`` in a call, for which peers wait; a rank that is alone goes on."""
        if self.size > 1:
            message = f"this rank failed: {type(error).__name__}: {error}"
            own = error if isinstance(error, SynchronisationError) else None
            self.abort(own or SynchronisationError(Diagnostic("call-failed", message)), kept)

    def abort(self, error: SynchronisationError, kept: object) -> None:
        """Leave the group for good, so that peers that wait for this rank learn of it at once."""
        self.broken = error
        self.kept.append(kept)
        if self.group is not None:
            self.group.abort()

    def close(self, seconds: float) -> None:
        """End the calls under way, then zenc's own groups, of NCCL and of gloo, and their threads.

        A gloo group that lives on while Python ends may abort the process: its threads let go of Python objects.
        """
        if self.worker.drain(seconds):
            for nccl_group in self.nccl:
                nccl_group.close()
        self.broken = self.broken or SynchronisationError(Diagnostic("group-broken", "this process is ending"))
        self.group = None
        self.transport.close()


def _notes_of_difference(answers: list[str]) -> tuple[str, ...]:
    """A line for each different one of ``answers``, one a rank, with the ranks that gave it; none if all are alike."""
    ranks: dict[str, list[int]] = {}
    for rank, answer in enumerate(answers):
        ranks.setdefault(answer, []).append(rank)
    return tuple(f"ranks {', '.join(map(str, who))}: {text}" for text, who in ranks.items()) if len(ranks) > 1 else ()


def _read_request(data: bytes, rank: int) -> tuple[str, str]:
    try:
        told, error = json.loads(data)
        return str(told), str(error)
    except (ValueError, TypeError) as error:
        message = f"rank {rank} runs another version of zenc, or no zenc at all"
        raise SynchronisationError(Diagnostic("different-schemes", message)) from error


def in_a_line(error: Exception) -> str:
    """An error in a line for other ranks: a few hundred bytes at most."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ZencError) and error.diagnostics:
        text = error.diagnostics[0].message
    return " ".join(text.encode("ascii", "replace").decode().split())[:400]


def _ranks_missing(deadline: float, error: Exception) -> SynchronisationError:
    """The error of a group that can't be formed: some rank never came."""
    message = f"the ranks of the group did not all come within {deadline:g} s"
    notes = (first_line(error),)
    help = "every rank of the group must load the scheme (zenc.load or zenc.attach), in the same order"
    return SynchronisationError(Diagnostic("deadline", message, notes=notes, help=help))


_communicators: list[Communicator] = []
_generations: dict[str, itertools.count[int]] = {}
"""By name of a parent, the numbers of the groups that are made over it."""


def communicator_for(parent: dist.ProcessGroup | None, deadline: float) -> Communicator:
    """The communicator of ``parent`` (default: the group of all ranks); made at first use, by all ranks together.

    Raises SynchronisationError (``no-process-group``) without one, and (``deadline``) if ranks stay away.
    """
    group = _ensured(parent)
    for communicator in _communicators:
        if communicator.parent() is group and communicator.broken is None:
            return communicator
    _communicators[:] = [communicator for communicator in _communicators if communicator.broken is None]
    communicator = _make(group, deadline)
    _communicators.append(communicator)
    return communicator


def _ensured(parent: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        help = "call torch.distributed.init_process_group('gloo') first; torchrun starts the processes"
        raise SynchronisationError(Diagnostic("no-process-group", "there is no process group yet", help=help))
    group = dist.group.WORLD if parent is None else parent
    if group is None or not isinstance(group, dist.ProcessGroup):
        message = "this rank is not in the process group that was given"
        raise SynchronisationError(Diagnostic("no-process-group", message))
    return group


def _make(parent: dist.ProcessGroup, deadline: float) -> Communicator:
    """A gloo group over the ranks of ``parent``, whatever backend that has.

    Not by ``dist.new_group``: without all ranks of the world it derives the name of a group from how many groups this
    process knows, and so fails where ranks are in different groups.
    """
    generation = next(_generations.setdefault(parent.group_name, itertools.count()))
    store = PrefixStore(f"zenc/{parent.group_name}/{generation}", _store_of(parent))
    try:
        own = dist.ProcessGroupGloo(store, parent.rank(), parent.size(), timedelta(seconds=deadline))
    except RuntimeError as error:
        raise _ranks_missing(deadline, error) from error
    group = cast(GlooGroup, own)
    if parent.rank() == 0:
        warn_if_untested()
    transport = GlooTransport(group)
    return Communicator(weakref.ref(parent), group, transport, Worker(f"zenc-rank-{transport.rank}"))


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
    for communicator in own:
        _communicators.remove(communicator)
        communicator.close(EXIT_SECONDS)
