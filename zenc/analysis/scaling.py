"""Scaling: steps, messages and volume of a scheme as formulas in the number of ranks, found by counting.

    ScalingReport = domain checked* PhaseFormulas* at: PhaseVolume*

The plan is played for many numbers of ranks, and formulas are fitted to the counts (``zenc.analysis.closed_form``).
One is kept only if it gives the counts of all of them exactly; that it holds beyond is likely, and not proved. Numbers
of ranks that the scheme is not for are left out. Where a formula does not hold for every n, powers of two are tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

from zenc.analysis.closed_form import Domain, Formula, Scalar, fit_scalar, fit_volume
from zenc.analysis.expected_bytes import blocks_of
from zenc.analysis.volume import PhaseVolume, volumes
from zenc.errors import VerificationError
from zenc.plan.ir import Plan
from zenc.plan.requirements import allowed

EVERY = (*range(2, 17), 20, 23)
POWERS = (2, 4, 8, 16, 32, 64)
MOST_RANKS = 96
LEAST_SIZES = 5
"""Fewer that a scheme is for tell nothing about the others."""


@dataclass(frozen=True, slots=True)
class PhaseFormulas:
    """Of the busiest rank; None where no known form gives the counts."""

    steps: Scalar | None
    messages_sent: Scalar | None
    messages_received: Scalar | None
    sent: Formula | None
    received: Formula | None

    def found(self) -> int:
        """The number of formulas that were found."""
        return sum(getattr(self, name) is not None for name in self.__slots__)

    def to_json(self, block: int) -> dict[str, str | None]:
        """The formulas as texts, of a phase that sends blocks of so many units."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: None if formula is None else in_blocks(str(formula), block) for name, formula in found.items()}


def in_blocks(text: str, block: int) -> str:
    """A formula in the densities of blocks, where these have several units: b_n for d_n."""
    return re.sub(r"\bd(?=_|\b)", "b", text) if block > 1 else text


@dataclass(frozen=True, slots=True)
class ScalingReport:
    """``checked`` are the sizes, of ``tried``, at which ``phases`` equal the counts; others the scheme is not for.

    ``at`` is what was counted for ``size``; ``blocks`` are the units of the blocks that travel whole in a phase, or 1.
    """

    size: int
    domain: Domain
    checked: tuple[int, ...]
    tried: int
    phases: Mapping[str, PhaseFormulas]
    at: Mapping[str, PhaseVolume]
    blocks: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON data; counted volumes are k -> share, as fractions in text."""
        return {
            "domain": str(self.domain) if self.phases else None,
            "checked_sizes": list(self.checked),
            "formulas": {name: phase.to_json(self.blocks[name]) for name, phase in self.phases.items()},
            "size": self.size,
            "counted": {name: phase.to_json() for name, phase in self.at.items()},
            "blocks": dict(self.blocks),
        }


def symbolic(plan: Plan, size: int, density: float) -> ScalingReport:
    """The formulas of ``plan``, which is for any number of ranks, and its counts for ``size``.

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
    """The one with more formulas; without any, none."""

    def found(fit: _Fit | None) -> int:
        return sum(phase.found() for phase in fit[1].values()) if fit else 0

    if not found(every) and not found(powers):
        return Domain(groups), ((), {})
    if powers and found(powers) > found(every):
        return Domain(groups, powers=True), powers
    assert every is not None
    return Domain(groups), every


def _wanted(domain: Domain) -> list[int]:
    """The sizes to count at: few where they are multiples of large groups."""
    sizes = [domain.multiple * factor for factor in (POWERS if domain.powers else EVERY)]
    return [n for n in sizes if n <= max(MOST_RANKS, sizes[LEAST_SIZES])]


def _fitted(plan: Plan, domain: Domain, density: float) -> _Fit | None:
    """The formulas for ``domain``, and the sizes that they were held against; None where those are too few."""
    sizes = allowed(plan, _wanted(domain))
    counted = {n: found for n in sizes if (found := _counted(plan, n, density)) is not None}
    if len(counted) < LEAST_SIZES:
        return None
    names = next(iter(counted.values()))
    return tuple(counted), {name: _formulas({n: c[name] for n, c in counted.items()}, domain) for name in names}


def _counted(plan: Plan, size: int, density: float) -> dict[str, PhaseVolume] | None:
    """The counts for ``size``, if the scheme is right for so many ranks."""
    try:
        return volumes(plan, size, density)
    except VerificationError:
        return None


def _formulas(counts: Mapping[int, PhaseVolume], domain: Domain) -> PhaseFormulas:
    return PhaseFormulas(
        fit_scalar({n: count.steps for n, count in counts.items()}, domain),
        fit_scalar({n: count.messages_sent for n, count in counts.items()}, domain),
        fit_scalar({n: count.messages_received for n, count in counts.items()}, domain),
        fit_volume({n: count.sent for n, count in counts.items()}, domain),
        fit_volume({n: count.received for n, count in counts.items()}, domain),
    )
