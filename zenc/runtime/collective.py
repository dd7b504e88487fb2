"""A scheme, loaded and ready: ``all_reduce`` sums a tensor over the ranks of a process group."""

from __future__ import annotations

import hashlib
import time
from typing import Any, Literal, overload

import torch

from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, SynchronisationError, TensorError, ZencError
from zenc.plan.program import Program, program
from zenc.plan.verify import verify
from zenc.runtime.communicator import Communicator
from zenc.runtime.exchange import Exchange, Rules
from zenc.runtime.layout import Layout, contribution_of, layout_of, sparse_result
from zenc.runtime.segments import Segment, Workshop
from zenc.runtime.stats import imbalance
from zenc.runtime.wire import Envelope
from zenc.runtime.work import Work
from zenc.targets.cpu.kernels import Kernels
from zenc.targets.geometry import Geometry

Operation = Literal["sum", "mean"]
OPERATIONS = ("sum", "mean")


class Collective:
    """A compiled scheme on one process group. Made by ``zenc.load``; all ranks of the group make it together.

    Calls of one group run one after another, in the order in which this rank made them; all ranks must make the
    same calls in the same order, as with every collective.
    """

    def __init__(self, artifact: Artifact, kernels: Kernels, communicator: Communicator, deadline: float) -> None:
        plan = artifact.plan
        rounds, self._proof = verify(plan, communicator.size)
        self._program: Program = program(rounds, communicator.rank)
        self.artifact = artifact
        self._kernels, self._communicator = kernels, communicator
        self._rules = Rules(plan.scheme, plan.one_shot, plan.push.format, plan.pull.format, deadline)
        self._stats: dict[str, Any] = {}

    @property
    def rank(self) -> int:
        return self._communicator.rank

    @property
    def size(self) -> int:
        return self._communicator.size

    @property
    def stats(self) -> dict[str, Any]:
        """What the last finished call of this rank did; empty before the first.

        ``bytes_sent`` and ``bytes_received`` count payload and headers of this rank. ``units_in`` and ``units_out``
        are occupied units, ``density_in`` and ``density_out`` their share of ``units``. ``phases`` has for ``push``
        and ``pull`` bytes, messages, bytes by wire format, seconds, and ``imbalance``: the fullest part over the
        mean part, of this rank's own gradient (push) and of the sum (pull).
        """
        return self._stats

    @overload
    def all_reduce(self, tensor: torch.Tensor, op: Operation = ..., async_op: Literal[False] = ...) -> torch.Tensor: ...

    @overload
    def all_reduce(self, tensor: torch.Tensor, op: Operation = ..., *, async_op: Literal[True]) -> Work: ...

    def all_reduce(self, tensor: torch.Tensor, op: Operation = "sum", async_op: bool = False) -> torch.Tensor | Work:
        """Sum ``tensor`` over all ranks.

        Args:
            tensor: dense (summed in place and returned) or sparse COO, coalesced or not (a new, coalesced tensor of
                the same shape and sparse dimensions is returned). float32, float64, float16 or bfloat16, on the CPU;
                shape, dtype and layout must be the same on all ranks. 16-bit sums accumulate in float32 at every
                merge.
            op: "sum", or "mean", which divides by the number of ranks before it sums, as DDP does.
            async_op: return a ``Work`` at once; ``tensor`` is not to be touched until it has ended.

        Raises:
            TensorError: for a tensor that can't be summed; nothing was sent.
            SynchronisationError: ranks disagree, a peer is gone, or a wait passed its deadline.
        """
        self._communicator.demand_whole()
        if op not in OPERATIONS:
            message = f"unknown operation {op!r}; one of {', '.join(OPERATIONS)}"
            raise TensorError(Diagnostic("unknown-operation", message))
        layout = layout_of(tensor, self.artifact.plan.unit)
        number = self._communicator.next_call()

        def call(work: Work) -> torch.Tensor:
            return self._run(tensor, layout, op, number, work)

        worker = self._communicator.worker
        return worker.submit(call) if async_op else worker.run(call)

    def _run(self, tensor: torch.Tensor, layout: Layout, op: Operation, number: int, work: Work) -> torch.Tensor:
        """One call, on the worker's turn. An error after the first byte breaks the communicator."""
        self._communicator.demand_whole()
        started = time.perf_counter()
        geometry = Geometry(layout.units, layout.width, self._proof.parts)
        if not layout.units or not layout.width:
            return _without_elements(tensor)
        workshop = Workshop(self._kernels, geometry, layout)
        envelope = Envelope(number, self._signature(layout, op), layout.units)
        exchange = Exchange(self._rules, self._program, self._communicator.transport, workshop, envelope)
        try:
            with torch.no_grad():
                divisor = self.size if op == "mean" else 1
                own = workshop.pack(contribution_of(tensor, layout), divisor, self.rank)
                packed = time.perf_counter()
                complete = exchange.run(own)
                exchanged = time.perf_counter()
                result = _result(tensor, layout, workshop, complete)
        except ZencError as error:
            self._give_up(error, exchange)
            raise
        times = {"pack": packed - started, "expand": time.perf_counter() - exchanged}
        self._stats = work.stats = _stats(layout, exchange, own, complete, times, time.perf_counter() - started)
        return result

    def _give_up(self, error: ZencError, exchange: Exchange) -> None:
        cause = error if isinstance(error, SynchronisationError) else SynchronisationError(error.diagnostics)
        if self.size > 1:
            self._communicator.give_up(cause, exchange)

    def _signature(self, layout: Layout, op: Operation) -> int:
        """64 bits that ranks share only if they run the same plan on the same shape, dtype and operation."""
        meaning = (self.artifact.plan.digest, tuple(layout.shape), layout.sparse_dim, layout.dtype_name, op)
        return int.from_bytes(hashlib.sha256(repr(meaning).encode()).digest()[:8], "little")

    def __repr__(self) -> str:
        plan = self.artifact.plan
        return f"<zenc.Collective {plan.scheme} {plan.digest[:12]} rank {self.rank} of {self.size}>"


def _without_elements(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor


def _result(tensor: torch.Tensor, layout: Layout, workshop: Workshop, complete: list[Segment]) -> torch.Tensor:
    """The sum in the layout of the input; a dense tensor is overwritten."""
    if layout.is_sparse:
        return sparse_result(*workshop.expand_units(complete), layout)
    target = tensor.detach()
    if target.is_contiguous():
        workshop.expand_into(complete, target)
    else:
        buffer = torch.empty(layout.shape, dtype=layout.dtype)
        workshop.expand_into(complete, buffer)
        target.copy_(buffer)
    return tensor


def _stats(
    layout: Layout,
    exchange: Exchange,
    own: list[Segment],
    complete: list[Segment],
    times: dict[str, float],
    seconds: float,
) -> dict[str, Any]:
    push, pull = exchange.push_stats, exchange.pull_stats
    counts_in, counts_out = [s.count for s in own], [s.count for s in complete]
    return {
        "call": exchange.call.call,
        "units": layout.units,
        "units_in": sum(counts_in),
        "units_out": sum(counts_out),
        "density_in": sum(counts_in) / layout.units,
        "density_out": sum(counts_out) / layout.units,
        "bytes_sent": push.bytes_sent + pull.bytes_sent,
        "bytes_received": push.bytes_received + pull.bytes_received,
        "phases": {"push": push.to_json(imbalance(counts_in)), "pull": pull.to_json(imbalance(counts_out))},
        "seconds": seconds,
        "seconds_pack": times["pack"],
        "seconds_expand": times["expand"],
    }
