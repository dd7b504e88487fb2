"""Lossy call: the contribution, the sum and the residual of one call.

    1. gradient + residual, of which the selection leaves the contribution: in the tensor, or in a shorter one
    2. ``fixed``: the contribution becomes multiples of a power of two, which all ranks agree on
    3. the plan's reduce of that, as of any tensor
    4. under ``shifted`` that sum is of changes, and is added to all that was sent; votes leave all of 1.
    5. the residual is committed if the sum is finite, which all ranks see alike, since they hold the same bits
    6. for a mean, the sum is divided: on CPUs with 5. where it is still in segments, which are fewer values

Where losses of 16-bit gradients are kept, sums are made in float32: plain values travel as 16-bit ones by a code, whose
loss its rank keeps; and each rank keeps the result's losses in its share of the units.

The names and how often each was summed are part of the call's signature: ranks that differ find out by their first
message. A rank that is alone sends nothing, and so leaves nothing out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import torch

from zenc.plan.ir import Plan
from zenc.runtime.call.call_queue import Turn
from zenc.runtime.call.layout import DTYPE_NAMES, Layout
from zenc.runtime.call.planned_calls import Operation
from zenc.runtime.call.stats import CallStats, LossReport
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import allreduce_max
from zenc.runtime.lossy.contribution import Contributed
from zenc.runtime.lossy.cpu_contribution import CpuContribution
from zenc.runtime.lossy.gpu_contribution import GpuContribution
from zenc.runtime.lossy.gpu_kernels import GpuCompression
from zenc.runtime.lossy.kernels import CompressionKernels, shared_exponent
from zenc.runtime.lossy.linear import ChunkTransform, LinearMap, is_linear, map_of, remember
from zenc.runtime.lossy.losses import CallLosses
from zenc.runtime.lossy.low_rank import LowRankMap, low_rank_map
from zenc.runtime.lossy.residual_store import FlatState, Pieces, ResidualStore
from zenc.runtime.lossy.saved_state import first_push
from zenc.runtime.lossy.supports import Draw, PartUnits, forget_drifted, warmed
from zenc.scheme.compression import Decay, Fixed, LowRank, Momentum, Rounded, Selection, Shifted, Transform
from zenc.scheme.model import Encoded
from zenc.wire.cuts import Ends, ends_by_size, even_ends


@dataclass(frozen=True, slots=True)
class LossyScheme:
    """The facts of a ``plan`` that its calls need, on the ranks of ``communicator``."""

    plan: Plan
    communicator: Communicator
    parts_of: Callable[[Layout], PartUnits]
    kernels_on: Callable[[torch.device], CompressionKernels | GpuCompression]

    def rounded(self, code: Rounded) -> LossyScheme:
        """Return this scheme with ``code`` in the phases that have no code."""
        return replace(self, plan=self.plan.rounded(code))

    @property
    def selections(self) -> tuple[Selection, ...]:
        """The selections of a gradient."""
        return first_push(self.plan).select

    @property
    def fixed(self) -> Fixed | None:
        """The code that makes integers of the contribution."""
        code = first_push(self.plan).code
        return code if isinstance(code, Fixed) else None

    @property
    def keeps(self) -> bool:
        """Return whether there are residuals."""
        only_among = isinstance(self.plan.feedback, Shifted) or self.plan.votes
        return self.plan.feedback is not None and (self.communicator.size > 1 or not only_among)

    @property
    def shifts(self) -> bool:
        """Return whether ranks contribute the changes of their gradients: not where a rank is alone."""
        return isinstance(self.plan.feedback, Shifted) and self.communicator.size > 1

    @property
    def votes(self) -> bool:
        """Return whether ranks vote by a momentum that they keep: not where a rank is alone."""
        return self.plan.votes and self.keeps

    @property
    def remembers(self) -> bool:
        """Return whether the history of results is kept."""
        return "history" in self.plan.kept

    @property
    def contributes(self) -> bool:
        """Return whether the contribution may be another tensor than the gradient."""
        return self.plan.reworks

    @property
    def cuts_by_size(self) -> bool:
        """Return whether parts are cut by their encoded sizes in the last call of a name."""
        return isinstance(self.plan.mapping, Encoded)

    @property
    def loses_within(self) -> bool:
        """Return whether the phases of a call lose something."""
        first = first_push(self.plan)
        return any(phase.code or phase.merge or (phase.select and phase is not first) for phase in self.plan.phases)


@dataclass(slots=True)
class LossyCall:
    """Call of ``scheme`` over ``gradient`` [units, width], contiguous, which becomes the sum."""

    scheme: LossyScheme
    pieces: Pieces
    op: Operation
    layout: Layout
    gradient: torch.Tensor
    state: FlatState
    losses: CallLosses
    turn: Turn
    selections: tuple[Selection, ...] = ()
    total: torch.Tensor = field(init=False)
    """The rest of gradient and residual, [units, width] float32: the next residual."""
    steps: tuple[int, ...] = ()
    """The number of calls of each piece so far."""
    linear: LinearMap | LowRankMap | ChunkTransform | None = None
    made: torch.Tensor | None = None
    """The float32 tensor that is summed in place of the gradient, if it is made as values accumulate: votes, factors.
    """
    rounding: Rounded | None = None
    """The code of values that would otherwise travel as they are, in ``scheme`` too; the sum is made in float32 then.
    """

    @property
    def kernels(self) -> CompressionKernels | GpuCompression:
        """The kernels compiled for the memory of the gradient."""
        return self.scheme.kernels_on(self.gradient.device)

    def contribute(self) -> tuple[torch.Tensor, Contributed]:
        """Return the tensor to be summed by the plan, and its statistics: complete once the call has ended."""
        found = self._select()
        made = self._short() if self.linear and self.made is None else self.made
        carrier = self.gradient if made is None else made
        if self.rounding is not None or self.scheme.shifts:
            carrier = carrier.float()
        if not found.finite:
            carrier.view(-1)[0] = torch.nan
            if self.losses.taken is not None:
                self.losses.taken[0] |= 1
        if self.scheme.fixed is not None and self.scheme.communicator.size > 1:
            carrier = self._quantised(carrier, self.scheme.fixed)  # all ranks hear of the NaN, if there is one
        if self.scheme.keeps and not self.scheme.votes:
            of_short = torch.zeros_like(carrier, dtype=torch.float32).view(-1) if self.scheme.loses_within else None
            self.losses.residual = of_short if self.linear else self.total.view(-1)
        if self.scheme.cuts_by_size:
            self.losses.ends = self._ends(self.layout.units if self.linear is None else carrier.numel())
        if carrier is self.gradient and not (self.scheme.remembers or self.scheme.shifts):
            self.losses.averages = self._ranks
        return carrier, found

    def _ends(self, units: int) -> Ends:
        parts, known = self.scheme.plan.parts(self.scheme.communicator.size), self.state.ends
        return known if len(known) == parts and known[-1] == units else even_ends(units, parts)

    def _select(self) -> Contributed:
        """Leave the contribution in the gradient; for a linear selection everything in ``total``."""
        plan, draw = self.scheme.plan, self._draw()
        shifts, state = self.scheme.shifts, self.state if self.scheme.keeps else None
        if shifts:
            self.state.room("shift").copy_(self.gradient.view(-1))
        momentum = plan.feedback.m if isinstance(plan.feedback, Momentum) else None
        kernels, linear = self.kernels, is_linear(self.selections)
        floats = (
            torch.empty_like(self.gradient, dtype=torch.float32) if state is None or shifts else state.room("residual")
        )
        self.total = floats.view_as(self.gradient)
        work: CpuContribution | GpuContribution
        if isinstance(kernels, GpuCompression):
            picks = self.gradient.shape[1] == 1 and self.scheme.fixed is None
            adds = self._by_part(momentum) and state is not None and self.scheme.communicator.size > 1
            work = GpuContribution(kernels, self.gradient, state, self.total, picks=picks, leaves=adds)
        else:
            work = CpuContribution(kernels, self.gradient, state, self.total)
        if plan.transform is not None and self.selections:
            return self._transformed(work, plan.transform)
        if self.scheme.votes:
            return self._momentum(work)
        if isinstance(work, CpuContribution) and self._by_part(momentum):
            found = Contributed(0.0, 0.0, True)
            self.losses.contribute = partial(work.contribute_part, found)
            return found
        if not linear:
            if state is not None:
                forget_drifted(self.selections, state, self.gradient, momentum or 0.0)
            warmup = plan.warmup
            work.clears = warmup is None or self.losses.step >= warmup.steps
            contributed = work.contribute(momentum, self.selections, draw)
            if isinstance(work, GpuContribution):
                self._leave_to_call(work)
            return contributed
        self.linear = self._map()
        if isinstance(self.linear, LowRankMap) and isinstance(work, CpuContribution):
            self.made, found = work.take_factors(self.linear)
            return found
        squares, finite = work.accumulate(momentum, self.total)
        return Contributed(squares, 0.0, finite)

    def _transformed(self, work: CpuContribution | GpuContribution, of: Transform) -> Contributed:
        """Select of the coefficients of what ``work`` accumulates; leave the values of the others in ``total``."""
        squares, finite = work.accumulate(None, self.total)
        left = self.total.view(-1, 1)
        self.linear = transform = ChunkTransform(self.kernels, of, left.flatten().clone())
        transform.turn(transform.coefficients)
        sent, kernels = transform.coefficients.view(-1, 1), self.kernels
        self.layout = replace(self.layout, units=len(sent), width=1)
        if isinstance(kernels, GpuCompression):
            selecting = GpuContribution(kernels, sent, None, left, picks=self.scheme.fixed is None)
            found = selecting.contribute(None, self.selections, self._draw())
            self._leave_to_call(selecting)
        else:
            found = CpuContribution(kernels, sent, None, left).contribute(None, self.selections, self._draw())
        transform.turn(left.view(-1), back=True)
        return Contributed(squares, found.residual, finite and found.finite)

    def _momentum(self, work: CpuContribution | GpuContribution) -> Contributed:
        """Accumulate by ``work`` what this rank votes by, and leave it times ``beta`` in ``total``."""
        is_wide, feedback = self.gradient.dtype == torch.float32, self.scheme.plan.feedback
        assert isinstance(feedback, Decay)
        self.made = self.gradient if is_wide else torch.empty_like(self.gradient, dtype=torch.float32)
        squares, finite = work.accumulate(None, self.made)
        torch.mul(self.made, feedback.beta, out=self.total)
        return Contributed(squares, 0.0, finite)

    def _map(self) -> LinearMap | LowRankMap:
        (units, width), salt = self.gradient.shape, self.losses.salt
        if isinstance(of := self.selections[0], LowRank):
            return low_rank_map(self.kernels, of, self.pieces, self.steps, salt, self.state)
        return map_of(self.kernels, self.selections, units, width, salt, self.state, self.gradient.device)

    def _leave_to_call(self, work: GpuContribution) -> None:
        """Have the call read bits of what was contributed, add what was left to be added, and define the residual."""
        self.losses.taken, self.losses.before = work.taken, work.before
        self.losses.undefined = work.undefined and self.scheme.keeps and self.scheme.fixed is None
        if work.undefined and not self.losses.undefined:
            self.total.zero_()

    def _by_part(self, momentum: float | None) -> bool:
        """Return whether everything is contributed, and kernels may do so part by part, as only codes lose."""
        code, everything = first_push(self.scheme.plan).code, not self.selections and momentum is None
        coded = code is not None and not isinstance(code, Fixed)
        return everything and coded and self.gradient.dtype == torch.float32

    def _draw(self) -> Draw:
        parts = self._parts() if self.selections else ()
        return Draw(self.losses.step, self.losses.salt, self.losses.rank, parts)

    def _parts(self) -> PartUnits:
        if not self.scheme.cuts_by_size:
            return self.scheme.parts_of(self.layout)
        return [range(first, end) for first, end in pairwise((0, *self._ends(self.layout.units)))]

    def _short(self) -> torch.Tensor:
        assert self.linear is not None
        dtype = torch.float32 if self.linear.is_wide else self.gradient.dtype
        return self.linear.push(self.total, dtype)

    def _quantised(self, carrier: torch.Tensor, code: Fixed) -> torch.Tensor:
        """Return ``carrier`` as multiples of a power of two that all ranks share, float32; the rest is kept."""
        kernels = self.kernels
        greatest = float(carrier.abs().max()) if carrier.numel() else 0.0
        self.turn.settle()  # what ranks do all together has the group's own deadline
        (agreed,) = allreduce_max(self.scheme.communicator, [greatest])
        exponent = shared_exponent(code, agreed)
        rest = carrier.to(torch.float32, copy=True)
        quantised = carrier if carrier.dtype == torch.float32 else torch.empty_like(rest)
        kernels.quantise_fixed(code, "f32", rest.numel(), rest.data_ptr(), exponent, quantised.data_ptr())
        if self.linear is None:
            self.total += rest.view_as(self.total)
        else:
            self.linear.keep(rest, self.total)
        return quantised

    def finish(self, carried: torch.Tensor) -> bool:
        """Turn the gradient into the result of the sum ``carried``, of the tensor of ``contribute``.

        Commit the residual.
        """
        is_wide = carried.dtype != self.gradient.dtype
        result = torch.empty_like(self.gradient, dtype=torch.float32) if is_wide else self.gradient
        if self.linear is not None:
            self._expand(self.linear, carried, result)
            if self.losses.residual is not None:
                self.linear.keep(self.losses.residual, self.total)
        elif carried.data_ptr() != self.gradient.data_ptr():
            result = carried.view_as(self.gradient)
        wide = result is not self.gradient or self.scheme.shifts
        if wide:
            self._round(self._sent(result) if self.scheme.shifts else result)
        looked = self.losses.finite
        finite = self._is_finite() if looked is None else looked
        if finite and self.scheme.remembers:
            estimates = self.linear.estimates if isinstance(self.linear, LinearMap) else None
            remember(self.kernels, self.state, self.gradient, estimates)
        averaged = looked is not None and self.losses.averages
        if not averaged and self._ranks > 1 and not wide:
            self.gradient.div_(self._ranks)
        if not finite:  # torch's kernels make NaNs of their own
            self.gradient.masked_fill_(self.gradient.isnan(), torch.nan)
        if finite and self.scheme.plan.kept and (self.scheme.keeps or not self.scheme.plan.feedback):
            self._commit(carried)  # at last: a call that fails before has kept nothing
        if finite and self.losses.part_bytes:
            self.state.ends = ends_by_size(self.losses.ends, self.losses.part_bytes)
        return finite

    def _expand(
        self, linear: LinearMap | LowRankMap | ChunkTransform, carried: torch.Tensor, result: torch.Tensor
    ) -> None:
        """Write ``result`` [units, width]: what the sum ``carried`` means; its average at once where that can be."""
        whole = result is self.gradient and not self.scheme.shifts
        ranks = self._ranks if whole else 1
        looked = linear.average(carried, result, ranks) if isinstance(linear, LowRankMap) else None
        if looked is None:
            linear.pull(carried, result, self.total, self.scheme.communicator.size)
        elif whole:
            self.losses.finite, self.losses.averages = looked, ranks

    def _commit(self, carried: torch.Tensor) -> None:
        if isinstance(feedback := self.scheme.plan.feedback, Decay) and not self.scheme.votes:
            self.total.mul_(feedback.beta)
        linear, known = self.linear, self.state.now.factors
        self.state.next.factors = linear.factors(carried) if isinstance(linear, LowRankMap) else known
        self.state.commit()

    def _sent(self, change: torch.Tensor) -> torch.Tensor:
        """Return all that was sent, with ``change`` [units, width], and begin the next shift."""
        sent, shift, before = self.state.room("sent"), self.state.room("shift"), self.state.now.sent
        torch.sub(self.total.view(-1), shift, out=shift)
        sent.copy_(change.view(-1))
        return (sent if before is None else sent.add_(before)).view_as(self.gradient)

    def _round(self, result: torch.Tensor) -> None:
        """Write the gradient: the sum ``result`` [units, width] float32, or its mean; keep a share of its loss."""
        self.gradient.copy_(result / self._ranks if self._ranks > 1 else result)
        if self.scheme.keeps and not (self.scheme.shifts or self.scheme.votes):
            rank, size = self.scheme.communicator.rank, self.scheme.communicator.size
            mine = slice(*(result.numel() * each // size for each in (rank, rank + 1)))
            told = self.gradient.view(-1)[mine].float() * self._ranks
            self.total.view(-1)[mine] += result.view(-1)[mine] - told

    @property
    def _ranks(self) -> int:
        """The number of ranks over which the sum is averaged; 1 for a plain sum."""
        return self.scheme.communicator.size if self.op == "mean" else 1

    def _is_finite(self) -> bool:
        name = DTYPE_NAMES[self.gradient.dtype]
        return self.kernels.is_finite(name, self.gradient.numel(), self.gradient.data_ptr())

    def report(self, contributed: Contributed, counted: CallStats) -> LossReport:
        """Return the loss of this call, after it has ended."""
        gradient, residual = contributed.gradient**0.5, contributed.residual**0.5
        changed = self.scheme.loses_within or isinstance(self.scheme.plan.feedback, Decay)
        known = self.linear is None or (self.made is not None and self.gradient.dtype == torch.float32)
        if changed or not known:
            residual = float(torch.linalg.vector_norm(self.total))
        counted.layout = self.layout
        return {
            "gradient_norm": gradient,
            "residual_norm": residual,
            "residual_over_gradient": residual / gradient if gradient else 0.0,
            "compression_ratio": counted.dense_bytes / counted.bytes_sent if counted.bytes_sent else 1.0,
            "part_bytes": self.losses.part_bytes,
        }


def begun(
    scheme: LossyScheme,
    store: ResidualStore,
    pieces: Pieces,
    op: Operation,
    layout: Layout,
    gradient: torch.Tensor,
    turn: Turn,
    rounding: Rounded | None = None,
) -> LossyCall:
    """Return the call over ``gradient`` of any shape, contiguous if it contributes, with earlier residuals."""
    state, size = store.state_of(pieces, gradient.device), scheme.communicator.size
    steps = store.steps(pieces)
    losses = CallLosses(
        _salt(op, pieces, steps, state.ends), min(steps), scheme.communicator.rank, scheme.plan.warmup, None, size == 1
    )
    units = gradient.view(layout.units, layout.width) if scheme.contributes else gradient
    selections = warmed(scheme.selections, scheme.plan.warmup, losses.step) if size > 1 else ()
    return LossyCall(scheme, pieces, op, layout, units, state, losses, turn, selections, steps, rounding=rounding)


def _salt(op: Operation, pieces: Pieces, steps: tuple[int, ...], ends: Ends) -> int:
    """Return 64 bits shared only by ranks whose calls have the same names, counts, operation and cuts."""
    told = repr((op, [(piece.name, piece.shape) for piece in pieces], steps, *ends))
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "little")
