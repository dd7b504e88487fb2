"""Collectives of schemes that select or encode: the losses of a call are kept by name, and are part of the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from zenc.codegen.artifact import Artifact
from zenc.errors import Diagnostic, TensorError
from zenc.runtime.backend_api import Backend
from zenc.runtime.call.call_queue import Touched, Work, touched_by
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.layout import DTYPE_NAMES, Layout
from zenc.runtime.call.planned_calls import Operation, OpLike, PlannedCall, PreparedCall
from zenc.runtime.call.stats import CallStats
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.lossy.keeper import Keeper
from zenc.runtime.lossy.lossy_call import LossyScheme, begun
from zenc.runtime.lossy.residual_store import Pieces, TensorName, pieces_of
from zenc.runtime.lossy.supports import PartUnits
from zenc.scheme.compression import LowRank, Rounded, Sketching, TopOfParts
from zenc.scheme.model import Contiguous, Holders
from zenc.wire.partitioning import cut, part_sizes

if TYPE_CHECKING:
    from zenc.runtime.gpu.cuda_graph import CapturedCall

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class LossyCollective(Collective):
    """A ``Collective`` that keeps the losses of its calls: residuals, by the names of tensors."""

    def __init__(
        self, artifact: Artifact, communicator: Communicator, backend_on: Callable[[torch.device], Backend]
    ) -> None:
        super().__init__(artifact, communicator, backend_on)
        self._scheme = LossyScheme(
            artifact.plan, communicator, self._parts_of, lambda device: backend_on(device).compression
        )
        scheme, warms = self._scheme, artifact.plan.warmup is not None
        self._keeper = Keeper(artifact, communicator, bool(artifact.plan.kept) or warms or scheme.cuts_by_size)
        self._parts: dict[tuple[int, int], PartUnits] = {}

    @property
    def keeper(self) -> Keeper:
        """The keeper of what its calls leave out."""
        return self._keeper

    @property
    def names(self) -> tuple[str, ...]:
        """The names of which something is kept, or was loaded."""
        return self._keeper.names

    def take_back(self, names: Iterable[str]) -> None:
        """Undo the changes that the last call of each of ``names`` has made in the state, as where its sum is not used.

        It is called once, before their next call, on all ranks alike. The calls stay counted.
        """
        self._keeper.take_back(names)

    def rescale(self, factor: float) -> None:
        """Multiply all that is kept by ``factor``: gradients come scaled by so much more than before."""
        self._keeper.rescale(factor)

    def capturable(self, tensor: torch.Tensor, op: OpLike = "sum", rows: bool = False) -> CapturedCall:
        """Raise TensorError (``not-capturable``) for any shape: residuals change from call to call."""
        message = f"'{self.artifact.plan.scheme}' keeps what it leaves out from call to call, and a CUDA graph can't"
        raise TensorError(Diagnostic("not-capturable", message, help="capture a scheme that sums everything"))

    def _touched(self, tensor: torch.Tensor, name: TensorName) -> Touched | None:
        """Return the names and memory that a call changes; calls of one name follow each other, as residuals do."""
        if tensor.is_cuda:
            return None
        return touched_by(tensor, frozenset([piece.name for piece in pieces_of(name, tensor)]))

    def _plan_call(self, tensor: torch.Tensor, op: Operation, rows: bool, name: TensorName) -> PlannedCall:
        self._ensure_fit(tensor)
        pieces = pieces_of(name, tensor)
        if self._keeper.keeps:
            self._keeper.store.ensure_fit(pieces)
        prepared = self.prepared(tensor, "sum", rows)

        def run(number: int, work: Work) -> torch.Tensor:
            return self._run(tensor, prepared, rows, pieces, op, number, work)

        return run

    def _ensure_fit(self, tensor: torch.Tensor) -> None:
        plan = self.artifact.plan
        if tensor.is_sparse and self._scheme.contributes:
            message = f"{plan.scheme} selects of dense tensors or keeps by them, and this one is sparse"
            help = "sum sparse gradients by a scheme without 'select' and 'feedback'"
            raise TensorError(Diagnostic("unsupported-layout", message, help=help))
        self.ensure_takes([tensor.dtype])

    def ensure_takes(self, dtypes: Iterable[torch.dtype]) -> None:
        """Raise TensorError (``unsupported-dtype``) where tensors of any of ``dtypes`` have no residuals."""
        for dtype in set(dtypes).difference(DTYPES):
            message = f"{self.artifact.plan.scheme} takes float32, float16 and bfloat16, not {dtype}"
            help = "what is lost is float32: convert the tensor, or sum it by a scheme that loses nothing"
            raise TensorError(Diagnostic("unsupported-dtype", message, help=help))

    def _run(
        self,
        tensor: torch.Tensor,
        prepared: PreparedCall,
        rows: bool,
        pieces: Pieces,
        op: Operation,
        number: int,
        work: Work,
    ) -> torch.Tensor:
        """Run the call, on the worker's turn."""
        self.communicator.ensure_healthy()
        if not tensor.numel():
            return tensor.coalesce() if tensor.is_sparse else tensor
        gradient = tensor.detach().contiguous() if self._scheme.contributes else tensor.detach()
        rounding = self._rounding(gradient)
        scheme = self._scheme if rounding is None else self._scheme.rounded(rounding)
        call = begun(scheme, self._keeper.store, pieces, op, prepared.layout, gradient, work.turn, rounding)
        carrier, contributed = call.contribute() if self._scheme.contributes else (gradient, None)
        if call.linear is None:
            carrier = carrier.view(gradient.shape) if contributed else carrier
        if call.linear is not None or carrier.dtype != gradient.dtype:
            prepared = self.prepared(carrier, "sum", rows and call.linear is None, rounding)
        prepared = replace(prepared, name=", ".join(piece.name for piece in pieces))
        result, counted = prepared.run(carrier, number, work.turn, call.losses)
        if contributed is None:
            self._keeper.store.count(pieces)
            total = self._divided(result, op, counted, work)
            return total if tensor.is_sparse else tensor
        call.finish(result)
        self._keeper.store.count(pieces)
        if counted is not None:
            counted.loss = call.report(contributed, counted)
            self._stats = work.counted = counted
        if not tensor.is_contiguous():
            tensor.detach().copy_(gradient)
        return tensor

    def _rounding(self, gradient: torch.Tensor) -> Rounded | None:
        """Return the code for plain values of ``gradient``; None where nothing is lost by it, or kept."""
        scheme = self._scheme
        wide = any(isinstance(one, Sketching | LowRank) for one in scheme.selections)
        if not scheme.keeps or gradient.dtype == torch.float32 or self.size == 1 or wide or scheme.fixed:
            return None
        code = Rounded(DTYPE_NAMES[gradient.dtype])
        return code if self.backend_on(gradient.device).rounds(code) else None

    def _divided(self, result: torch.Tensor, op: Operation, counted: CallStats | None, work: Work) -> torch.Tensor:
        """Return the result of a call that keeps nothing, divided for a mean."""
        if counted is not None:
            self._stats = work.counted = counted
        if op == "mean":
            values = result._values() if result.is_sparse else result
            values.div_(self.size)
            if values.is_cuda:  # GPUs make a NaN of their own
                values.masked_fill_(values.isnan(), torch.nan)
        return result

    def _parts_of(self, layout: Layout) -> PartUnits:
        """Return the units of each part, where a selection asks; by holders, whose parts come later, equal cuts."""
        if not any(isinstance(one, TopOfParts) for one in self._scheme.selections):
            return ()
        key = layout.units, layout.width
        if key not in self._parts:
            plan = self.artifact.plan
            self._parts[key] = _units_of_parts(plan.mapping, *key, plan.parts(self.size))
        return self._parts[key]


def _units_of_parts(mapping: Any, units: int, width: int, parts: int) -> PartUnits:
    if isinstance(mapping, Contiguous | Holders):
        sizes = part_sizes(Contiguous(), units, width, parts)
        ends = [sum(sizes[: part + 1]) for part in range(parts)]
        return [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    found = cut(mapping, units, width, parts)
    order = torch.from_numpy(found.part * max(1, int(found.sizes.max())) + found.slot).argsort()
    return torch.split(order, found.sizes.tolist())
