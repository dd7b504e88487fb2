"""Search for the scheme with the least predicted seconds, in rounds that each refine the best of the one before.

1. shipped schemes, with several values of parameters; all combinations of the four dimensions; tiers
2. the best of them with other wire formats and units
3. the best of all are proved; the first is the answer
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zenc.analysis.compression_text import sentences
from zenc.analysis.fit import ensure_fits, ensure_room, units_of
from zenc.common.wording import seconds_text, size_text
from zenc.errors import CostError, Diagnostic, ZencError
from zenc.gradients.profile import Profile
from zenc.language.files import load_text
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.requirements import ensure_all
from zenc.scheme.model import Unit
from zenc.scheme.resolve import resolve
from zenc.select.candidates import SchemeDraft, combined, of_files, of_shipped, refined, synthesized, tiered
from zenc.simulator.calibration import Calibration, by_nccl
from zenc.simulator.compression_work import note
from zenc.simulator.predict import Prediction, network, predict_on
from zenc.simulator.training import ddp
from zenc.topology.model import Topology
from zenc.verify.proof import verify

REFINED = 3
"""The number of the best of the first round, of one tier, that are tried with other formats and units."""
SHOWN = 10
NAME = "tuned"

Progress = Callable[[str], None]
"""A function called with the next work in words, and in the first round the number of schemes tried, of all."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """A draft, and its prediction for each profile."""

    draft: SchemeDraft
    plan: Plan
    predictions: tuple[Prediction, ...]

    @property
    def seconds(self) -> float:
        """The seconds of one call for each profile, one after another."""
        return sum(prediction.seconds for prediction in self.predictions)

    @property
    def bytes(self) -> float:
        """The bytes that the busiest rank sends, or receives if that is more, in all these calls."""
        return sum(max(prediction.sent, prediction.received) for prediction in self.predictions)

    @property
    def steps(self) -> int:
        """The most steps that any of its calls has."""
        return max(prediction.steps for prediction in self.predictions)

    @property
    def loses(self) -> list[str]:
        """The losses of its sums, in sentences; empty where they are those of the gradients."""
        return sentences(self.plan)

    @property
    def figures(self) -> str:
        """Seconds, bytes and steps in words."""
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        return f"{seconds_text(self.seconds)}, {size_text(self.bytes)} at the busiest rank, {steps}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data with the text of the scheme; seconds, and bytes of the busiest rank."""
        return {
            "scheme": self.draft.label,
            "seconds": self.seconds,
            "bytes": self.bytes,
            "steps": self.steps,
            "loses": self.loses,
            "text": self.draft.text(NAME),
        }


@dataclass(frozen=True, slots=True, eq=False)
class TunedScheme:
    """The result of a search; ``best`` are proved, the least seconds first, without variants of one another.

    ``tried`` could be predicted, ``refused`` do not run here. ``note``: the guesses among the numbers, if any.
    """

    size: int
    where: str
    profiles: tuple[Profile, ...]
    best: tuple[SearchResult, ...]
    tried: int
    refused: int
    note: str = ""

    def text(self, command: str = "zenc.tune(...)") -> str:
        """Return the file of the best scheme; ``command`` found it."""
        first, *others = self.best
        comment = [
            f"Found by {command}:",
            f"the least predicted seconds of {self.tried} schemes, for {self.size} ranks on {self.where}.",
            *(profile_text(profile, self.size) for profile in self.profiles),
            f"Predicted: {first.figures}, as '{first.draft.label}'.",
            *([f"It loses something: {'; '.join(first.loses)}."] if first.loses else []),
            *(f"  then {other.figures}: {other.draft.label}" for other in others[:3]),
            *([f"{self.note[:1].upper()}{self.note[1:]}."] if self.note else []),
        ]
        return first.draft.text(NAME, [" ".join(line.split()) for line in comment])

    def rows(self) -> list[dict[str, str]]:
        """Return the best, a row each, as text."""
        least = self.best[0].seconds
        return [
            {
                "": str(place),
                "scheme": f"{found.draft.label}, which loses something" if found.loses else found.draft.label,
                "seconds": seconds_text(found.seconds),
                "ratio": f"{found.seconds / least:.3f}" if least else "1",
                "busiest rank": size_text(found.bytes),
                "steps": str(found.steps),
            }
            for place, found in enumerate(self.best, start=1)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: the setting, the tried and refused schemes, and the best."""
        return {
            "ranks": self.size,
            "network": self.where,
            "profiles": [profile.name for profile in self.profiles],
            "tried": self.tried,
            "refused": self.refused,
            "notes": [self.note] if self.note else [],
            "best": [found.to_json() for found in self.best],
        }


def profile_text(profile: Profile, size: int) -> str:
    """Return the profile in a sentence: units, width, dtype, and the densities of a gradient and of the sum."""
    union = float(profile.union(size))
    return (
        f"Gradient {profile.name}: {profile.units:,} units of {profile.width} {profile.dtype}, "
        f"density {profile.density:.3g}, of the sum {union:.3g}."
    )


def tune(
    profiles: Sequence[Profile],
    size: int,
    topology: Topology | None,
    calibration: Calibration,
    progress: Progress = lambda _: None,
    named: Sequence[str | os.PathLike[str]] = (),
) -> TunedScheme:
    """Return the schemes with the least time for ``profiles``, one call each, on ``size`` ranks, with those ``named``.

    All others that are tried are lossless.

    Raises CostError (``no-scheme-found``) where no scheme runs there, and as ``predict`` does for all schemes.
    """
    levels = units_of(topology) if topology else {}
    search = _Search(tuple(profiles), size, topology, calibration, progress)
    drafts = [*of_shipped(size, levels), *combined(), *tiered(size, levels), *of_files(named)]
    search.try_all([*drafts, *synthesized(topology, progress)])
    elements = any(profile.width > 1 for profile in profiles)
    of_one_tier = [found.draft for found in search.ordered() if not (found.draft.tiers or found.plan.is_lossy)]
    search.try_all([draft for best in of_one_tier[:REFINED] for draft in refined(best, elements)])
    best = search.proved(SHOWN)
    if not best:
        message = f"no scheme was found that runs among {size} ranks on {search.where}"
        raise CostError(Diagnostic("no-scheme-found", message, notes=tuple(search.reasons)[:3]))
    told = [f"{each.draft.label}: {note(each.plan, calibration)}" for each in best if each.plan.is_lossy]
    if by_nccl(topology, calibration):
        dense = [ddp.dense(of.units * of.width, of.dtype, search.network, calibration, on_gpu=True) for of in profiles]
        seconds = sum(each.seconds for each in dense)
        wins = ", less than any of them: leave these gradients to DDP" if seconds < best[0].seconds else ""
        told.append(f"DDP's dense all-reduce by NCCL takes {seconds_text(seconds)}{wins}")
    told = [*([calibration.note] if calibration.note else []), *told]
    return TunedScheme(size, search.where, tuple(profiles), best, len(search.found), search.refused, "; ".join(told))


@dataclass
class _Search:
    profiles: tuple[Profile, ...]
    size: int
    topology: Topology | None
    calibration: Calibration
    progress: Progress
    found: list[SearchResult] = field(default_factory=list)
    refused: int = 0
    reasons: list[str] = field(default_factory=list)
    _plans: dict[str, Plan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.network = network(self.topology, self.size, self.calibration)

    @property
    def where(self) -> str:
        return self.topology.name if self.topology else "one switch"

    def try_all(self, drafts: Sequence[SchemeDraft]) -> None:
        """Predict ``drafts``, but for those with the meaning of an earlier one."""
        done = len(self.found) + self.refused
        for place, draft in enumerate(drafts):
            self.progress(f"{done + place} of {done + len(drafts)} tried, now {draft.label}")
            try:
                self._try(draft)
            except ZencError as error:
                self.refused += 1
                self.reasons.append(f"{draft.label}: {error.diagnostics[0].message}")

    def ordered(self) -> list[SearchResult]:
        """Return the least seconds first; of several that do the same, as formats of an empty pull, the first."""
        different = {(found.seconds, found.bytes): found for found in reversed(self.found)}
        return sorted(different.values(), key=lambda found: found.seconds)

    def proved(self, most: int) -> tuple[SearchResult, ...]:
        """Return the best that could be proved, one of each family."""
        proved: dict[str, SearchResult] = {}
        for found in self.ordered():
            family = found.draft.family or found.draft.label
            if family in proved:
                continue
            self.progress(f"the proof of {found.draft.label}")
            try:
                verify(found.plan, self.size)
                if self.topology:
                    ensure_room(found.plan, self.topology, self.profiles)
            except ZencError as error:
                self.refused += 1
                self.reasons.append(f"{found.draft.label}: {error.diagnostics[0].message}")
                continue
            proved[family] = found
            if len(proved) == most:
                break
        return tuple(proved.values())

    def _try(self, draft: SchemeDraft) -> None:
        scheme, _ = resolve(load_text(draft.text(NAME), f"{draft.label}.zen"), NAME)
        plan = lower(scheme, self.size)
        if plan.digest in self._plans:
            return
        self._plans[plan.digest] = plan
        ensure_all(plan, self.size)
        if self.topology:
            ensure_fits(plan, self.topology)
        cut = [  # as the scheme sees them: a row that is there has all of its elements
            replace(each, units=each.units * each.width, width=1) if plan.unit is Unit.ELEMENT else each
            for each in self.profiles
        ]
        predictions = tuple(predict_on(plan, profile, self.network, self.calibration) for profile in cut)
        self.found.append(SearchResult(draft, plan, predictions))
