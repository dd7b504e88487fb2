"""Optimizer of tables that are whole on every rank, and whose states are at the owners of rows alone.

    step = push: sparse gradients to owners, summed
           update: each owner, its touched rows, by an optimizer of torch
           pull: the updated rows to all ranks, in the table's dtype # or those each rank asks for, by fetch

The parameters are those of the unsharded optimizer bit for bit, fed with the all-reduce of the same scheme; once
``clip_grad_norm_`` has scaled gradients, up to the rounding of the norm.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import Optimizer

from zenc.api import load
from zenc.common.arguments import names_wrong_types
from zenc.errors import Diagnostic, SynchronisationError, TensorError
from zenc.plan.ir import PhaseKind
from zenc.runtime.backend_api import not_alone
from zenc.runtime.call.call_queue import Work
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.layout import all_plain, as_tensor, ensure_writable
from zenc.runtime.call.planned_calls import OpLike, operation_of
from zenc.runtime.group.agreement import Options
from zenc.runtime.group.host_collectives import broadcast, exchange, gather
from zenc.runtime.group.process_groups import again_if_left
from zenc.runtime.load import agreement_in, agreement_of
from zenc.tables.fetched_rows import FetchedRows
from zenc.tables.moved_states import Lost, OldTables, StateMove, known_steps
from zenc.tables.owned_rows import OwnedRows, of_rows
from zenc.tables.row_optimizers import ensure_sparse
from zenc.tables.table_state import read_pieces, sharded_state, whole_state
from zenc.torch.attach import Scheme
from zenc.torch.clip import values_of
from zenc.wire.formats import FILLING

OptimizerClass: TypeAlias = Callable[..., Optimizer]


class ShardedTableOptimizer(Optimizer):
    """An optimizer that trains ``params``, tables [rows, ...] with sparse gradients; its states are at owners alone.

    All ranks make it together. They begin with the tables of rank 0, as under DDP. ``step`` sums the gradients, so
    they must not be summed by others: DDP is to ignore these parameters. A rank without a gradient in a step has an
    empty one.

    Args:
        params: parameters, or groups of them with options of their own, as of any optimizer of torch. States are where
            their parameter is.
        optimizer: ``torch.optim.SparseAdam``, ``torch.optim.Adagrad``, ``zenc.LazyAdamW`` or ``zenc.RowwiseAdagrad``.
        scheme: as ``zenc.load`` takes it, or a collective. Its owners must not depend on gradients, and its units be
            rows: ``balanced``, for one.
        group: the ranks; default: all.
        op: "mean" of the ranks' gradients, as under DDP, or "sum".
        deadline: seconds that any single wait may take; see ``zenc.load``.
        on_demand: updated rows stay with their owners until a rank asks for them by ``fetch``, before it looks them up.
        init_sync: bring the tables of rank 0 to all ranks; False where all have the same already.
        options: those of ``optimizer``, such as ``lr``; learning rate schedules work as on any optimizer.

    Raises:
        TensorError: ``unsupported-optimizer``; ``phase-not-alone``; and in a step ``needs-sparse`` and ``not-fetched``.
        ZencError: as in ``zenc.load``.
    """

    @names_wrong_types
    @torch.inference_mode(False)
    def __init__(
        self,
        params: Iterable[Any],
        optimizer: OptimizerClass,
        scheme: Scheme | Collective = "balanced",
        *,
        group: dist.ProcessGroup | None = None,
        op: OpLike = "mean",
        deadline: float | None = None,
        on_demand: bool = False,
        init_sync: bool = True,
        **options: Any,
    ) -> None:
        self._op, self._pushed, self._on_demand, self._whole = op, list[torch.Tensor](), on_demand, False
        agreement = agreement_of(scheme) if isinstance(scheme, Collective) else agreement_in(group, deadline)
        agreement.obtained(lambda: self._begin(params, optimizer, options), lambda _: self._told(scheme))
        self.collective = scheme if isinstance(scheme, Collective) else load(scheme, group, deadline=deadline)
        pulls = self.collective.artifact.plan.of(PhaseKind.PULL)
        self._fills = any(phase.format in FILLING for phase in pulls)
        self._fetched = list[FetchedRows]()
        self._steps, self._is_torn = 0, False  # steps that have ended; whether one has updated states and not ended
        self._tables = self._owned_tables()
        self._go_on_from(None, init_sync)
        self._whole = True

    def _begin(self, params: Iterable[Any], optimizer: OptimizerClass, options: Mapping[str, Any]) -> None:
        """Begin as an optimizer of ``params``, whose rows are updated by an ``optimizer`` of no parameter."""
        self._inner = optimizer([torch.zeros(0, 1, dtype=torch.float32, device="cpu")], **options)
        super().__init__(params, dict(self._inner.defaults))
        for given in self.param_groups:
            for each in all_plain(given["params"]):
                ensure_writable(each)
        self._inner.param_groups = [{**given, "params": []} for given in self.param_groups]
        self._inner.state.clear()

    def _told(self, scheme: object) -> Options:
        """Return the options that other ranks must have given, too, whether they make or rebuild theirs."""
        own = {"optimizer": type(self._inner).__name__, "op": operation_of(self._op), "on_demand": str(self._on_demand)}
        own["collective"] = "given" if isinstance(scheme, Collective) else "made here"
        tables = [(number, each) for number, given in enumerate(self.param_groups) for each in given["params"]]
        return {
            **own,
            **{
                f"table {place}": f"{list(each.shape)} {each.dtype} on {each.device.type}, of group {number}"
                for place, (number, each) in enumerate(tables)
            },
        }

    def _told_of_updates(self, init_sync: bool) -> Options:
        """Return the options that other ranks must have given, too, where all begin; schedules change them later."""
        groups = {
            f"{name} of group {number}": str(value)
            for number, given in enumerate(self.param_groups)
            for name, value in given.items()
            if name != "params"
        }
        return {"init_sync": str(init_sync), **groups}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; groups are given at making, and later it raises TensorError (``unsupported-optimizer``)."""
        if self._whole:
            message = "tables are given when the optimizer is made, by all ranks together"
            raise TensorError(Diagnostic("unsupported-optimizer", message, help="make one more optimizer"))
        super().add_param_group(param_group)

    @torch.inference_mode(False)
    def rebuild(
        self,
        group: dist.ProcessGroup | Collective | None = None,
        *,
        lost: Mapping[str, Any] | Sequence[Mapping[str, Any]] | Literal["untouched"] | None = None,
    ) -> None:
        """Go on among the ranks of ``group``, more or fewer than before: after a step that failed, say.

        All ranks take part: those that have this optimizer call ``rebuild``, and new ones make it, as it was made.
        States move to the owners that rows have now. A step that some ranks have ended and others not counts for none
        of them: all have the tables, states and options of one that has made the fewest.

        Args:
            group: the ranks, default: all there are; or a collective among them, rebuilt already, where one was given
                when the optimizer was made.
            lost: the states of rows whose owner is gone: a checkpoint's, as ``load_state_dict`` takes them; or
                "untouched": they begin anew.

        Raises:
            SynchronisationError: ``lost-rows``, on all ranks, where rows were lost and ``lost`` has no states for them,
                and always for rows ``on_demand``; ``different-states``; and those of ``Collective.rebuild``. It can be
                called once more then.
            CostError: ``bad-state``, unless it is a state of such tables.
        """
        if self._on_demand:
            message = "updated rows are at their owners alone where they come on demand, and are lost with a rank"
            help = "make a new optimizer among the ranks that are there, and load the last checkpoint and its tables"
            raise SynchronisationError(Diagnostic("lost-rows", message, help=help))
        origin = self.collective.origin

        def agreed() -> tuple[Any, bool]:
            seconds = origin.deadline if origin else None
            agreement = agreement_of(group) if isinstance(group, Collective) else agreement_in(group, seconds)
            return agreement.obtained(lambda: self._pieces(lost), lambda _: self._told(group))

        saved, _ = agreed() if isinstance(group, Collective) else again_if_left(agreed)
        found: Lost = "untouched" if lost == "untouched" else saved[0] if saved else None
        old, before = [table for _, table in self._tables], (self.collective, self._tables)
        if self._is_torn:
            for table in old:
                table.undo()
        self._pushed, self._is_torn = [], False
        try:
            self.collective = group if isinstance(group, Collective) else self.collective.rebuild(group)
            self._tables = self._owned_tables()
            options = [{name: value for name, value in each.items() if name != "params"} for each in self.param_groups]
            self._go_on_from(OldTables(old, self._steps, options, found), False)
        except BaseException:
            self.collective, self._tables = before
            raise

    def _pieces(self, lost: Any) -> Any:
        """Return the pieces of the tables in ``lost``; None where it has no states."""
        if lost is None or lost == "untouched":
            return None
        return read_pieces(lost, self._heights(), len(self.param_groups))

    def _go_on_from(self, own: OldTables | None, init_sync: bool) -> None:
        """Begin with the state of some ranks; without any, with the tables of rank 0 by ``init_sync``."""
        tables, communicator = [table for _, table in self._tables], self.collective.communicator
        known = known_steps(own, tables, communicator)
        if known is None:
            agreement_of(self.collective).reach(self._told_of_updates(init_sync))
            return self._begin_alike(0) if init_sync else None
        if own is not None and own.steps > known.least:
            for table in own.tables:
                table.undo()
        self._begin_alike(known.root)
        self._steps = known.least  # also where states are missing, and this is called once more
        options = StateMove(own, tables, known, communicator).run()
        for given, values in zip(self.param_groups, options, strict=True):
            given.update(values)

    def _owned_tables(self) -> list[tuple[int, OwnedRows]]:
        """Return the group number of each table, and the rows of it that this rank owns, as if never touched."""
        return [
            (number, self._table(parameter, self._inner.param_groups[number]))
            for number, given in enumerate(self.param_groups)
            for parameter in given["params"]
        ]

    def _heights(self) -> list[int]:
        return [len(table.parameter) for _, table in self._tables]

    def _table(self, parameter: nn.Parameter, group: dict[str, Any]) -> OwnedRows:
        owned = self.collective.owned(parameter.shape)
        if len(owned) != len(parameter):
            name, help = self.collective.artifact.plan.scheme, "load one with 'unit: auto' or 'unit: row'"
            raise not_alone(name, "its units are single elements, and a row has no one owner", help)
        owners, device = self._owners(owned), parameter.device
        counted = (owners == self.collective.rank)[owned]
        table = OwnedRows(parameter, owned.nonzero()[:, 0].to(device), counted.to(device))
        table.begin(self._inner, group)
        if self._on_demand:
            self._fetched.append(FetchedRows.begin(table, owners.to(device), self.collective.size))
        return table

    def _owners(self, owned: torch.Tensor) -> torch.Tensor:
        """Return the lowest rank that owns each row, [rows] int16; all ranks exchange their ``owned`` rows."""
        mine, communicator = np.packbits(owned.numpy()).tobytes(), self.collective.communicator
        owners = torch.zeros(len(owned), dtype=torch.int16, device="cpu")
        for rank, told in reversed(list(enumerate(communicator.worker.run(lambda: gather(communicator, mine))))):
            bits = np.unpackbits(np.frombuffer(told, dtype=np.uint8), count=len(owned)).view(np.bool_)
            owners[torch.from_numpy(bits)] = rank
        return owners

    def _begin_alike(self, root: int) -> None:
        communicator, group = self.collective.communicator, self.collective.communicator.parent()
        assert group is not None, "a collective that makes calls has its group"
        for _, table in self._tables:
            whole = table.parameter.detach().contiguous()
            if whole.is_cuda:
                dist.broadcast(whole, dist.get_global_rank(group, root), group)
            else:  # the group may be of NCCL, which has nothing for the CPU
                communicator.worker.within(partial(broadcast, communicator, root, whole))
            table.parameter.detach().copy_(whole)

    def push(self) -> None:
        """Sum the gradients, to their owners, unless that was done since the last step; all ranks together."""
        if self._pushed:
            return
        gradients = [_empty(t.parameter) if t.parameter.grad is None else t.parameter.grad for _, t in self._tables]
        gradients = all_plain(gradients)
        for gradient in gradients:
            ensure_sparse(gradient)
        for fetched, gradient in zip(self._fetched, gradients, strict=bool(self._fetched)):
            fetched.ensure_current(gradient)
        works = [self.collective.reduce_scatter(each, self._op, async_op=True) for each in gradients]
        self._pushed = [work.wait() for work in works]

    def clip_grad_norm_(self, max_norm: float, others: Iterable[torch.Tensor] = ()) -> torch.Tensor:
        """Scale the gradients, of tables once they are summed, so that their norm is at most ``max_norm``; in place.

        All ranks call it together, after the backward pass and before ``step``. Each owner adds the squares of its rows
        in float64: the last digits of the norm may differ from ``zenc.clip_grad_norm_`` of whole gradients, which adds
        in their dtype, and so may those of the weights. ``others``: parameters of any shapes whose gradients are equal
        on all ranks, as DDP leaves them.

        Returns:
            The total 2-norm before clipping, float64 without dimensions, the same on all ranks.
        """
        self.push()
        squares = sum(table.squares(sums) for (_, table), sums in zip(self._tables, self._pushed, strict=True))
        communicator = self.collective.communicator
        told = communicator.worker.run(lambda: gather(communicator, struct.pack("<d", squares)))
        dense = [values_of(other) for other in others if other.grad is not None]
        of_others = [float(torch.linalg.vector_norm(each.double()).square()) for each in dense]
        total = math.sqrt(math.fsum([struct.unpack("<d", each)[0] for each in told] + of_others))
        scale = min(max_norm / (total + 1e-6), 1.0)  # NaN stays
        for values in (*dense, *(sums.values() for sums in self._pushed)):
            values.mul_(scale)
        return torch.tensor(total, dtype=torch.float64, device="cpu")

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Sum the gradients, update rows at their owners, and bring them to all ranks; all ranks together."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.push()
        for inner, given in zip(self._inner.param_groups, self.param_groups, strict=True):
            inner.update({name: value for name, value in given.items() if name != "params"})
        fills = self._fills and not self._on_demand
        sums, self._pushed, self._is_torn = self._pushed, [], True
        for _, table in self._tables:
            table.before = None  # all ranks have pushed, so none goes back to before the step before
        rows = (
            t.update(self._inner, number, each, fills) for (number, t), each in zip(self._tables, sums, strict=True)
        )
        if self._on_demand:
            for fetched, each in zip(self._fetched, rows, strict=True):
                fetched.updated(each)
        else:
            self._bring(rows)
        self._steps, self._is_torn = self._steps + 1, False
        return loss

    def _bring(self, rows: Iterable[torch.Tensor]) -> None:
        """Put the owned ``rows`` of all ranks, sparse, of each table, into the tables of all."""
        works: list[Work] = [self.collective.all_gather(each, async_op=True) for each in rows]
        found = [work.wait() for work in works]  # a step that fails has changed no table
        for (_, table), each in zip(self._tables, found, strict=True):
            table.write(each)

    def fetch(self, *ids: torch.Tensor) -> None:
        """Bring rows of the tables up to date with their owners; all ranks together, before the forward pass.

        It does nothing where rows are not ``on_demand``.

        Args:
            ids: a tensor of row numbers, of any shape, for each table: what this rank is going to look up. Without any,
                all rows are brought to all ranks, as before a checkpoint of the tables.

        Raises TensorError (``not-fetched``) for another number of tensors than of tables, and (``unit-out-of-range``);
        and SynchronisationError.
        """
        if ids and len(ids) != len(self._tables):
            message = f"fetch was given row numbers of {len(ids)} tables, and there are {len(self._tables)}"
            raise TensorError(Diagnostic("not-fetched", message, help="give a tensor for each, an empty one for none"))
        ids = tuple(as_tensor(each) for each in ids)
        if not ids:
            self._fetch_all()
        for fetched, asked in zip(self._fetched, ids, strict=False):
            self._fetch(fetched, asked)

    @torch.no_grad()
    def _fetch_all(self) -> None:
        if self._on_demand:
            self._bring([fetched.changes(self._fills) for fetched in self._fetched])
        for fetched in self._fetched:
            fetched.all_came()

    @torch.no_grad()
    def _fetch(self, fetched: FetchedRows, ids: torch.Tensor) -> None:
        narrow = torch.int32 if len(fetched.owners) <= 1 << 31 else torch.int64
        own = fetched.asked(ids)
        asked = self._exchange([each.to(narrow).view(torch.uint8) for each in own])
        rows = [each.clone().view(narrow).long().to(fetched.current.device) for each in asked]
        answers = self._exchange([fetched.answer(rank, each) for rank, each in enumerate(rows)])
        for each, answer in zip(own, answers, strict=True):
            fetched.take(each, answer)

    def _exchange(self, pieces: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return each rank's piece for this one, on the CPU; ``pieces`` on any device has one for each rank."""
        communicator, sent = self.collective.communicator, [piece.cpu() for piece in pieces]
        return communicator.worker.run(lambda: exchange(communicator, sent))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, and pushed sums."""
        self._pushed = []
        super().zero_grad(set_to_none)

    def state_dict(self, whole: bool = False) -> dict[str, Any]:
        """Return the states of this rank's rows; or ``whole``, for which all ranks ask together, and which all get.

        A whole state is that of the unsharded optimizer, with states [rows, ...], and goes into it by its own
        ``load_state_dict``. Both are plain values and tensors, which ``torch.load(..., weights_only=True)`` reads.
        """
        tables = [table for _, table in self._tables]

        def filled(_: Optimizer, plain: dict[str, Any]) -> dict[str, Any]:
            groups = plain["param_groups"]
            return whole_state(tables, groups, self.collective) if whole else sharded_state(tables, groups)

        first = self.register_state_dict_post_hook(filled, prepend=True)  # other hooks get what it returns
        try:
            return super().state_dict()
        finally:
            first.remove()

    @torch.inference_mode(False)
    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Go on from a state: a whole one, or that of the unsharded optimizer; or those of all ranks that saved theirs.

        Any number of ranks may do it, under any scheme: each rank takes the rows that it owns. A single state of a rank
        will do where it has all of these. Raises CostError (``bad-state``, ``other-version``); nothing has changed
        then.
        """
        given: Any = copy(state_dict)
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            given = before(self, given) or given
        pieces, groups = read_pieces(given, self._heights(), len(self.param_groups))
        filled = [table.filled(of_table) for (_, table), of_table in zip(self._tables, pieces, strict=True)]
        for (_, table), (states, once) in zip(self._tables, filled, strict=True):
            table.states, table.once, table.before = states, once, None
        for own, saved in zip(self.param_groups, groups, strict=True):
            own.update({name: value for name, value in saved.items() if name != "params"})
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)


def _empty(parameter: torch.Tensor) -> torch.Tensor:
    rows = parameter.detach()[:0]
    return of_rows(torch.zeros(0, dtype=torch.int64, device=rows.device), rows, parameter.shape)
