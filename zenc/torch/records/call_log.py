"""Outcomes of the calls of a model: what the last one of each parameter counted, sums over all, and why a step failed.

    CallLog = CallStats of calls by name, name of the last call of each parameter, Totals of each
            , error of the last step that failed, listeners

A call of several parameters is called ``"first ... last"``. Calls end on threads of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zenc.runtime.call_queue import Work
from zenc.runtime.compression.keeper import Keeper
from zenc.runtime.compression.residual_store import TensorName
from zenc.runtime.stats import CallReport, CallReports, CallStats
from zenc.torch.records.metrics import MetricsLog
from zenc.torch.records.summary import Totals
from zenc.torch.strategy.active_rule import ActiveRule, report_of


def call_name(name: TensorName) -> str:
    """The name of a call that has a parameter, or some, by their names."""
    if isinstance(name, str):
        return name
    return name[0][0] if len(name) == 1 else f"{name[0][0]} ... {name[-1][0]}"


def parameters_of(name: TensorName) -> list[str]:
    """The names of the parameters of a call."""
    return [name] if isinstance(name, str) else [each for each, _ in name]


class CallLog:
    """See above."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.totals: dict[str, Totals] = {}
        """Name of a call -> sums over all of this name."""
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
        """Of the last calls, found by the names of their parameters too."""
        reports: dict[str, CallReport] = {name: report_of(*counted) for name, counted in self._counted.copy().items()}
        return CallReports(reports, self._called_in)

    def copied_totals(self) -> dict[str, Totals]:
        """``totals`` as they are now, while calls go on."""
        return {name: replace(each, waited=dict(each.waited)) for name, each in self.totals.copy().items()}

    def goes_on_from(self, before: CallLog) -> None:
        """Add to the totals of ``before``, and tell its listeners."""
        self.totals, self.listeners = before.totals, before.listeners

    def step_begins(self) -> None:
        """Forget what the step before has kept, and whether it has failed."""
        self._failed, self._kept = False, []

    def begins(self, name: TensorName) -> None:
        """A call is about to be made."""
        for listener in self.listeners:
            listener.begins(parameters_of(name))

    def failed(self, error: BaseException) -> None:
        """Keep why a call of this step failed: those after it are ``group-broken`` by it."""
        if not self._failed:
            self.error, self._failed = error, True

    def ended(self, rule: ActiveRule, name: TensorName, work: Work) -> None:
        """Keep what a call that has ended counted, or why it failed."""
        try:
            work.wait()
        except BaseException as error:
            self.failed(error)
        else:
            self._count(rule, name, work.counted)

    def undo_step(self) -> None:
        """Keep what was kept before the last step, if a call of it has failed; once."""
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
        """Forget the last calls that had a parameter of this one, alone or among others: they were of other groups."""
        for each in parameters:
            before = self._called_in.get(each)
            if before is not None and before != key:
                self._counted.pop(before, None)
            self._called_in[each] = key
