"""Outcomes of the calls of a model: statistics of each parameter's last one, sums over all, and errors of steps.

    CallLog = CallStats of calls by name, name of the last call of each parameter, Totals of each
            , error of the last step that failed, listeners

A call of several parameters is called ``"first ... last"``. Calls end on threads of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from zenc.runtime.call.call_queue import Work
from zenc.runtime.call.stats import CallReport, CallReports, CallStats
from zenc.runtime.lossy.keeper import Keeper
from zenc.runtime.lossy.residual_store import TensorName
from zenc.torch.records.metrics import MetricsLog
from zenc.torch.strategy.active_rule import ActiveRule, report_of


@dataclass(slots=True)
class Totals:
    """Sums over calls: bytes sent and received, those that DDP would have sent, seconds, and of these waiting by peer.

    ``measured`` are the seconds of the calls whose waiting was measured, which on GPUs it is not. ``kept`` is the norm
    of the last call's residual over that of its gradient; None under schemes that keep nothing.

    Where schemes are chosen, ``trials`` are the calls that tried one, which count nowhere else; ``chosen`` those of
    chosen schemes, and ``gained`` the seconds that these took less than the first candidate is expected to.
    """

    calls: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_ddp_sparse: float = 0.0
    bytes_ddp_dense: float = 0.0
    seconds: float = 0.0
    measured: float = 0.0
    waited: dict[int, float] = field(default_factory=dict)
    kept: float | None = None
    trials: int = 0
    chosen: int = 0
    gained: float = 0.0

    def add(self, call: CallStats) -> None:
        """Add the statistics of ``call``, unless it was a trial."""
        if call.choice is not None and call.choice["trial"]:
            self.trials += 1
            return
        if call.choice is not None and call.choice["seconds_of_first"] is not None:
            self.chosen += 1
            self.gained += call.choice["seconds_of_first"] - call.seconds
        self.calls += 1
        self.bytes_sent += call.bytes_sent
        self.bytes_received += call.bytes_received
        self.bytes_ddp_sparse += call.gathered_bytes
        self.bytes_ddp_dense += call.dense_bytes
        self.seconds += call.seconds
        if call.loss is not None:
            self.kept = call.loss["residual_over_gradient"]
        if call.waited is not None:
            self.measured += call.seconds
            for peer, seconds in call.waited.items():
                self.waited[peer] = self.waited.get(peer, 0.0) + seconds

    @property
    def waiting_share(self) -> float | None:
        """The share of the measured seconds that was spent in waiting for peers; None without any."""
        return sum(self.waited.values()) / self.measured if self.measured else None


def call_name(name: TensorName) -> str:
    """Return the name of a call by the names of its parameters."""
    if isinstance(name, str):
        return name
    return name[0][0] if len(name) == 1 else f"{name[0][0]} ... {name[-1][0]}"


def parameters_of(name: TensorName) -> list[str]:
    """Return the names of the parameters of a call."""
    return [name] if isinstance(name, str) else [each for each, _ in name]


class CallLog:
    """A log of the calls of a model, as the module describes."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.totals: dict[str, Totals] = {}
        """The sums over all calls of each name."""
        self.listeners: list[MetricsLog] = []
        self._failed = False
        self._kept: list[tuple[Keeper, list[str]]] = []
        """Parameters of the calls of this step that ended well, where something is kept by their names."""
        self._counted: dict[str, tuple[CallStats | None, ActiveRule]] = {}
        self._called_in: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._counted)

    @property
    def reports(self) -> CallReports:
        """Return reports of the last calls, found by the names of their parameters too."""
        reports: dict[str, CallReport] = {name: report_of(*counted) for name, counted in self._counted.copy().items()}
        return CallReports(reports, self._called_in)

    def copied_totals(self) -> dict[str, Totals]:
        """Return a copy of ``totals`` while calls go on."""
        return {name: replace(each, waited=dict(each.waited)) for name, each in self.totals.copy().items()}

    def goes_on_from(self, before: CallLog) -> None:
        """Add to the totals of ``before``, and report to its listeners."""
        self.totals, self.listeners = before.totals, before.listeners

    def step_begins(self) -> None:
        """Forget the state kept by the step before, and its failure."""
        self._failed, self._kept = False, []

    def begins(self, name: TensorName) -> None:
        """Note that a call is about to be made."""
        for listener in self.listeners:
            listener.begins(parameters_of(name))

    def failed(self, error: BaseException) -> None:
        """Keep the error of a call of this step, of which later calls are ``group-broken``."""
        if not self._failed:
            self.error, self._failed = error, True

    def ended(self, rule: ActiveRule, name: TensorName, work: Work) -> None:
        """Keep the statistics of a call that has ended, or the reason of its failure."""
        try:
            work.wait()
        except BaseException as error:
            self.failed(error)
        else:
            self._count(rule, name, work.counted)

    def undo_step(self) -> None:
        """Go back to the state before the last step, once, if a call of it has failed."""
        kept, self._kept = self._kept if self._failed else [], []
        for keeper, names in kept:
            keeper.undo(names)

    def _count(self, rule: ActiveRule, name: TensorName, counted: CallStats | None) -> None:
        key, parameters, keeper = call_name(name), parameters_of(name), rule.collective.keeper
        if keeper is not None and keeper.keeps:
            self._kept.append((keeper, parameters))
        self._forget_others(key, parameters)
        self._counted[key] = counted, rule
        if counted:
            self.totals.setdefault(key, Totals()).add(counted)
            for listener in self.listeners:
                listener.ended(key, counted)

    def _forget_others(self, key: str, parameters: Sequence[str]) -> None:
        """Forget the last calls that had a parameter of this one, alone or among others, as groups have changed."""
        for each in parameters:
            before = self._called_in.get(each)
            if before is not None and before != key:
                self._counted.pop(before, None)
            self._called_in[each] = key
