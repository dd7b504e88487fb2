"""Online selection of a scheme for a tensor: by prediction, then by a few timed calls.

    call 1          a look: the units of the gradient, so the seconds of each candidate by the model
    then            trials: the first candidate, timed; its seconds tell the speed of links and ranks; then those that
                    may still be the best, timed, the most promising first
    a Decision      the quickest
    every so often  a look; where another one is better by the margin, or a call takes twice or half the expected
                    time, at several looks in a row: trials, a Decision

Nothing here talks to anyone. Its numbers are agreed by all ranks, and only the basic operations on them are used, which
are exact to the bit on every machine: so all ranks decide alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zenc.common.json_codec import Codec
from zenc.scheme.model import Settings

SPREAD = 4.0
"""The ratio to the least predicted time up to which a candidate may be the best.

With models that are wrong by a factor of two among each other the best is then not missed; with 2.5 it is, at times.
"""
SURPRISE = 2.0
"""The ratio to the expected time, either way, from which on a call shows that the network has changed."""
_TRUST = 0.001
"""The weight of the belief that latencies and kernels are as calibrated, where one record of a call weighs 1."""
_TRUST_IN_LINKS = 3e-8
"""The weight of the belief in links, which may well be a thousand times slower, but not a million times, to explain a
small message."""
_LEAST = 0.02


@dataclass(frozen=True, slots=True)
class Model:
    """Seconds of a call: ``fixed``, whatever the bandwidth, and ``transfer`` on links of the calibrated one."""

    fixed: float
    transfer: float


@dataclass(frozen=True, slots=True)
class Speeds:
    """Factors on both parts of a model: the ratio of their seconds here to the calibrated ones."""

    fixed: float = 1.0
    transfer: float = 1.0

    def seconds(self, model: Model) -> float:
        """Return the seconds of ``model`` here."""
        return model.fixed * self.fixed + model.transfer * self.transfer


def fit_speeds(records: Sequence[tuple[Model, float]]) -> Speeds:
    """Return the speeds that explain best the times of calls, by least squares of relative errors; 0.02 or more.

    With few records, ``fixed`` stays near 1: one call does not separate slow links from slow ranks, and links differ
    more.
    """
    if not records:
        return Speeds()
    ff, ft, tt, f, t = _TRUST, 0.0, _TRUST_IN_LINKS, _TRUST, _TRUST_IN_LINKS
    for model, seconds in records:
        fixed, transfer = model.fixed / seconds, model.transfer / seconds
        ff, ft, tt = ff + fixed * fixed, ft + fixed * transfer, tt + transfer * transfer
        f, t = f + fixed, t + transfer
    determinant = ff * tt - ft * ft
    if determinant > 1e-9 * ff * tt:
        speeds = Speeds((f * tt - t * ft) / determinant, (ff * t - ft * f) / determinant)
        if speeds.fixed >= _LEAST and speeds.transfer >= _LEAST:
            return speeds
    if t / tt * _LEAST < f / ff:  # the rest for one of the two, with the other at its least
        without = Speeds((f - ft * _LEAST) / ff, _LEAST)
        return without if without.fixed >= _LEAST else Speeds(_LEAST, _LEAST)
    return Speeds(_LEAST, max(_LEAST, (t - ft * _LEAST) / tt))


@dataclass(slots=True)
class Decision:
    """A change of candidate: from ``call`` of ``tensor`` on, counted from 1, ``scheme`` in place of ``instead_of``.

    ``predicted`` has the seconds that each candidate was expected to take; ``measured`` those that its timed calls
    took: the least of them, each that of the slowest rank. ``afterwards``: the seconds of the last timed call of
    ``scheme`` after the decision; None before any.
    """

    tensor: str
    call: int
    scheme: str
    instead_of: str
    predicted: dict[str, float]
    measured: dict[str, float]
    afterwards: float | None = None

    def seen(self, seconds: float) -> str:
        """Take the seconds of a call; return words about it, if it is the first."""
        is_first, self.afterwards = self.afterwards is None, seconds
        expected = self.measured.get(self.scheme, self.predicted[self.scheme])
        return f"{self.scheme} takes {_ms(seconds)} for {self.tensor}, expected {_ms(expected)}" if is_first else ""

    def __str__(self) -> str:
        took = self.measured.get(self.scheme)
        how = f"took {_ms(took)}, " if took is not None else ""
        others = ", ".join(
            f"{name} {_ms(self.measured.get(name, seconds))}{'' if name in self.measured else ' predicted'}"
            for name, seconds in self.predicted.items()
            if name != self.scheme
        )
        before = f" in place of {self.instead_of}" if self.instead_of and self.instead_of != self.scheme else ""
        expected = _ms(self.predicted[self.scheme])
        return (
            f"{self.scheme} sums {self.tensor} from call {self.call} on{before}: {how}predicted {expected} ({others})"
        )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


@dataclass(slots=True)
class Records:
    """Timed calls of all tensors, by tensor and candidate, from which all tensors learn the speeds."""

    found: dict[tuple[str, int], tuple[Model, float]] = field(default_factory=dict)

    def speeds(self) -> Speeds:
        """Return the speeds that fit all records so far."""
        return fit_speeds(list(self.found.values()))


class Selector:
    """The choice for one ``tensor`` among the candidates ``names``.

    For each call: ``look`` with models if ``looks``; then run the candidate ``current``; where ``timed`` was True
    before the call, give ``ended`` the seconds that it took before the next one.
    """

    def __init__(self, tensor: str, settings: Settings, names: Sequence[str], records: Records) -> None:
        self.tensor, self.settings, self.names, self.records = tensor, settings, tuple(names), records
        self.current = 0
        self.decisions: list[Decision] = []
        self.calls = 0
        self._chosen = 0
        self._trying = False
        self._models: Sequence[Model] = ()
        self._speeds = Speeds()
        self._factors: dict[int, float] = {}
        self._times: dict[int, list[float]] = {}
        self._streak = 0
        self._surprises = 0
        self._is_fresh = False
        self._is_of_others = False
        """True for a choice that other ranks have made, until these have made theirs."""

    @property
    def looks(self) -> bool:
        """Return whether the gradient of the next call is to be sampled."""
        return not self._trying and (not self._models or self.calls % self.settings.every == 0)

    @property
    def timed(self) -> bool:
        """Return whether the next call is to be timed: trials, and sampled calls."""
        return self._trying or self._is_fresh

    @property
    def trying(self) -> bool:
        """Return whether the next call is made by a candidate that is tried, and not yet chosen."""
        return self._trying

    @property
    def calm(self) -> bool:
        """Return whether a look needs no action as long as gradients stay as they are."""
        return bool(self.decisions) and not self._streak

    def predicted(self) -> dict[str, float]:
        """Return the expected seconds of a call of each candidate, by name; empty before the first look."""
        return {self.names[c]: self._predicted(c) for c in range(len(self._models))}

    def state(self) -> dict[str, Any] | None:
        """Return the last decision, as JSON data; None before a decision, and while candidates are tried."""
        if self._trying or not self.decisions:
            return None
        records = [
            [candidate, model.fixed, model.transfer, seconds]
            for (tensor, candidate), (model, seconds) in self.records.found.items()
            if tensor == self.tensor
        ]
        return {
            "candidates": list(self.names),
            "chosen": self._chosen,
            "calls": self.calls,
            "models": [[model.fixed, model.transfer] for model in self._models],
            "speeds": [self._speeds.fixed, self._speeds.transfer],
            "factors": [[candidate, factor] for candidate, factor in self._factors.items()],
            "records": records,
            "decisions": Codec().encode(self.decisions),
        }

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Go on from ``state``; return whether it is of these candidates.

        Raises KeyError, TypeError or ValueError for anything else.
        """
        if state["candidates"] != list(self.names):
            return False
        chosen, models = int(state["chosen"]), [Model(float(f), float(t)) for f, t in state["models"]]
        factors = {int(candidate): float(factor) for candidate, factor in state["factors"]}
        records = {
            (self.tensor, int(c)): (Model(float(f), float(t)), float(took)) for c, f, t, took in state["records"]
        }
        decisions = Codec().item(state, "decisions", tuple[Decision, ...])
        speeds, calls = Speeds(*map(float, state["speeds"])), int(state["calls"])
        known = {chosen, *factors, *(candidate for _, candidate in records)}
        if not known <= set(range(len(self.names))) or len(models) != len(self.names) or not decisions:
            raise ValueError("it names candidates that there are none of")
        self.current = self._chosen = chosen
        self._models, self._factors, self._speeds, self.calls = models, factors, speeds, calls
        self.decisions[:] = decisions
        self.records.found.update(records)
        return True

    def follow(self, state: Mapping[str, Any]) -> bool:
        """Begin with the candidate of ``state``, of other ranks, to be chosen anew; return whether it is one here.

        Raises IndexError, KeyError, TypeError or ValueError for anything else.
        """
        chosen = state["candidates"][int(state["chosen"])]
        decisions = Codec().item(state, "decisions", tuple[Decision, ...])
        if chosen not in self.names or not decisions:
            return False
        self.current = self._chosen = self.names.index(chosen)
        self._speeds, self.calls = Speeds(*map(float, state["speeds"])), int(state["calls"])
        self.decisions[:], self._is_of_others = decisions, True
        return True

    def look(self, models: Sequence[Model] | None) -> None:
        """Take the model of each candidate for the present gradient; None: it is as before."""
        self._is_fresh = True
        if models is None:
            return
        self._models = tuple(models)
        if not self.decisions or self._is_of_others:
            self._begin_trials()
            return
        seconds = [self._predicted(c) for c in range(len(self.names))]
        is_better = min(seconds) < seconds[self.current] * (1 - self.settings.margin)
        self._streak = self._streak + 1 if is_better else 0
        if self._streak >= self.settings.patience:
            self._begin_trials()

    def begun(self) -> None:
        """Count the beginning of the next call."""
        self.calls += 1

    def ended(self, seconds: float) -> str:
        """Take the seconds of a timed call, on the slowest rank; return words about it, if a decision was just made."""
        self._is_fresh = False
        if not self._trying:
            self._compare(seconds)
            return self.decisions[-1].seen(seconds)
        self._times.setdefault(self.current, []).append(seconds)
        best = min(min(times) for times in self._times.values())
        if len(self._times[self.current]) >= self.settings.trials or seconds > SPREAD * best:
            self.records.found[self.tensor, self.current] = self._models[self.current], min(self._times[self.current])
            self._speeds = self.records.speeds()
            self._try_next()
        return ""

    def _compare(self, seconds: float) -> None:
        """Try anew where calls keep taking unexpected times, as the network has changed."""
        expected = self._predicted(self.current)
        is_near = expected / SURPRISE <= seconds <= expected * SURPRISE
        self._surprises = 0 if is_near else self._surprises + 1
        if self.settings.trials and self._surprises >= self.settings.patience:
            self.records.found.clear()
            self._begin_trials()

    def _begin_trials(self) -> None:
        self._streak, self._surprises, self._times = 0, 0, {}
        self._trying = self.settings.trials > 0
        if not self._trying:
            self._speeds = self.records.speeds()
            self._decide()

    def _try_next(self) -> None:
        seconds = [self._seconds(c) for c in range(len(self.names))]
        hopeful = [c for c, taken in enumerate(seconds) if c not in self._times and taken <= SPREAD * min(seconds)]
        if hopeful:
            self.current = min(hopeful, key=lambda c: seconds[c])
        else:
            self._decide()

    def _decide(self) -> None:
        predicted = self.predicted()
        seconds = [self._seconds(c) for c in range(len(self.names))]
        best = min(range(len(seconds)), key=lambda c: seconds[c])
        is_first = not self.decisions or self._is_of_others
        if not is_first and seconds[best] >= seconds[self._chosen] * (1 - self.settings.margin):
            best = self._chosen
        for c, times in self._times.items():
            self._factors[c] = min(times) / self._speeds.seconds(self._models[c])
        if is_first or best != self._chosen:
            before = self.names[self._chosen] if self.decisions else ""
            measured = {self.names[c]: min(times) for c, times in self._times.items()}
            call = self.calls + 1
            self.decisions.append(Decision(self.tensor, call, self.names[best], before, predicted, measured))
        self.current = self._chosen = best
        self._trying = self._is_of_others = False

    def _seconds(self, candidate: int) -> float:
        times = self._times.get(candidate)
        return min(times) if times else self._predicted(candidate)

    def _predicted(self, candidate: int) -> float:
        return self._speeds.seconds(self._models[candidate]) * self._factors.get(candidate, 1.0)
