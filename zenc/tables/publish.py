"""Publishing: tensors that all ranks hold alike, made those of one rank, by the numbers that changed.

Ranks first exchange shape, dtype and checksum of their tensors, and the root the length of its updates. So a rank with
another tensor is found before anything is sent, and all ranks raise the same error.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, overload

import torch
import torch.distributed as dist

from zenc.common.arguments import names_wrong_types
from zenc.errors import Diagnostic, SynchronisationError, TensorError, ZencError, first_line
from zenc.runtime.call.call_queue import Job
from zenc.runtime.call.layout import as_tensor
from zenc.runtime.cpu.channel import corrupt
from zenc.runtime.group.agreement import in_a_line
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import gather
from zenc.runtime.group.process_groups import communicator_for
from zenc.runtime.load import deadline_or_why
from zenc.runtime.transports.transport import ROUND_BITS, Pending, Transport
from zenc.tables.update import BITS_OF, update_kernels

PACKET_BYTES = 1 << 18
"""Most bytes of a packet: far longer than a link needs to start, far shorter than an update."""
MOST_COMING = 4
"""Most packets that a rank is ready to receive before the first of them has come."""
TAG_BITS = ROUND_BITS + 1
"""Bits of a tag that count the packets of a call."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The ranks in a chain from ``root`` on, for one call; ``deadline`` is the seconds of any single wait."""

    transport: Transport
    root: int
    number: int
    deadline: float

    def bring(self, data: torch.Tensor) -> None:
        """Fill ``data`` [bytes] uint8 with the root's; raises SynchronisationError.

        The ids are ``deadline``, ``peer-lost`` and ``corrupt-message``.
        """
        packets = [data[at : at + PACKET_BYTES] for at in range(0, len(data), PACKET_BYTES)]
        coming: deque[Pending] = deque()
        sending = []
        for at, packet in enumerate(packets):
            while self._place and len(coming) < MOST_COMING and at + len(coming) < len(packets):
                coming.append(self._receive(at + len(coming), packets))
            if self._place:
                came = self._wait(coming.popleft(), self._before, "from")
                if len(came) != len(packet):
                    raise corrupt(self._before, f"it has {len(came):,} bytes of an update, for {len(packet):,}")
                if came.data_ptr() != packet.data_ptr():
                    packet.copy_(came)
            if self._place < self.transport.size - 1:
                sending.append(self.transport.send(self._after, self._tag(at), packet))
        for each in sending:
            self._wait(each, self._after, "to")

    @property
    def _place(self) -> int:
        return (self.transport.rank - self.root) % self.transport.size

    @property
    def _before(self) -> int:
        return (self.transport.rank - 1) % self.transport.size

    @property
    def _after(self) -> int:
        return (self.transport.rank + 1) % self.transport.size

    def _tag(self, packet: int) -> int:
        return (self.number & 0xFFFF) << TAG_BITS | packet & (1 << TAG_BITS) - 1

    def _receive(self, at: int, packets: list[torch.Tensor]) -> Pending:
        return self.transport.receive(self._before, self._tag(at), packets[at])

    def _wait(self, pending: Pending, peer: int, toward: str) -> torch.Tensor:
        started = time.perf_counter()
        try:
            return pending.wait(self.deadline)
        except RuntimeError as error:
            late = time.perf_counter() - started >= 0.95 * self.deadline
            what = f"a packet of an update {toward} rank {peer}"
            if late:
                message = f"{what} did not get through within the deadline of {self.deadline:g} s"
                raise SynchronisationError(Diagnostic("deadline", message)) from error
            notes, help = (first_line(error),), "a rank has died or given up: its own output says why"
            raise SynchronisationError(Diagnostic("peer-lost", f"{what} was lost", notes=notes, help=help)) from error


Tensors: TypeAlias = torch.Tensor | Sequence[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Published:
    """An update that has come to all ranks: ``changed`` of ``numbers``; ``bytes`` that each link has carried."""

    numbers: int
    changed: int
    bytes: int


@overload
def broadcast_update(
    held: Tensors,
    new: Tensors | None = ...,
    root: int = ...,
    *,
    group: dist.ProcessGroup | None = ...,
    deadline: float | None = ...,
    async_op: Literal[False] = ...,
) -> Published: ...


@overload
def broadcast_update(
    held: Tensors,
    new: Tensors | None = ...,
    root: int = ...,
    *,
    group: dist.ProcessGroup | None = ...,
    deadline: float | None = ...,
    async_op: Literal[True],
) -> Job[Published]: ...


@names_wrong_types
def broadcast_update(
    held: Tensors,
    new: Tensors | None = None,
    root: int = 0,
    *,
    group: dist.ProcessGroup | None = None,
    deadline: float | None = None,
    async_op: bool = False,
) -> Published | Job[Published]:
    """Make ``held``, which is the same on all ranks, equal to ``new`` of rank ``root``, to the bit, on all of them.

    Only numbers that changed travel, in as few bits as they need: a gap and a step each. From a trainer to the ranks
    that sample from its model, for example. A tensor of which too much changed travels whole.

    Args:
        held: a tensor or several, of any shape, of float32, float64, float16 or bfloat16, contiguous, the same on all
            ranks. They are changed in place. Those on a GPU go by the processor's memory.
        new: on the root, as many of the same shapes and dtypes; nothing on other ranks.
        root: the rank in ``group`` whose ``new`` counts, the same on all ranks.
        group: the process group (default: all ranks). All of its ranks call this, in the order of their other calls.
        deadline: seconds for any single wait, as in ``zenc.load``.
        async_op: return a job at once, whose ``wait`` gives the same; no tensor is to be touched until then.

    Raises:
        TensorError: tensors that can't be published; ``other-base`` where a rank holds other numbers than the root, on
            all ranks. Nothing has changed then.
        SynchronisationError: a peer is gone, or a wait passed its deadline. ``held`` is the old or the new.
    """
    seconds, failure = deadline_or_why(deadline, group)
    communicator = communicator_for(group, seconds)
    communicator.ensure_healthy()
    own, given = list[torch.Tensor](), None
    try:
        own, given = _listed(held), None if new is None else _listed(new)
    except TensorError as error:
        failure = failure or error
    publishing = _Publishing(communicator, own, given, root, seconds, failure)
    number = communicator.next_call()
    job: Job[Published] = Job()

    def run() -> Published:
        return publishing.run(number)

    if async_op:
        communicator.worker.submit(run, job)
        return job
    return communicator.worker.run(run, job)


def _listed(tensors: Tensors) -> list[torch.Tensor]:
    return [as_tensor(each) for each in ([tensors] if isinstance(tensors, torch.Tensor) else tensors)]


@dataclass(frozen=True, slots=True)
class _Publishing:
    """A call of this rank; ``deadline`` is in seconds, ``failure`` the reason why its tensors can't be published."""

    communicator: Communicator
    held: list[torch.Tensor]
    new: list[torch.Tensor] | None
    root: int
    deadline: float
    failure: ZencError | None = None

    def run(self, number: int) -> Published:
        """Publish as call ``number`` of the group, on the worker's turn."""
        kept: list[torch.Tensor] = []
        try:
            update, own, failure = self._prepared(number)
            told = [json.loads(each) for each in gather(self.communicator, json.dumps(own).encode())]
            if failure is None and not (failure := _difference(told, self.root)):
                update = self._brought(update, told[self.root], number, kept)
                return self._applied(update, told[self.root]["bytes"])
        except BaseException as error:
            self.communicator.call_failed(error, kept)
            raise
        raise failure

    def _prepared(self, number: int) -> tuple[torch.Tensor, dict[str, Any], ZencError | None]:
        """Return the update if this is the root, the message to the others, and the error that prevents both."""
        told: dict[str, Any] = {"root": self.root, "error": "", "call": number}
        try:
            self._ensure_sound()
            kernels, held = update_kernels(), [each.detach().cpu() for each in self.held]
            told["held"] = [[str(each.dtype), list(each.shape), kernels.checksum(each)] for each in held]
            if self.new is None:
                return torch.empty(0, dtype=torch.uint8, device="cpu"), told, None
            updates = [_update(old, new.detach().cpu()) for old, new in zip(held, self.new, strict=True)]
            update = torch.cat([*updates, kernels.received(0)])
            told |= {"bytes": [each.numel() for each in updates], "checksum": kernels.checksum(update)}
            return update, told, None
        except ZencError as failure:
            return torch.empty(0, dtype=torch.uint8, device="cpu"), told | {"error": in_a_line(failure)}, failure

    def _ensure_sound(self) -> None:
        if self.failure is not None:
            raise self.failure
        rank, size = self.communicator.rank, self.communicator.size
        if not 0 <= self.root < size:
            raise TensorError(Diagnostic("wrong-root", f"there is no rank {self.root} among {size}"))
        if (rank == self.root) != (self.new is not None):
            who = "has to give" if rank == self.root else "can't give"
            raise TensorError(Diagnostic("wrong-root", f"rank {rank} {who} new tensors: the root is rank {self.root}"))
        for each in (*self.held, *(self.new or ())):
            if each.dtype not in BITS_OF or each.layout is not torch.strided or not each.is_contiguous():
                what = f"{each.dtype}, {each.layout}: only contiguous floats are published"
                raise TensorError(Diagnostic("unsupported-dtype", what))
        spans = sorted((each.device.index or 0, each.data_ptr(), each.nbytes) for each in self.held if each.numel())
        if any(one[0] == other[0] and one[1] + one[2] > other[1] for one, other in pairwise(spans)):
            what = "two of the tensors that are held share memory, which can't become both of the new ones"
            raise TensorError(Diagnostic("overlapping-memory", what, help="publish each once"))
        if self.new is not None and list(map(_kind, self.new)) != list(map(_kind, self.held)):
            what = "the new tensors have other shapes or dtypes than those that are held"
            raise TensorError(Diagnostic("other-model", what))

    def _brought(
        self, update: torch.Tensor, told: dict[str, Any], number: int, kept: list[torch.Tensor]
    ) -> torch.Tensor:
        """Bring the root's ``update``, whose bytes and checksum it has ``told``; buffers are ``kept`` for gloo."""
        kernels = update_kernels()
        if self.new is None:
            update = kernels.received(sum(told["bytes"]))
        kept.append(update)
        Chain(self.communicator.transport, self.root, number, self.deadline).bring(update[: sum(told["bytes"])])
        if kernels.checksum(update) != told["checksum"]:
            raise SynchronisationError(Diagnostic("corrupt-message", "an update came with other bytes than were sent"))
        return update

    def _applied(self, update: torch.Tensor, sizes: list[int]) -> Published:
        changed, first = 0, 0
        for held, size in zip(self.held, sizes, strict=True):
            changed += _apply(update[first:], size, held.detach())
            torch.autograd.graph.increment_version(held)
            first += size
        return Published(sum(each.numel() for each in self.held), changed, first)


def _update(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Return the bytes from ``old`` to ``new``: an update, or ``new`` itself where it would not be shorter."""
    encoded = update_kernels().encode(old, new)
    return new.reshape(-1).view(torch.uint8) if encoded is None else encoded


def _apply(update: torch.Tensor, size: int, held: torch.Tensor) -> int:
    """Make ``held`` the new tensor; return the number of changes, which is all for one that came whole."""
    there = held.cpu()
    if size == held.nbytes:
        there.view(-1).view(torch.uint8).copy_(update[:size])
        changed = held.numel()
    else:
        changed = update_kernels().apply(update, size, there)
    if there is not held:
        held.copy_(there)
    return changed


def _difference(told: list[dict[str, Any]], root: int) -> ZencError | None:
    """Return the error of all ranks if their messages ``told`` differ."""
    if failed := {rank: each["error"] for rank, each in enumerate(told) if each["error"]}:
        notes = tuple(f"rank {rank}: {error}" for rank, error in failed.items())
        return SynchronisationError(Diagnostic("call-failed", "another rank can't publish", notes=notes))
    for rank, each in enumerate(told):
        if each["root"] != root or each["call"] != told[root]["call"]:
            message = f"rank {rank} is in another call: call {each['call']} of the group, of root {each['root']}"
            return SynchronisationError(Diagnostic("different-calls", message))
        for index, (theirs, held) in enumerate(zip(each["held"], told[root]["held"], strict=False)):
            if theirs != held:
                return _other_base(rank, root, index, theirs[:2] != held[:2])
        if len(each["held"]) != len(told[root]["held"]):
            return _other_base(rank, root, min(len(each["held"]), len(told[root]["held"])), True)
    return None


def _other_base(rank: int, root: int, index: int, other_kind: bool) -> TensorError:
    what = "another shape or dtype" if other_kind else "other numbers"
    message = f"tensor {index} that rank {rank} holds has {what} than that of rank {root}"
    help = "publish from tensors that all ranks hold alike; a first time by torch.distributed.broadcast"
    return TensorError(Diagnostic("other-base", message, help=help))


def _kind(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape
