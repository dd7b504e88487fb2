"""Collectives of schemes that select or encode: what a call leaves out is kept by name, and is part of the next one.

A call, on the worker's turn:

    1. gradient + residual, of which the selection leaves in the tensor what is contributed     contribution.py
    2. the plan's reduce of that tensor, as of any other
    3. the residual is kept if the sum is finite, which all ranks see alike, since they hold the same bits
    4. for a mean, the sum is divided

The names and how often each was summed are part of the call's signature: ranks that differ find out by their first
message. A rank that is alone sends nothing, and so leaves nothing out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.backend_api import Backend, Operation, OpLike, PreparedCall
from zenc.runtime.call_queue import Work
from zenc.runtime.collective import Collective, PlannedCall
from zenc.runtime.communicator import Communicator
from zenc.runtime.compression.contribution import Contributed, Marker, contribute
from zenc.runtime.compression.losses import CallLosses
from zenc.runtime.compression.residual_store import FlatState, Pieces, ResidualStore, TensorName, no_residual, pieces_of
from zenc.runtime.compression.saved_state import SavedState, read_state, write_state
from zenc.runtime.compression.supports import Draw, marks_of, warmed
from zenc.runtime.gpu.cuda_graph import CapturedCall
from zenc.runtime.layout import Layout
from zenc.runtime.stats import CallStats, LossReport
from zenc.scheme.compression import Momentum, Selection, TopOfParts
from zenc.scheme.model import Contiguous, Holders
from zenc.wire.partitioning import cut, part_sizes

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class LossyCall:
    """A call of ``pieces``, of ``layout``: ``gradient`` [units, width] shares the tensor's memory, or is a copy."""

    pieces: Pieces
    prepared: PreparedCall
    op: Operation

    @property
    def layout(self) -> Layout:
        """Of the tensor as the scheme cuts it."""
        return self.prepared.layout


class LossyCollective(Collective):
    """A ``Collective`` that keeps what its calls leave out: residuals, by the names of tensors."""

    def __init__(
        self, artifact: Artifact, communicator: Communicator, backend_on: Callable[[torch.device], Backend]
    ) -> None:
        super().__init__(artifact, communicator, backend_on)
        self._store = ResidualStore()
        self._selection = artifact.plan.phases[0].select
        self._loses_within = any(phase.code or phase.select for phase in artifact.plan.phases[1:]) or bool(
            artifact.plan.phases[0].code
        )
        self._parts: dict[tuple[int, int], Sequence[range | torch.Tensor]] = {}

    @property
    def keeps(self) -> bool:
        """Whether something is kept by name: residuals, or how many calls there were."""
        plan = self.artifact.plan
        return plan.feedback is not None or plan.warmup is not None

    def residual(self, name: str) -> torch.Tensor:
        """A copy of what the calls of ``name`` have left out so far, float32, in the shape of its tensor.

        Of this rank, after all calls that were made before. Raises TensorError (``no-residual``).
        """
        return self.communicator.worker.run(lambda: self._residual(name))

    def _residual(self, name: str) -> torch.Tensor:
        entry = self._store.entries.get(name)
        if entry is None or self.artifact.plan.feedback is None:
            raise no_residual(self.artifact.plan.scheme, name)
        kept = entry.vectors.residual
        return (torch.zeros(entry.shape) if kept is None else kept.clone()).view(entry.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of which something is kept, or was loaded."""
        return tuple(self._store.entries)

    def take_back(self, names: Iterable[str]) -> None:
        """Undo what the last call of each of ``names`` has kept and cleared, as where its sum is not used.

        Once, before their next call, on all ranks alike. The calls stay counted.
        """
        chosen = list(names)
        self.communicator.worker.run(lambda: self._store.take_back(chosen))

    def rescale(self, factor: float) -> None:
        """Multiply all that is kept by ``factor``: gradients come scaled by so much more than before."""
        self.communicator.worker.run(lambda: self._store.scale(factor))

    def state_dict(self, together: bool = False) -> dict[str, Any]:
        """What is kept, for a checkpoint: plain values and tensors, which ``torch.load(..., weights_only=True)`` reads.

        A rank's own, to go on from on the same rank of as many. ``together``: all ranks call it, and get the sums over
        the ranks, from which any number of ranks goes on.

        Raises SynchronisationError where ranks stay away or hold other names.
        """
        return self.communicator.worker.within(
            lambda: write_state(self._store, self.artifact.plan, self.communicator, together)
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``, on all ranks: each from its own, or all from one that was made together.

        From then on a name that the state does not have is an error (``other-model``) where it is summed. Raises
        CostError (``bad-state``) for what is no such state, TensorError (``other-model``) for tensors that were summed
        already in another shape, and (``other-world``) for the state of another rank. Nothing has changed then.
        """
        read = read_state(state, self.artifact.plan, self.rank, self.size)
        self.communicator.worker.run(lambda: self._restore(read))

    def _restore(self, read: SavedState) -> None:
        for name, known in self._store.entries.items():
            if (found := read.tensors.get(name)) is None or found.shape != known.shape:
                of = f"is of shape {found.shape}, not {known.shape}" if found else "is not there"
                message = f"the state is of another model: '{name}', which was summed already, {of}"
                raise TensorError(Diagnostic("other-model", message, help="load the state of this model"))
        store = ResidualStore()
        for name, entry in read.tensors.items():
            store.restore(name, entry.shape, entry.step, entry.vectors, entry.threshold)
        store.closed = True
        self._store = store

    def capturable(self, tensor: torch.Tensor, op: OpLike = "sum", rows: bool = False) -> CapturedCall:
        """Raises TensorError (``not-capturable``) for any shape: what is kept changes from call to call."""
        message = f"'{self.artifact.plan.scheme}' keeps what it leaves out from call to call, and a CUDA graph can't"
        raise TensorError(Diagnostic("not-capturable", message, help="capture a scheme that sums everything"))

    def _plan_call(self, tensor: torch.Tensor, op: Operation, rows: bool, name: TensorName) -> PlannedCall:
        self._ensure_fit(tensor)
        pieces = pieces_of(name, tensor)
        if self.keeps:
            self._store.ensure_fit(pieces)
        call = LossyCall(pieces, self.prepared(tensor, "sum", rows), op)

        def run(number: int, work: Work) -> torch.Tensor:
            return self._run(call, tensor, number, work)

        return run

    def _ensure_fit(self, tensor: torch.Tensor) -> None:
        plan = self.artifact.plan
        if tensor.is_sparse and (self._selection or plan.feedback is not None):
            message = f"{plan.scheme} selects of dense tensors, and this one is sparse"
            help = "sum sparse gradients by a scheme without 'select' and 'feedback'"
            raise TensorError(Diagnostic("unsupported-layout", message, help=help))
        if tensor.dtype not in DTYPES:
            message = f"{plan.scheme} takes float32, float16 and bfloat16, not {tensor.dtype}"
            help = "its residuals are float32: convert the tensor, or sum it by a scheme that loses nothing"
            raise TensorError(Diagnostic("unsupported-dtype", message, help=help))

    def _run(self, call: LossyCall, tensor: torch.Tensor, number: int, work: Work) -> torch.Tensor:
        """The call, on the worker's turn. What fails here breaks the communicator: peers wait for this rank."""
        self.communicator.ensure_healthy()
        if not tensor.numel():
            return tensor.coalesce() if tensor.is_sparse else tensor
        gradient = tensor.detach() if tensor.is_sparse else tensor.detach().contiguous()
        try:
            state = self._store.state_of(call.pieces, gradient.device)
            steps = self._store.steps(call.pieces)
            salt = _salt(call, steps)
            losses = CallLosses(salt, min(steps), self.rank, self.artifact.plan.warmup, None)
            contributed = self._contribute(call, gradient, state, losses)
        except BaseException as error:
            self.communicator.call_failed(error, None)
            raise
        result, counted = call.prepared.run(gradient, number, losses)
        self._store.count(call.pieces)
        if self.artifact.plan.feedback is not None and bool(torch.isfinite(result).all()):
            state.commit()
        if call.op == "mean":
            result.div_(self.size)
        if counted is not None:
            counted.loss = self._report(contributed, losses, counted) if contributed else None
            self._stats = work.counted = counted
        if tensor.is_sparse or tensor.is_contiguous():
            return result
        return tensor.detach().copy_(result)

    def _contribute(
        self, call: LossyCall, gradient: torch.Tensor, state: FlatState, losses: CallLosses
    ) -> Contributed | None:
        plan = self.artifact.plan
        if not self._selection and plan.feedback is None:
            return None
        selections = warmed(self._selection, plan.warmup, losses.step) if self.size > 1 else ()
        momentum = plan.feedback.m if isinstance(plan.feedback, Momentum) else None
        kept = state if plan.feedback is not None else None
        units = gradient.view(call.layout.units, call.layout.width)
        found = contribute(units, kept, momentum, self._marker(call, selections, state, losses))
        losses.residual = kept.next.residual if kept else None
        return found

    def _report(self, contributed: Contributed, losses: CallLosses, counted: CallStats) -> LossReport:
        gradient, residual = contributed.gradient**0.5, contributed.residual**0.5
        if self._loses_within and losses.residual is not None:
            residual = float(torch.linalg.vector_norm(losses.residual))
        return {
            "gradient_norm": gradient,
            "residual_norm": residual,
            "residual_over_gradient": residual / gradient if gradient else 0.0,
            "compression_ratio": counted.dense_bytes / counted.bytes_sent if counted.bytes_sent else 1.0,
        }

    def _marker(
        self, call: LossyCall, selections: Sequence[Selection], state: FlatState, losses: CallLosses
    ) -> Marker | None:
        if not selections:
            return None
        parts = self._parts_of(call.layout) if any(isinstance(one, TopOfParts) for one in selections) else ()
        draw = Draw(losses.step, losses.salt, self.rank, parts)
        return lambda values: marks_of(values, selections, draw, state)

    def _parts_of(self, layout: Layout) -> Sequence[range | torch.Tensor]:
        """The units of each part; by holders, whose parts are not known yet, those of equal cuts."""
        key = layout.units, layout.width
        if key not in self._parts:
            plan = self.artifact.plan
            self._parts[key] = _units_of_parts(plan.mapping, *key, plan.parts(self.size))
        return self._parts[key]


def _units_of_parts(mapping: Any, units: int, width: int, parts: int) -> Sequence[range | torch.Tensor]:
    if isinstance(mapping, Contiguous | Holders):
        sizes = part_sizes(Contiguous(), units, width, parts)
        ends = [sum(sizes[: part + 1]) for part in range(parts)]
        return [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    found = cut(mapping, units, width, parts)
    order = torch.from_numpy(found.part * max(1, int(found.sizes.max())) + found.slot).argsort()
    return torch.split(order, found.sizes.tolist())


def _salt(call: LossyCall, steps: tuple[int, ...]) -> int:
    """64 bits that only ranks share whose calls have the same names, counts and operation."""
    told = repr((call.op, [(piece.name, piece.shape) for piece in call.pieces], steps))
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "little")


def _report(contributed: Contributed, counted: CallStats) -> LossReport:
    gradient, residual = contributed.gradient**0.5, contributed.residual**0.5
    return {
        "gradient_norm": gradient,
        "residual_norm": residual,
        "residual_over_gradient": residual / gradient if gradient else 0.0,
        "compression_ratio": counted.dense_bytes / counted.bytes_sent if counted.bytes_sent else 1.0,
    }
