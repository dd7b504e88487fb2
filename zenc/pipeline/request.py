"""Requests, and the values between the arrows of the pipeline: schemes with their plans, and reports.

Request = ranks params scheme topology link        # fixed by a caller
Schemes = Scheme+ choice? Plan*                    # one, or the candidates of a choice; once lowered with plans
Report  = Scheme Plan Proof+ warnings Placement? (choice Report+)?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from zenc.common.limits import LIMITS
from zenc.common.wording import count, sizes_text
from zenc.errors import CostError, Diagnostic
from zenc.plan.ir import Plan
from zenc.plan.lower import MOST_PICOSECONDS, lower
from zenc.plan.requirements import able_candidates, nearest_allowed
from zenc.scheme.model import Choice, Scheme
from zenc.scheme.units import amount_of_text
from zenc.verify.proof import Proof

if TYPE_CHECKING:
    from zenc.analysis.placement import Placement
    from zenc.topology.model import Topology

Parameters = Mapping[str, int | float | str]
Target: TypeAlias = Literal["cpu", "cuda", "plan"]
Architectures: TypeAlias = str | Iterable[str] | None

USUAL_RANKS = 4
"""Ranks that are shown by default; or the nearest number that the scheme allows."""


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments that a caller fixes: a scheme of the text, its parameters, ranks or topology, a bandwidth."""

    ranks: int | None = None
    params: Parameters | None = None
    scheme: str | None = None
    topology: Topology | None = None
    link: float | str | None = None

    @property
    def size(self) -> int | None:
        """The number of ranks, by default the topology's; None: any number."""
        return self.topology.size if self.topology and self.ranks is None else self.ranks

    @property
    def levels(self) -> dict[str, int]:
        """Level of the topology -> how many ranks one unit of it has."""
        if self.topology is None:
            return {}
        from zenc.analysis.fit import units_of

        return units_of(self.topology)

    def ensure_fits(self, plan: Plan) -> None:
        """Raise TopologyError or VerificationError unless ``plan`` can run on the topology, where there is one."""
        if self.topology:
            from zenc.analysis.fit import ensure_fits

            ensure_fits(plan, self.topology)

    def plan_of(self, scheme: Scheme, size: int | None = None) -> Plan:
        """Return the plan of ``scheme`` for ``size`` ranks over the link; raises as ``lower`` and ``bandwidth_of``."""
        speed = bandwidth_of(self.link, "link")
        link = 0 if speed is None else min(max(round(1e12 / speed), 1), MOST_PICOSECONDS)
        return replace(lower(scheme, size), link=link)

    def usual_size(self, plan: Plan) -> int:
        """Return ``size``, or a usual number of ranks for ``plan`` where it is None."""
        return nearest_allowed(plan, USUAL_RANKS) if self.size is None else self.size


def bandwidth_of(given: float | str | None, name: str) -> float | None:
    """Return bytes a second, of a number or a text; raises CostError (``bad-bandwidth``) for ``name``."""
    speed = amount_of_text("bandwidth", given) if isinstance(given, str) else given
    wrong = speed if isinstance(speed, str) else speed is not None and LIMITS["bandwidth"].problem(speed)
    if isinstance(speed, str) or wrong:
        raise CostError(Diagnostic("bad-bandwidth", f"{name}: {wrong}"))
    return speed


@dataclass(frozen=True, slots=True)
class Schemes:
    """A scheme, or the candidates of a ``choice``, by name; once lowered also the plan of each."""

    schemes: Mapping[str, Scheme]
    warnings: tuple[Diagnostic, ...]
    choice: Choice | None = None
    plans: Mapping[str, Plan] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the scheme, or of the choice."""
        return self.choice.name if self.choice else next(iter(self.schemes))

    def able(self, size: int | None) -> Schemes:
        """Return the schemes without candidates that don't run among ``size`` ranks, and with warnings about them."""
        if self.choice is None:
            return self
        able, left_out = able_candidates(self.choice, size)
        schemes = {candidate.name: candidate.scheme for candidate in able}
        return replace(self, schemes=schemes, warnings=(*self.warnings, *left_out))


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The result of ``check``: the scheme, its plan, and its proofs, one for each of ``sizes``.

    ``placement``: loads and memory on the topology that it was checked against. For a ``choice`` the report is that of
    the candidate that runs first; ``candidates`` are the reports of all that can run, by their names.
    """

    scheme: Scheme
    plan: Plan
    proofs: tuple[Proof, ...]
    warnings: tuple[Diagnostic, ...]
    placement: Placement | None = None
    choice: Choice | None = None
    candidates: Mapping[str, Report] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the scheme, or of the choice."""
        return self.choice.name if self.choice else self.scheme.name

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of ranks that the scheme was proved for."""
        return tuple(proof.size for proof in self.proofs)

    def __repr__(self) -> str:
        return f"<zenc.Report {self.name}, proved for {sizes_text(self.sizes)}, {len(self.warnings)} warnings>"

    @property
    def rounds(self) -> Mapping[str, int]:
        """Rounds by kind of phase at the largest size that was proved."""
        return self.proofs[-1].rounds

    @property
    def each(self) -> Mapping[str, Report]:
        """The report itself, or those of all candidates, by name."""
        return self.candidates or {self.name: self}

    def proof_json(self) -> dict[str, object]:
        """Return what was proved, as JSON data."""
        return {"sizes": list(self.sizes), "rounds": self.rounds, "digest": self.plan.digest}

    def placement_json(self) -> dict[str, object]:
        """Return the placement, where there is one, as JSON data."""
        return {"placement": self.placement.to_json()} if self.placement else {}

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON data, without the name."""
        told = {**self.proof_json(), "diagnostics": [warning.to_json() for warning in self.warnings]}
        if self.choice:
            told["candidates"] = {name: one.proof_json() for name, one in self.candidates.items()}
        return {**told, **self.placement_json()}

    def lines(self, file: str) -> list[str]:
        """Return the report in words, as those of ``file``."""
        names = ", ".join(self.candidates)
        choice = [f"{file}: {self.name} chooses from {len(self.candidates)}: {names}"] if self.choice else []
        return choice + proved_lines(file, self.each)


def proved_lines(file: str, reports: Mapping[str, Report]) -> list[str]:
    """Return a line for each of ``reports``, by the name in ``file``, with those of its placement."""
    lines = []
    for name, one in reports.items():
        rounds = ", ".join(f"{kind} {count(rounds, 'step')}" for kind, rounds in one.rounds.items())
        lines.append(f"{file}: {name} is proved for {sizes_text(one.sizes)} ({rounds})")
        lines += one.placement.text() if one.placement else ()
    return lines
