"""A scenario, played: the run time of each rank, from joining a group to its end, over the simulated network."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, cast

import torch

import zenc
from tests.faults.gradients import gradient
from tests.faults.hubs import HubTransport
from tests.faults.network import Group, Network
from tests.faults.primitives import simulated
from tests.faults.scenario import DEADLINE, CallSpec, Fault, Scenario
from tests.faults.scheduler import Fiber, Process, Scheduler
from tests.faults.streams import StreamTransport
from zenc.codegen.artifact import Artifact
from zenc.errors import ZencError
from zenc.plan.ir import Plan
from zenc.rank_ir.ir import RankProgram
from zenc.rank_ir.lower import lower as lower_rank
from zenc.runtime.backend_api import Backend
from zenc.runtime.call.call_queue import Worker
from zenc.runtime.call.collective import Collective
from zenc.runtime.cpu import library
from zenc.runtime.cpu.backend import CpuBackend
from zenc.runtime.cpu.kernels import Kernels
from zenc.runtime.group import communicator as communicators
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.load import load_among
from zenc.runtime.lossy.kernels import compression_kernels
from zenc.runtime.transports.gloo_transport import GlooTransport
from zenc.runtime.transports.transport import Transport
from zenc.scheme.model import Contiguous

EXIT_SECONDS = 1000.0


class Injected(Exception):
    """The error of a statement that a scenario makes fail."""


@dataclass
class Record:
    """The end of a rank's call or ``load``: ``outcome`` is "sum", "loaded", or the id of an error."""

    rank: int
    generation: int
    number: int
    call: CallSpec | None
    began: float
    ended: float = math.inf
    outcome: str = ""
    text: str = ""
    result: torch.Tensor | None = None
    is_kept: bool = True
    """False: the dense tensor of a failed call has other values than before."""


@dataclass
class Outcome:
    """The result of a run. ``left``: fibers that have not ended by themselves."""

    scenario: Scenario
    records: list[Record]
    left: list[Fiber]
    processes: list[Process]
    seconds: float
    digest: int
    switches: int
    happened: list[tuple[Fault, float]]
    trouble: BaseException | None
    under_way: list[str]
    too_small: list[str]
    longest_asked: float
    exchanges: int
    deaths: dict[int, float] = field(default_factory=dict)
    statements: dict[int, int] = field(default_factory=dict)


@cache
def artifact_of(scheme: str, size: int) -> Artifact:
    return zenc.compile(scheme, ranks=size)


_worked_out: Any = Plan.digest
_digests: dict[int, str] = {}


def _digest(plan: Plan) -> str:
    """Return ``Plan.digest`` of a plan that ``artifact_of`` keeps, computed once."""
    if id(plan) not in _digests:
        _digests[id(plan)] = _worked_out.fget(plan)
    return _digests[id(plan)]


@cache
def _program_of(scheme: str, size: int, rank: int) -> RankProgram:
    return lower_rank(artifact_of(scheme, size).plan, size, rank)


@cache
def _kernels_of(scheme: str, size: int) -> Kernels:
    artifact = artifact_of(scheme, size)
    return library.load(artifact.sources, artifact.plan.mapping)


def backend_of(scheme: str, communicator: Communicator) -> CpuBackend:
    """Return ``pipeline.backend``, computing only once what all runs share."""
    rank, size, plan = communicator.rank, communicator.size, artifact_of(scheme, communicator.size).plan
    compression = compression_kernels() if plan.is_lossy else None
    at = plan.scheme, _program_of(scheme, size, rank), _kernels_of(scheme, size), communicator.transport, DEADLINE
    return CpuBackend(*at, compression=compression, ordered=isinstance(plan.mapping, Contiguous))


class WatchedInterpreter:
    """The interpreter of a call, which reports each statement before it runs."""

    def __init__(self, real: Any, told: Callable[[], None]) -> None:
        self._real, self._told = real, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def play(self, statement: Any) -> None:
        self._told()
        self._real.play(statement)


class WatchedBackend(WatchedInterpreter):
    """A backend whose calls report their statements."""

    def prepare(self, *given: Any) -> WatchedBackend:
        return WatchedBackend(self._real.prepare(*given), self._told)

    def start(self, *given: Any) -> Any:
        call = self._real.start(*given)
        call.interpreter = WatchedInterpreter(call.interpreter, self._told)
        return call


class Run:
    """A run of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.scheduler = Scheduler(scenario.seed, scenario.eager)
        self.network = Network(self.scheduler, scenario.size, scenario.weather)
        self.network.on_touch = self._touched
        self.records: list[Record] = []
        self.processes = [Process(rank) for rank in range(scenario.size)]
        self.operations, self.statements = [0] * scenario.size, [0] * scenario.size
        self.happened: list[tuple[Fault, float]] = []
        self.under_way: list[str] = []
        self.exchanges = 0
        self.deaths: dict[int, float] = {}

    def play(self) -> Outcome:
        """Run all ranks to the end."""
        with simulated(self.scheduler):
            for process in self.processes:
                self.scheduler.spawn(process, partial(self._live, process, 0), f"rank {process.rank}")
            self.scheduler.run()
            seconds, digest = self.scheduler.now, self.scheduler.digest
            left = self.scheduler.unwind()
        return Outcome(
            self.scenario,
            self.records,
            left,
            self.processes,
            seconds,
            digest,
            self.scheduler.switches,
            self.happened,
            self.scheduler.trouble,
            self.under_way,
            self.network.too_small,
            self.network.longest_asked,
            self.exchanges,
            self.deaths,
            dict(enumerate(self.statements)),
        )

    def _live(self, process: Process, generation: int) -> None:
        """Run the life of a process, from its first group to its end."""
        groups: list[tuple[Communicator, Group]] = []
        try:
            calls = self.scenario.calls[:1] if generation else self.scenario.calls_of(process.rank)
            loaded: list[Collective] = []
            well = self._take_part(process, generation, calls, groups, loaded)
            if not well and self.scenario.rejoins and generation == 0:
                self._take_part(process, 1, self.scenario.calls[:1], groups, loaded)
            for communicator, group in groups:
                communicator.close(EXIT_SECONDS)
                if not group.idle:
                    self.under_way.append(f"rank {process.rank} of group {group.generation}")
        finally:
            if not process.dead:
                self.network.end_of(process, closes=True)

    def _take_part(
        self,
        process: Process,
        generation: int,
        calls: tuple[CallSpec, ...],
        groups: list[tuple[Communicator, Group]],
        loaded: list[Collective],
    ) -> bool:
        """Join a group, load or rebuild the ``loaded`` schemes, and make ``calls``; return whether all went well."""
        rank, now = process.rank, self.scheduler.now
        record = Record(rank, generation, 0, None, now)
        self.records.append(record)
        try:
            communicator = self._joined(process, generation, groups)
            for place, scheme in enumerate(self.scenario.schemes_of(rank)):
                before = loaded[place] if place < len(loaded) else None
                loaded[place : place + 1] = [self._loaded(process, communicator, scheme, before)]
        except ZencError as error:
            self._note(record, error)
            return False
        self._note(record, None, outcome="loaded")
        pending: list[tuple[Record, Any, torch.Tensor]] = []
        well = True
        for number, call in enumerate(calls, 1):
            record = Record(rank, generation, number, call, self.scheduler.now)
            self.records.append(record)
            tensor = gradient(call, rank)
            try:
                collective = loaded[call.scheme]
                name = f"of {call.units} units"
                if self.scenario.window:
                    work = collective.all_reduce(tensor, call.op, async_op=True, name=name)
                    pending.append((record, work, tensor))
                else:
                    self._note(record, None, tensor, collective.all_reduce(tensor, call.op, name=name))
            except Exception as error:
                self._note(record, error, tensor)
                well = False
            while len(pending) >= max(1, self.scenario.window if number < len(calls) else 1):
                well = self._awaited(*pending.pop(0)) and well
        return well

    def _loaded(
        self, process: Process, communicator: Communicator, scheme: str, before: Collective | None
    ) -> Collective:
        if before is not None and before.origin is not None:
            return before.origin.again(communicator, before)
        made = partial(self._backend, process)
        return load_among(communicator, partial(artifact_of, scheme), made, DEADLINE, on=torch.device("cpu"))

    def _awaited(self, record: Record, work: Any, tensor: torch.Tensor) -> bool:
        try:
            self._note(record, None, tensor, work.wait())
        except Exception as error:
            self._note(record, error, tensor)
            return False
        return True

    def _note(
        self,
        record: Record,
        error: Exception | None,
        tensor: torch.Tensor | None = None,
        result: torch.Tensor | None = None,
        outcome: str = "sum",
    ) -> None:
        record.ended, record.result = self.scheduler.now, result
        if error is None:
            record.outcome = outcome
            return
        diagnostics = getattr(error, "diagnostics", ())
        record.outcome = diagnostics[0].id if diagnostics else type(error).__name__
        record.text = " ".join([diagnostics[0].message, *diagnostics[0].notes]) if diagnostics else str(error)
        if record.call is not None and record.call.dense and tensor is not None:
            record.is_kept = torch.equal(tensor, gradient(record.call, record.rank))

    def _joined(self, process: Process, generation: int, groups: list[tuple[Communicator, Group]]) -> Communicator:
        try:
            group = self.network.join(process, generation, DEADLINE)
        except RuntimeError as error:
            raise communicators.ranks_missing(DEADLINE, error) from error
        parent: Any = _no_parent
        of_gloo: Any = group
        worker = Worker(f"rank {process.rank}")
        transport = self._transport(group, of_gloo)
        communicator = Communicator(parent, of_gloo, transport, worker)
        groups.append((communicator, group))
        return communicator

    def _transport(self, group: Group, of_gloo: Any) -> Transport:
        if self.scenario.hubs:
            return HubTransport(group)
        return StreamTransport(group) if self.scenario.streams else GlooTransport(of_gloo)

    def _backend(self, process: Process, artifact: Artifact, *given: Any) -> Backend:
        made = backend_of(artifact.name, given[1])
        self.exchanges = max(self.exchanges, made.script.exchanges)
        watched: Any = WatchedBackend(made, partial(self._at_statement, process))
        return watched  # type: ignore[no-any-return]

    def _touched(self, process: Process) -> None:
        rank = process.rank
        if process is self.processes[rank]:
            number = self.operations[rank]
            self.operations[rank] += 1
            for fault in self.scenario.faults:
                if fault.rank == rank and fault.at == number and not fault.at_statement:
                    self._happen(fault)

    def _at_statement(self, process: Process) -> None:
        rank = process.rank
        if process is self.processes[rank]:
            number = self.statements[rank]
            self.statements[rank] += 1
            for fault in self.scenario.faults:
                if fault.rank == rank and fault.at == number and fault.at_statement:
                    self._happen(fault)
                    self.scheduler.pause()

    def _happen(self, fault: Fault) -> None:
        self.happened.append((fault, self.scheduler.now))
        process, network = self.processes[fault.rank], self.network
        match fault.kind:
            case "kills" | "vanishes":
                self.deaths[fault.rank] = self.scheduler.now
                network.end_of(process, closes=fault.kind == "kills")
                if process.rank not in network.groups[1]:
                    self.scheduler.at(self.scheduler.now + self.scenario.restarts, partial(self._restart, fault.rank))
            case "freezes":
                process.frozen = True
                self.scheduler.at(self.scheduler.now + fault.seconds, partial(self.scheduler.thaw, process))
            case "stalls":
                network.stall(fault.rank, fault.peer, fault.seconds)
            case "cuts":
                network.cut(fault.rank, fault.peer)
            case "damages":
                network.damages[fault.rank, fault.peer].append((fault.byte, fault.flip))
            case "slows":
                process.slowness = fault.seconds
            case "raises":
                raise Injected(f"rank {fault.rank} fails at its statement {fault.at}")

    def _restart(self, rank: int) -> None:
        process = Process(rank)
        self.processes.append(process)
        self.scheduler.spawn(process, partial(self._live, process, 1), f"rank {rank}, restarted")


def _no_parent() -> None:
    """Do nothing: the run time asks the user's group for nothing here."""


def play(scenario: Scenario) -> Outcome:
    log, of_plan = logging.getLogger("zenc"), cast(Any, Plan)
    log.disabled, of_plan.digest = True, property(_digest)
    try:
        return Run(scenario).play()
    finally:
        log.disabled, of_plan.digest = False, _worked_out
