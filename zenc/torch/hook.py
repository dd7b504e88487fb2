"""DDP communication hooks: sparse buckets go through the scheme, dense ones mostly keep DDP's own all-reduce.

DDP gives every sparse parameter a bucket of its own, whose buffer is one sparse COO tensor, mostly uncoalesced, and
takes the future of one sparse tensor of the same shape back. With a hook DDP does not divide by the number of ranks;
the hook does. Buckets are rebuilt after the first step, so state is kept by the parameter's name.

What happens with a bucket is looked up in the plan of a step: ``zenc.torch.step_plan``.

Dense gradients stay with DDP's own all-reduce, but for those named by the user: tables whose optimizer refuses sparse
gradients, such as Adam, which are mostly rows of zeros; or all but the small ones, under a scheme for such gradients.
See ``zenc.torch.bucket``. A strategy has several schemes: each gradient goes by the rule of its parameter, and those of
one rule in a bucket, or in a group of buckets, go in one call. The order of calls follows from that of DDP's buckets
and that of the rules, so it is the same on all ranks.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from zenc.errors import Diagnostic, SchemeError, ZencError
from zenc.runtime.announced.announcement import Announcement
from zenc.runtime.call.call_queue import Work
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.stats import CallReport
from zenc.runtime.choice.profiler import Profiler
from zenc.runtime.group.agreement import Options
from zenc.runtime.load import agreement_of
from zenc.runtime.lossy.residual_store import TensorName
from zenc.torch.announcer import Announcer
from zenc.torch.bucket import Averaged, Future, PendingBucket, gathered, pieces_of
from zenc.torch.feedback import ScaleWatch, used_somewhere
from zenc.torch.parameters import Served
from zenc.torch.records.call_log import CallLog, call_name
from zenc.torch.slot import own_way
from zenc.torch.step_plan import BucketPlan, StepPlan, Way
from zenc.torch.strategy.active_rule import ActiveRule, ArrivedGradient, calls_as, calls_of, ways_of
from zenc.torch.strategy.table_groups import JoinedCall, WaitingTable, calls_of_tables

# No "from __future__ import annotations" here: DDP compares the annotations of a hook with its own classes.

log = logging.getLogger("zenc")


class ZencState:
    """The state of the communication hook: the rules, the names of parameters, and statistics by name.

    Args:
        collective: the loaded scheme; or the rules of a strategy.
        process_group: DDP's own group, for dense buckets; default: all ranks.
        names: parameter -> name, for ``stats``; parameters without one are called by their bucket.
        dense: parameters whose gradients are dense, and go through the scheme all the same, row by row.
        profiler: counts the holders of units, on some steps; the same on all ranks.
        together: more parameters with dense gradients, in the order of the model: those of a bucket go in one call.
    """

    def __init__(
        self,
        collective: Collective | Sequence[ActiveRule],
        process_group: dist.ProcessGroup | None = None,
        names: Mapping[torch.Tensor, str] | None = None,
        dense: Iterable[torch.Tensor] = (),
        profiler: Profiler | None = None,
        together: Iterable[torch.Tensor] = (),
    ) -> None:
        self._names = {id(parameter): name for parameter, name in (names or {}).items()}
        if isinstance(collective, Collective):
            rows, others = self._called(dense, "table"), self._called(together, "parameter")
            agreement_of(collective).reach(_told(self._names.values(), rows, others, profiler))
            self.rules: tuple[ActiveRule, ...] = (ActiveRule("", collective, Served((), rows, others)),)
        else:
            self.rules = tuple(collective)
        self.profiler = profiler
        if profiler:
            profiler.begin()
        self.process_group = process_group
        self.log = CallLog()
        self.shapes = {name: tuple(parameter.shape) for parameter, name in (names or {}).items()}
        """Parameter name -> shape."""
        self._ways = {id(parameter): way for rule in self.rules for parameter, way in ways_of(rule)}
        self._sparse = {name: rule for rule in self.rules for name in rule.served.sparse}
        self.announcer = Announcer()
        """The announcer of rows that gradients will have, for schemes balanced by holders."""
        self.scaling: ScaleWatch | None = None
        """The watch over the scale of gradients, if they have one."""
        self.unused = False
        """True where there may be parameters that no rank uses in a step, whose averages DDP drops."""
        self.plan = StepPlan()
        """The plan of a step: what happens with each bucket."""
        self.calls: list[list[str]] = []
        """The parameters of each call of several buckets' gradients in the last step, by name."""
        self._calls_before: list[list[str]] = []
        """The calls that the next step is to make, as before a restart."""
        self._waiting: list[WaitingTable] = []
        """Tables of the group that has not arrived whole."""
        self._pending: list[tuple[PendingBucket, list[ArrivedGradient]]] = []
        """Dense buckets of the group that has not arrived whole, with their gradients that go together with others."""

    def _called(self, parameters: Iterable[torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
        """Name -> parameter; those without a name are counted."""
        return {self._names.get(id(each), f"{kind} {number}"): each for number, each in enumerate(parameters)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to a state to attach anew: a copy keeps no process group, as it may be in another process."""
        return _elsewhere, ()

    def __repr__(self) -> str:
        works = ", ".join(repr(each) for each in self.collectives) or "a copy, with no scheme"
        return f"<zenc.ZencState of {works}, {len(self.log)} parameters so far>"

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """The loaded schemes, each once, in the order of the rules; empty for a copy."""
        return tuple({id(rule.collective): rule.collective for rule in self.rules}.values())

    @property
    def collective(self) -> Collective:
        """The loaded scheme, or the first of several; raises SchemeError (``not-attached``) for a copy."""
        if not self.rules:
            message = "this state was copied or unpickled with a model, and has no scheme of its own"
            raise SchemeError(Diagnostic("not-attached", message, help="call zenc.attach on the new model"))
        return self.rules[0].collective

    @property
    def name(self) -> str:
        """The name of the scheme, or the names of a strategy's schemes."""
        return ", ".join(dict.fromkeys(each.artifact.name for each in self.collectives))

    @property
    def digest(self) -> str:
        """Digits that two states share only if they have equal plans, by equal rules."""
        if len(self.rules) == 1 and not self.rules[0].text:
            return self.collective.artifact.digest
        told = [(rule.text, rule.collective.artifact.digest) for rule in self.rules]
        return hashlib.sha256(repr(told).encode()).hexdigest()

    @property
    def stats(self) -> dict[str, CallReport]:
        """Parameter name -> ``Collective.stats`` of its last synchronisation; under a strategy with rule and scheme.

        A call of several is listed once, as ``"first ... last"``, and found by the name of each.
        """
        return self.log.reports

    @property
    def error(self) -> BaseException | None:
        """The error of the first failed call, of the last step with any; DDP shows it as the text of a RuntimeError."""
        return self.log.error

    def reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Queue the average of ``bucket``'s buffer, in its shape, by the rules of its parameters."""
        if not bucket.index():  # DDP calls for its buckets in their order
            self._step_begins()
        planned = self.plan.of(bucket, self._way_of)
        if planned.begins and self._waiting:
            self._average_waiting()
        averaged = planned.way(self, bucket, planned)
        if planned.sums and (self._pending or self._calls_before):
            self._sum_group()
        if planned.ends and self._waiting:
            self._average_waiting()
        return averaged

    def _way_of(self, bucket: GradBucket) -> Way:
        """Return the way of ``bucket``, by the rules of its parameters."""
        parameters = bucket.parameters()
        if not bucket.buffer().is_sparse:
            return ZencState._apart if any(id(each) in self._ways for each in parameters) else ZencState._own_way
        name = self._names.get(id(parameters[0]), f"bucket {bucket.index()}") if parameters else ""
        rule = self._sparse.get(name) or (self.rules[0] if len(self.rules) == 1 and not self.rules[0].text else None)
        if rule is None or not rule.takes_sparse:
            return ZencState._own_way
        tables = rule.served.sparse
        return partial(ZencState._table, name=name, rule=rule, place=tables.index(name) if name in tables else 0)

    def _own_way(self, bucket: GradBucket, _: BucketPlan) -> Averaged:
        return own_way(bucket, self.process_group)

    def _apart(self, bucket: GradBucket, planned: BucketPlan) -> Averaged:
        """Return the average of a dense bucket, which waits for those of its group."""
        self._pending.append(self._taken_apart(bucket))
        averaged = self._pending[-1][0].later()
        if planned.sums:
            self._sum_group()
        return averaged

    def _table(self, bucket: GradBucket, planned: BucketPlan, name: str, rule: ActiveRule, place: int) -> Averaged:
        """Return the average of a table by ``rule``, which waits for others of its group unless it is alone."""
        announced = self.announcer.taken(name) if self.announcer.tables else None
        if announced is not None or (planned.ends and not self._waiting):
            return self.average(bucket.buffer(), name, rule=rule, announced=announced)
        self._waiting.append(WaitingTable(name, bucket.buffer(), rule, place))
        return self._waiting[-1].averaged

    def _step_begins(self) -> None:
        """Begin with nothing of the step before, which may have failed."""
        self._pending.clear()
        self._waiting.clear()
        self.calls = []
        self.log.step_begins()
        if self.scaling:
            self.scaling.step_begins()

    def _average_waiting(self) -> None:
        """Queue the average of the tables of a group: in one call, unless the profiler samples one of them."""
        waiting, self._waiting = self._waiting, []
        for call in calls_of_tables(waiting):
            if len(call.names) > 1 and not (self.profiler and self.profiler.samples(call.names)):
                self._average_joined(call)
                continue
            for each in call.waiting:
                each.end_with(self.average(each.gradient, each.name, rule=each.rule))

    def _average_joined(self, call: JoinedCall) -> None:
        rule, named = call.waiting[0].rule, [(each.name, tuple(each.gradient.shape)) for each in call.waiting]
        try:
            joined = call.joined()
        except ZencError as error:
            self.log.failed(error)
            communicator = rule.collective.communicator  # the others wait for this rank
            communicator.worker.within(partial(communicator.call_failed, error, None))
            raise
        call.end_with(*self._queued(joined, call_name(named), named, False, rule))

    def average(
        self,
        gradient: torch.Tensor,
        name: TensorName,
        rows: bool = False,
        rule: ActiveRule | None = None,
        announced: Announcement | None = None,
    ) -> Averaged:
        """Queue the average of ``gradient``, of any shape, over the ranks by ``rule``, by default the only one.

        Its statistics go to ``stats``: under its name, or ``"first ... last"`` of those of its pieces. ``announced``:
        all ranks' announcement of it.
        """
        rule = rule or self.rules[0]
        marks = self.profiler.marks(call_name(name), gradient) if self.profiler else None
        work, averaged = self._queued(gradient, name, name, rows, rule, announced)
        if self.profiler and marks:
            self.profiler.count(marks, rule.collective.communicator, work)
        return averaged

    def _queued(
        self,
        gradient: torch.Tensor,
        name: TensorName,
        pieces: TensorName,
        rows: bool,
        rule: ActiveRule,
        announced: Announcement | None = None,
    ) -> tuple[Work, Averaged]:
        """Queue the call of ``rule`` that averages ``gradient``, of any shape, under ``name``, of these ``pieces``."""
        self.log.begins(pieces)
        try:
            return rule.average(gradient, name, rows, partial(self._ended, rule, pieces), announced)
        except ZencError as error:
            self.log.failed(error)
            raise

    def _taken_apart(self, bucket: GradBucket) -> tuple[PendingBucket, list[ArrivedGradient]]:
        """Take ``bucket`` apart: begin its own calls, and return it with the gradients that go together with others."""
        asked = [
            ArrivedGradient(way, piece)
            for piece in pieces_of(bucket)
            if (way := self._ways.get(id(piece.parameter))) is not None
        ]
        pending = PendingBucket(bucket.buffer())
        for way, piece in asked:
            if way.by_rows:
                announced = self.announcer.taken(way.name)
                pending.under_way.append(self.average(piece.gradient, way.name, True, way.rule, announced))
        together = self._used([each for each in asked if not each.way.by_rows])
        pending.sum_rest([each.piece for each in asked], bool(together), self.process_group)
        return pending, together

    def _used(self, arrived: list[ArrivedGradient]) -> list[ArrivedGradient]:
        """Return those of ``arrived`` without residuals, or which some rank has used in this step."""
        kept = [each.piece for each in arrived if each.way.rule.keeps] if self.unused else []
        if not kept:
            return arrived
        idle = {id(piece) for piece in kept} - {id(piece) for piece in used_somewhere(kept, self.process_group)}
        return [each for each in arrived if id(each.piece) not in idle]

    def _sum_group(self) -> None:
        """Queue the joint gradients of all buckets that have arrived: a call for each rule, in their order."""
        buckets, self._pending = self._pending, []
        arrived = buckets[0][1] if len(buckets) == 1 else [each for _, together in buckets for each in together]
        before, self._calls_before = self._calls_before, []
        calls = [self._summed_together(call) for call in calls_as(before, arrived) or calls_of(self.rules, arrived)]
        for pending, _ in buckets:
            pending.under_way += calls
            pending.announce()

    def _summed_together(self, call: Sequence[ArrivedGradient]) -> Future:
        rule = call[0].way.rule
        named = [(way.name, tuple(piece.parameter.shape)) for way, piece in call]
        self.calls.append([name for name, _ in named])
        if self.scaling:
            self.scaling.sums(rule.collective, self.calls[-1])
        return gathered([piece.span for _, piece in call], partial(self.average, name=named, rule=rule))

    def sum_as_before(self, calls: Sequence[Sequence[str]]) -> None:
        """Sum the next step in ``calls``, by names, as before a restart, since DDP rebuilds its buckets."""
        self._calls_before = [list(call) for call in calls]
        self.plan.as_one = bool(self._calls_before)

    def _ended(self, rule: ActiveRule, name: TensorName, work: Work) -> None:
        """Keep the statistics of the call ``work``, or the reason of its failure, and learn from it."""
        self.log.ended(rule, name, work)
        if self.announcer.tables:
            self.announcer.ended(call_name(name), work.counted)


def _told(
    names: Iterable[str],
    rows: Mapping[str, torch.Tensor],
    together: Mapping[str, torch.Tensor],
    profiler: Profiler | None,
) -> Options:
    """Return the options that other ranks must have given to a state, too."""
    given = {"names": ", ".join(names), "profiler": str(profiler or "no profiler")}
    kinds = {"dense": rows, "together": together}
    shapes = {kind: ", ".join(f"{name} {list(each.shape)}" for name, each in of.items()) for kind, of in kinds.items()}
    return {**given, **shapes}


def _elsewhere() -> ZencState:
    return ZencState(())


def zenc_hook(state: ZencState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average ``bucket``'s buffer over the ranks, in its shape: ``ddp.register_comm_hook(state, zenc_hook)``.

    1. A dense bucket: DDP's own all-reduce, but for the parameters given to the state.
    2. A sparse one: queue the scheme's ``all_reduce`` with op "mean", and return its future, so that the backward
       pass goes on meanwhile. All ranks see the buckets in one order, and so run the calls in one order.
    3. One of several parameters that go different ways: each goes its own.
    """
    return state.reduce(bucket)


def noop_hook(state: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Return the bucket's buffer as it is, in its shape: ``ddp.register_comm_hook(None, zenc.noop_hook)``.

    It measures a bound: a step with this hook takes the time that it would if synchronisation took none; no scheme can
    do better. Nothing is learned in such steps: the ranks' models drift apart. Throw the model away afterwards.
    """
    if bucket.index() == 0 and dist.get_rank(state) == 0:
        _warn_once()
    buffer = bucket.buffer()
    on_gpu: list[int | str | torch.device] = [buffer.device] if buffer.is_cuda else []
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=on_gpu)
    is_uncoalesced = buffer.is_sparse and not buffer.is_coalesced()
    if is_uncoalesced:  # a future on a GPU looks at the indices, which torch refuses to show then
        buffer._coalesced_(True)
    future.set_result(buffer)
    if is_uncoalesced:
        buffer._coalesced_(False)
    return future


@cache
def _warn_once() -> None:
    log.warning("noop_hook: gradients are not synchronised; use this model for nothing but timing")
