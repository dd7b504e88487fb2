"""Collective: a compiled scheme on a process group, whose ``all_reduce`` sums a tensor over the ranks.

    Collective = Artifact  Communicator  backend_on: device -> Backend  prepared: PreparedCall*

The artifact is the compiled scheme, the communicator the group: ranks, a number for each call, a worker that runs calls
in that order. A backend runs the plan on one device, and is prepared once for each shape, dtype and operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import torch
import torch.distributed as dist

from zenc.common.arguments import names_wrong_types
from zenc.errors import Diagnostic, TensorError
from zenc.plan.ir import PhaseKind
from zenc.runtime.backend_api import ensure_halves
from zenc.runtime.call.call_queue import Work
from zenc.runtime.call.layout import Exchangeable, as_tensor, in_units, writable
from zenc.runtime.call.planned_calls import Operation, OpLike, PlannedCall, PlannedCalls, operation_of
from zenc.runtime.call.stats import CallReport
from zenc.runtime.group.communicator import Communicator, let_go
from zenc.runtime.lossy.residual_store import TensorName, no_residual

if TYPE_CHECKING:
    from zenc.runtime.announced.announcement import Announcement
    from zenc.runtime.gpu.cuda_graph import CapturedCall
    from zenc.runtime.lossy.keeper import Keeper
    from zenc.select.online import Decision

Array = TypeVar("Array", bound=Exchangeable)


@dataclass(frozen=True, slots=True)
class Origin:
    """The way to load a collective ``again`` among the ranks of another communicator, where it goes on from this one.

    ``deadline``: seconds that any single wait may take.
    """

    again: Callable[[Communicator, Collective], Collective]
    deadline: float


class Collective(PlannedCalls):
    """A compiled scheme on one process group. Made by ``zenc.load``; all ranks of the group make it together.

    Calls of one group run in the order in which this rank made them; all ranks must make the same calls in the same
    order, as with every collective: several threads of a rank take turns, alike on all ranks. On CPUs one is packed and
    sent while the one before waits for other ranks.
    """

    origin: Origin | None = None
    """The way to load it once more."""
    has_let_go = False

    @property
    def stats(self) -> CallReport:
        """Statistics of the last finished call of this rank; empty before the first.

        ``bytes_sent``, ``bytes_received``: payload and headers of this rank's messages. ``units_in``, ``units_out``:
        units of this rank's gradient, and of the sum, that hold a value. ``density_in``, ``density_out``: the same as a
        share of ``units``, the number of all units. ``phases``: for ``push`` and ``pull``, and ``announce`` before them
        under ``balanced by holders``: bytes, messages, bytes by wire format, seconds, and ``imbalance``, which is the
        fullest part over the mean part, of this rank's own gradient, or of the sum (pull); under ``balanced by
        encoded`` of the bytes of the sum. ``made_again``: the room of capacity mode was too small, or a rank had other
        units than it announced, and the call was made a second time, exactly. ``waited``: seconds of waiting by peer,
        which are within those of the phases; not on GPUs.
        """
        return self._stats.to_json() if self._stats else {}

    @overload
    def all_reduce(
        self,
        tensor: Array,
        op: OpLike = ...,
        async_op: Literal[False] = ...,
        rows: bool = ...,
        name: TensorName = ...,
        announced: Announcement | None = ...,
    ) -> Array: ...

    @overload
    def all_reduce(
        self,
        tensor: Exchangeable,
        op: OpLike = ...,
        *,
        async_op: Literal[True],
        rows: bool = ...,
        name: TensorName = ...,
        announced: Announcement | None = ...,
    ) -> Work: ...

    @overload
    def all_reduce(
        self,
        tensor: Array,
        op: OpLike = ...,
        async_op: bool = ...,
        rows: bool = ...,
        name: TensorName = ...,
        announced: Announcement | None = ...,
    ) -> Array | Work: ...

    def all_reduce(
        self,
        tensor: Array,
        op: OpLike = "sum",
        async_op: bool = False,
        rows: bool = False,
        name: TensorName = "",
        announced: Announcement | None = None,
    ) -> Array | Work:
        """Sum ``tensor`` over all ranks.

        Args:
            tensor: dense (summed in place and returned) or sparse COO, coalesced or not (a new, coalesced tensor of the
                same shape and sparse dimensions is returned); of float32, float16 or bfloat16, on the CPU or a CUDA
                device. Shape, dtype, layout and kind of device must be the same on all ranks. 16-bit sums accumulate in
                float32 at every merge. Schemes that lose nothing also take float64, and signed integers and uint8,
                whose sums are exact, and wrap. An array with DLPack, as of CuPy or NumPy, is a dense tensor: it is
                summed in place, and returned; a ``Work`` ends with a tensor over its memory.
            op: "sum", or "mean", which divides by the number of ranks before it sums, as DDP does; or ReduceOp.SUM and
                ReduceOp.AVG of torch.distributed, which mean the same.
            async_op: return a ``Work`` at once; ``tensor`` is not to be touched until it has ended.
            rows: take the rows of a dense tensor for its units where the scheme's unit is ``auto``, which otherwise
                takes single elements. All ranks must say the same.
            name: the name of the tensor, the same on all ranks: where it differs they get an error
                (``different-calls``). A scheme that chooses among others does so for each name and shape; one with
                ``feedback`` keeps its losses by it. For a tensor of several pieces, one after another, it is a sequence
                of pairs: the name of each, and its elements or shape.
            announced: the announcement of this tensor's rows by all ranks: see ``announce``.

        Raises:
            TensorError: for a tensor that can't be summed, or of which something else was announced
                (``other-announcement``); nothing was sent.
            SynchronisationError: ranks disagree, a peer is gone, or a wait passed its deadline. A dense ``tensor`` has
                its values still, or the sum already; and +0 where it had -0, maybe. Where the scheme selects, it has
                the selected values.
        """
        self.communicator.ensure_healthy()
        summand = writable(tensor)
        if announced is None:
            plan_call = self._plan_call if summand.dtype.is_floating_point else self._plan_exact
            call = plan_call(summand, operation_of(op), rows, name)
        else:
            prepared = self.prepared(summand, operation_of(op), rows).named(name)
            call = self.counting(announced.call_of(summand, prepared, self))
        if not summand.is_sparse:
            torch.autograd.graph.increment_version(summand)  # a backward pass that has kept it is an error of torch
        result: Any = self.perform(call, summand, name, async_op, announced.key if announced else "")
        in_place = summand is not tensor and not summand.is_sparse
        return tensor if in_place and not async_op else result

    @names_wrong_types
    def all_reduce_coalesced(self, tensors: Sequence[torch.Tensor], op: OpLike = "sum") -> list[torch.Tensor]:
        """Sum each of ``tensors`` over all ranks: sparse tables of one width and dtype in one call, as one table.

        Where the scheme loses something or chooses among others each has its own call.

        Args:
            tensors: each as ``all_reduce`` takes it, of any shape; on all ranks the same list. Others have calls of
                their own, which overlap.
            op: as of ``all_reduce``.

        Returns:
            As of ``all_reduce``. Where all merges go in the order of the ranks, as under one-shot aggregation, the sum
            of a table is bit for bit that of a call of its own.

        Raises:
            TensorError, SynchronisationError: as ``all_reduce``; lists that differ are ``different-calls``.
        """
        from zenc.runtime.call.joined_tables import joinable, summed

        tensors = [as_tensor(each) for each in tensors]
        keeps_by_name = self.artifact.choosing is not None or self.keeper is not None
        together = [] if keeps_by_name else joinable(tensors)
        alone = sorted(set(range(len(tensors))).difference(*together))
        works = {at: self.all_reduce(tensors[at], op, async_op=True, name=str(at)) for at in alone}
        sums: dict[int, torch.Tensor] = {}
        for numbers in together:
            own = [tensors[number] for number in numbers]
            sums.update(zip(numbers, summed(self, own, operation_of(op)), strict=True))
        sums.update((number, work.wait()) for number, work in works.items())
        return [sums[number] for number in range(len(tensors))]

    def rebuild(self, group: dist.ProcessGroup | None = None) -> Collective:
        """Load the scheme on another group, which goes on from what this rank has kept: after a call that failed, say.

        All ranks of ``group`` take part, at the same place among their calls: those that have this collective call
        ``rebuild``, and new ones ``zenc.load``, with the same arguments as it was loaded with. The old group's threads
        and connections end if it is broken; this collective is not to be used any more.

        What goes on: residuals of each rank, and how often each tensor was summed; what a scheme that chooses has
        decided. A call that some ranks have ended, and others not, counts for none of them. What a rank that is gone
        has left out is lost with it.

        ``group`` has the ranks that go on, more or fewer than before, or all of them again; by default all that there
        are.

        Raises ZencError as ``zenc.load``, such as ``wrong-size`` where the scheme was compiled for another number of
        ranks, and SynchronisationError (``different-states``) where what ranks have kept is of other calls.
        """
        from zenc.runtime.group.process_groups import again_if_left, communicator_for

        origin = self.origin
        assert origin is not None
        rebuilt = again_if_left(lambda: origin.again(communicator_for(group, origin.deadline), self))
        if rebuilt.communicator is self.communicator:
            self.close()
        return rebuilt

    def close(self) -> None:
        """Let go of the group; all ranks call it, after the last call.

        When all that was loaded for a group has been closed, zenc's threads, connections, files and shared memory of
        it end, and so they do when the group is destroyed, or nobody refers to it any more, or the process ends. A
        call of what has ended is an error, ``group-broken``. It may be closed again, which does nothing.
        """
        if not self.has_let_go:
            self.has_let_go = True
            let_go(self.communicator)

    def ensure_takes(self, dtypes: Iterable[torch.dtype]) -> None:
        """Raise TensorError (``unsupported-dtype``) for any of ``dtypes`` that the scheme never sums."""

    @names_wrong_types
    def announce(self, ids: torch.Tensor, shape: Sequence[int], name: str = "") -> Announcement:
        """Tell all ranks, before there are values, the rows that this rank will have of tensors of ``shape``.

        Under ``balanced by holders`` ranks tell each other their units before any value travels. This does so as soon
        as ids are known, in a call of its own that goes on meanwhile. All ranks announce together; one that will have
        no rows announces none.

        Args:
            ids: integers of any shape, on the device of the tensors: rows of dimension 0, in any order, any of them
                several times.
            shape: that of the tensors, the same on all ranks.
            name: the name of the tensor, the same on all ranks.

        Returns:
            The argument ``announced`` of ``all_reduce``, for any number of calls. Its ``wait()`` raises as that does.
            Should any rank then have other rows than it announced all ranks find out, and sum as if nothing had been
            announced: that costs time, and ``stats["made_again"]`` says so.

        Raises TensorError: ``not-announced`` where the scheme is not balanced by holders, or its units are no rows;
        ``unit-out-of-range``, ``unsupported-dtype`` for wrong ids, on GPUs the first by ``wait()``.
        """
        from zenc.runtime.announced.announcement import announce_rows

        return announce_rows(self, ids, shape, name)

    @overload
    def reduce_scatter(
        self, tensor: Exchangeable, op: OpLike = ..., async_op: Literal[False] = ..., rows: bool = ..., name: str = ...
    ) -> torch.Tensor: ...

    @overload
    def reduce_scatter(
        self, tensor: Exchangeable, op: OpLike = ..., *, async_op: Literal[True], rows: bool = ..., name: str = ...
    ) -> Work: ...

    def reduce_scatter(
        self, tensor: Exchangeable, op: OpLike = "sum", async_op: bool = False, rows: bool = False, name: str = ""
    ) -> torch.Tensor | Work:
        """Sum ``tensor`` over all ranks, and get this rank's own units of the sum: the pushes of the scheme.

        Args:
            tensor: as ``all_reduce`` takes it; it keeps its values.
            op: "sum" or "mean", as in ``all_reduce``.
            async_op: return a ``Work`` at once; ``tensor`` is not to be touched until it has ended.
            rows: as in ``all_reduce``.
            name: the name of the tensor, the same on all ranks.

        Returns:
            A coalesced sparse COO tensor of the same shape and dtype, bit for bit the result of ``all_reduce`` at the
            units that this rank owns. Its units are those of the scheme: rows of a tensor whose units are rows, and
            single elements, in as many sparse dimensions as the tensor has, of a dense one whose units are elements.

        Raises:
            TensorError: as ``all_reduce``, and (``phase-not-alone``) where the scheme has no owners that hold for every
                gradient, loses something, or chooses among others.
            SynchronisationError: as ``all_reduce``.
        """
        summand = as_tensor(tensor)
        call = self._plan_half(PhaseKind.PUSH, summand, operation_of(op), rows, name)
        return self.perform(call, summand, name, async_op)

    @overload
    def all_gather(self, part: torch.Tensor, async_op: Literal[False] = ..., name: str = ...) -> torch.Tensor: ...

    @overload
    def all_gather(self, part: torch.Tensor, async_op: Literal[True], name: str = ...) -> Work: ...

    def all_gather(self, part: torch.Tensor, async_op: bool = False, name: str = "") -> torch.Tensor | Work:
        """Bring the rows of the units that each rank owns to all ranks: the pulls of the scheme.

        Args:
            part: sparse COO of the shape that all ranks share, such as ``reduce_scatter`` returns, with units that this
                rank owns alone, any or none of them. Where several ranks own a unit all of them give the same.
            async_op: return a ``Work`` at once; ``part`` is not to be touched until it has ended.
            name: the name of the tensor, the same on all ranks.

        Returns:
            A coalesced sparse COO tensor of that shape and dtype, the same on all ranks: the units of all owners. A
            pull in a format that fills up, ``dense`` or ``block``, adds zeros between them.

        Raises:
            TensorError: as ``reduce_scatter``; (``unsupported-layout``) for a dense tensor; and (``not-owned``) for
                units of others, which ends the group as any call that fails on one rank.
            SynchronisationError: as ``all_reduce``.
        """
        if not (part := as_tensor(part)).is_sparse:
            message = "all_gather takes a sparse COO tensor: the units that this rank has, of those that it owns"
            raise TensorError(Diagnostic("unsupported-layout", message, help="convert it with .to_sparse(1) for rows"))
        return self.perform(self._plan_half(PhaseKind.PULL, part, "sum", False, name), part, name, async_op)

    @names_wrong_types
    def owned(self, shape: Sequence[int], sparse_dim: int = 1) -> torch.Tensor:
        """Return whether this rank owns each unit of tensors of ``shape``: bool [units], for each ``sparse_dim`` index.

        On the CPU, wherever such tensors are. Units are those of the scheme: rows of ``shape[0]``, if it does not say
        ``unit: element``. Every unit has an owner, under most schemes one; where the push ends with the whole at every
        rank, all own all. No communication.

        Raises TensorError (``phase-not-alone``) as ``reduce_scatter``.
        """
        from zenc.runtime.call.owned_units import owned_units

        ensure_halves(self.artifact.plan, self.artifact.name, self.artifact.choosing is not None)
        return owned_units(self.artifact.plan, self.size, self.rank, shape, sparse_dim)

    def _plan_half(self, half: PhaseKind, tensor: torch.Tensor, op: Operation, rows: bool, name: str) -> PlannedCall:
        """Return the pushes or pulls of a call of ``tensor``; raises TensorError where they are impossible alone."""
        ensure_halves(self.artifact.plan, self.artifact.name, self.artifact.choosing is not None)
        self.communicator.ensure_healthy()
        prepared = self.prepared(tensor, op, rows, half).named(name)
        sparse_dim, whole = in_units(prepared.layout).sparse_dim, self.counting(partial(prepared.run, tensor))

        def run(number: int, work: Work) -> torch.Tensor:
            result = whole(number, work)
            return result if result.is_sparse else result.to_sparse(sparse_dim)

        return run

    def capturable(self, tensor: torch.Tensor, op: OpLike = "sum", rows: bool = False) -> CapturedCall:
        """Return an ``all_reduce`` of ``tensor``, of any shape, for a CUDA graph; all ranks ask together.

        It works on GPUs, with ``capacity`` given to ``zenc.load``.
        """
        from zenc.runtime.gpu.cuda_graph import CapturedCall

        self.communicator.ensure_healthy()
        return CapturedCall(self, writable(tensor), operation_of(op), rows, partial(self.all_reduce, op=op, rows=rows))

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The scheme of each tensor, with the reason, where the scheme chooses among others; otherwise empty."""
        return ()

    @property
    def keeper(self) -> Keeper | None:
        """The keeper of what calls leave out, by the names of tensors, where something is left out."""
        return None

    def residual(self, name: str) -> torch.Tensor:
        """Return a copy of the losses that the calls of ``name`` have kept so far, float32, in the shape of its tensor.

        They are this rank's, after all earlier calls. Raises TensorError (``no-residual``).
        """
        if self.keeper is None:
            raise no_residual(self.artifact.plan.scheme, name)
        return self.keeper.residual(name)

    def state_dict(self, together: bool = False) -> dict[str, Any]:
        """Return the learned state, for a checkpoint: the decisions of a scheme that chooses, as JSON data.

        A scheme with ``feedback`` returns its residuals, as plain values and tensors. They are a rank's own, to go on
        from on the same rank of as many; ``together`` all ranks ask for sums, from which any number of them goes on.
        Of other schemes, nothing. ``torch.load(..., weights_only=True)`` reads it.

        Raises SynchronisationError where ranks stay away or hold other names.
        """
        return {} if self.keeper is None else self.keeper.state_dict(together)

    @names_wrong_types
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``, before the first call, on all ranks.

        Raises CostError (``bad-state``) unless it is a state of such a scheme, and TensorError for one of other tensors
        (``other-model``) or of another rank (``other-world``).
        """
        if self.keeper is not None:
            self.keeper.load_state_dict(state)

    def _plan_exact(self, tensor: torch.Tensor, op: Operation, rows: bool, name: TensorName) -> PlannedCall:
        """Return the call of ``tensor``, which may have integers, as ``_plan_call`` does."""
        from zenc.runtime.call.integers import INTEGERS, call_of

        given = tensor, op, rows, name
        return call_of(self, self._plan_call, *given) if tensor.dtype in INTEGERS else self._plan_call(*given)

    def _plan_call(self, tensor: torch.Tensor, op: Operation, rows: bool, name: TensorName) -> PlannedCall:
        """Return the call of ``tensor``, for the worker to run; raises TensorError for a tensor that can't be summed.

        Schemes that choose decide for each ``name`` and shape.
        """
        prepared = self.prepared(tensor, op, rows)
        return self.counting(partial((prepared.named(name) if name else prepared).run, tensor))

    def __repr__(self) -> str:
        return f"<zenc.Collective {self.artifact.plan.scheme} {self._digest[:12]} rank {self.rank} of {self.size}>"
