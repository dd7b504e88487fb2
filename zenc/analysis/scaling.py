"""Scaling: steps, messages and volume of a scheme as formulas in the number of ranks, found by counting.

    ScalingReport = domain checked* PhaseFormulas* at: PhaseVolume*

The plan is played for many numbers of ranks, and formulas are fitted to the counts (``zenc.analysis.closed_form``). One
is kept only if it gives the counts of all of them exactly; that it holds beyond is likely, and not proved. Numbers of
ranks that the scheme does not allow are left out. Where a formula does not hold for every n, powers of two are tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

from zenc.analysis.closed_form import Domain, Formula, Scalar, fit_scalar, fit_volume, volume_text
from zenc.analysis.expected_bytes import blocks_of
from zenc.analysis.volume import PhaseVolume, Volume, volumes
from zenc.common.wording import count, runs_text
from zenc.errors import VerificationError
from zenc.plan.ir import Plan
from zenc.plan.requirements import allowed

EVERY = (*range(2, 17), 20, 23)
POWERS = (2, 4, 8, 16, 32, 64)
MOST_RANKS = 96
LEAST_SIZES = 5
"""The least number of allowed sizes: fewer say nothing about the others."""


@dataclass(frozen=True, slots=True)
class PhaseFormulas:
    """Formulas of the busiest rank; None where no known form gives the counts."""

    steps: Scalar | None
    messages_sent: Scalar | None
    messages_received: Scalar | None
    sent: Formula | None
    received: Formula | None

    def found(self) -> int:
        """Return the number of formulas that were found."""
        return sum(getattr(self, name) is not None for name in self.__slots__)

    def to_json(self, block: int) -> dict[str, str | None]:
        """Return the formulas as texts, for a phase that sends blocks of ``block`` units."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: None if formula is None else in_blocks(str(formula), block) for name, formula in found.items()}


def in_blocks(text: str, block: int) -> str:
    """Return a formula in the densities of blocks, where these have several units: b_n for d_n."""
    return re.sub(r"\bd(?=_|\b)", "b", text) if block > 1 else text


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """Formulas of a scheme; ``checked`` are the sizes, of ``tried``, at which ``phases`` equal the counts.

    The scheme does not allow the other sizes. ``at`` are the counts for ``size``; ``blocks`` are the units of the
    blocks that travel whole in a phase, or 1.
    """

    size: int
    domain: Domain
    checked: tuple[int, ...]
    tried: int
    phases: Mapping[str, PhaseFormulas]
    at: Mapping[str, PhaseVolume]
    blocks: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data; counted volumes are k -> share, as fractions in text."""
        return {
            "domain": str(self.domain) if self.phases else None,
            "checked_sizes": list(self.checked),
            "formulas": {name: phase.to_json(self.blocks[name]) for name, phase in self.phases.items()},
            "size": self.size,
            "counted": {name: phase.to_json() for name, phase in self.at.items()},
            "blocks": dict(self.blocks),
        }


def symbolic(plan: Plan, size: int, density: float) -> ScalingReport:
    """Return the formulas of ``plan``, which is for any number of ranks, and its counts for ``size``.

    ``density`` decides which rank is the busiest where that depends on it. Raises VerificationError where the plan is
    not right among ``size`` ranks.
    """
    at = volumes(plan, size, density)
    groups = tuple(accumulate((tier.size or 1 for tier in plan.tiers[:-1]), mul))
    every = _fitted(plan, Domain(groups), density)
    if every and all(phase.found() == len(PhaseFormulas.__slots__) for phase in every[1].values()):
        checked, phases, domain = *every, Domain(groups)
    else:
        powers = _fitted(plan, Domain(groups, powers=True), density)
        domain, (checked, phases) = _better(groups, every, powers)
    return ScalingReport(size, domain, checked, len(_wanted(domain)), phases, at, blocks_of(plan))


_Fit = tuple[tuple[int, ...], dict[str, PhaseFormulas]]


def _better(groups: tuple[int, ...], every: _Fit | None, powers: _Fit | None) -> tuple[Domain, _Fit]:
    """Return the fit with more formulas, and its domain; an empty fit where there are no formulas."""

    def found(fit: _Fit | None) -> int:
        return sum(phase.found() for phase in fit[1].values()) if fit else 0

    if not found(every) and not found(powers):
        return Domain(groups), ((), {})
    if powers and found(powers) > found(every):
        return Domain(groups, powers=True), powers
    assert every is not None
    return Domain(groups), every


def _wanted(domain: Domain) -> list[int]:
    """Return the sizes to count at: few where they are multiples of large groups."""
    sizes = [domain.multiple * factor for factor in (POWERS if domain.powers else EVERY)]
    return [n for n in sizes if n <= max(MOST_RANKS, sizes[LEAST_SIZES])]


def _fitted(plan: Plan, domain: Domain, density: float) -> _Fit | None:
    """Return the formulas for ``domain``, and the sizes they were checked at; None where those are too few."""
    counted: dict[int, dict[str, PhaseVolume]] = {}
    for n in allowed(plan, _wanted(domain)):
        with suppress(VerificationError):  # the scheme is not right for this number of ranks
            counted[n] = volumes(plan, n, density)
    if len(counted) < LEAST_SIZES:
        return None
    names = next(iter(counted.values()))
    return tuple(counted), {name: _formulas({n: c[name] for n, c in counted.items()}, domain) for name in names}


def _formulas(counts: Mapping[int, PhaseVolume], domain: Domain) -> PhaseFormulas:
    def of(name: str) -> dict[int, Any]:
        return {n: getattr(count, name) for n, count in counts.items()}

    steps, sent, received = (fit_scalar(of(name), domain) for name in ("steps", "messages_sent", "messages_received"))
    return PhaseFormulas(steps, sent, received, fit_volume(of("sent"), domain), fit_volume(of("received"), domain))


MOST_TERMS = 12
"""Most terms of a sum that is counted for one number of ranks; a formula never has as many."""

LEGEND = "M: bytes of the dense tensor; d: density of one rank's gradient; d_k: of the sum of k ranks, gamma_k d"
UNKNOWN = "?"


def symbolic_text(found: ScalingReport) -> list[str]:
    """Return the formulas by phase with their domain, and the counts of ``found.size`` ranks where they lack these."""
    lines: list[str] = []
    inside = bool(found.phases) and found.domain.holds(found.size)
    if found.phases:
        domain = f"{found.domain}" + (" that the scheme is for" if len(found.checked) < found.tried else "")
        lines.append(f"for {domain}, of the busiest rank (values alone; holds at {runs_text(found.checked)} ranks)")
        lines += _phases(found, found.phases, f" (counted among {found.size} ranks)" if inside else None)
    if not inside:
        why = "" if found.phases else "; no formula in n was found"
        lines.append(f"counted among {found.size} ranks, of the busiest (values alone{why})")
        lines += _phases(found, dict.fromkeys(found.at, _NO_FORMULAS), "")
    unknown = [f"  {UNKNOWN}: no formula in n was found"] if any(UNKNOWN in line for line in lines) else []
    return [*lines, *unknown, f"  {LEGEND}", *_blocks(found)]


_NO_FORMULAS = PhaseFormulas(None, None, None, None, None)


def _phases(found: ScalingReport, phases: Mapping[str, PhaseFormulas], mark: str | None) -> list[str]:
    """Return a line for each phase; counts replace missing formulas, with ``mark``, or unknown where that is None."""
    width = max(map(len, found.at))
    texts = {name: _phase(formulas, found.at[name], mark) for name, formulas in phases.items()}
    return [f"  {name.ljust(width)}  {in_blocks(text, found.blocks[name])}" for name, text in texts.items()]


def _phase(formulas: PhaseFormulas, at: PhaseVolume, mark: str | None) -> str:
    def amount(formula: object, count: object, what: str = "") -> str:
        if formula is None and mark is None:
            return f"{UNKNOWN} {what}s" if what else UNKNOWN
        text = str(count if formula is None else formula)
        words = f"{text} {what}{'' if text == '1' else 's'}" if what else text
        return f"{words}{mark}" if formula is None else words

    steps = amount(formulas.steps, at.steps, "step")
    if steps.startswith("0 steps"):
        return "no steps"
    messages = _both(
        amount(formulas.messages_sent, at.messages_sent, "message"),
        amount(formulas.messages_received, at.messages_received, "message"),
    )
    volume = _both(amount(formulas.sent, _counted_text(at.sent)), amount(formulas.received, _counted_text(at.received)))
    return f"{steps}, {messages}, volume {volume}"


def _blocks(found: ScalingReport) -> list[str]:
    names: dict[int, list[str]] = {}
    for name, block in found.blocks.items():
        if block > 1 and (found.at[name].sent or found.at[name].received):
            names.setdefault(block, []).append(name)
    which = "; ".join(f"of {block} units in {' and '.join(phases)}" for block, phases in names.items())
    return [f"  b, b_k: the same as d, d_k of units in blocks that have any, {which}"] if which else []


def _counted_text(volume: Volume) -> str:
    kept = dict(sorted(volume.items())[:MOST_TERMS])
    more = len(volume) - len(kept)
    return volume_text(kept) + (f" + {count(more, 'more term')}" if more else "")


def _both(sent: str, received: str) -> str:
    return sent if sent == received else f"{sent} sent and {received} received"
