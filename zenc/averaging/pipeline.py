"""The pipeline for averagings: the period is proved, and the scheme of its groups goes along ``zenc.pipeline``.

Syntax --resolve_averaging--> Averaging --verify_averaging--> AveragingReport --averaging_artifacts--> Artifacts
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from zenc.averaging import resolve
from zenc.averaging.mixing import PeriodProof, meant, prove_period
from zenc.averaging.model import Averaging, EvenDivision, division_text, timing_text
from zenc.codegen.artifact import Artifact
from zenc.common.wording import count, sizes_text
from zenc.errors import Diagnostic, VerificationError
from zenc.gradients.spec import DEFAULT_GRADIENT
from zenc.language.files import SourceFiles
from zenc.pipeline import build, prove, render
from zenc.pipeline.request import Report, Request, proved_lines
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.requirements import LARGEST_SOUGHT, format_ranks
from zenc.scheme.compression_words import words_of
from zenc.scheme.library import compression_text
from zenc.verify.proof import LARGEST_UNPINNED, UNPINNED_SIZES

MOST_LINES = 8
"""Most sizes of groups with a line each; of more the largest has one."""


def made_text(averaging: Averaging) -> str:
    """Return what all ranks have after a period: the proof in words."""
    if averaging.outer is None:
        return "after a period all ranks have the mean, exactly"
    steps = f"and {words_of(averaging.outer)} steps by the mean of them"
    if not (lost := compression_text(averaging.sums.scheme)):
        return f"changes of parameters are summed exactly, {steps}"
    kept = "kept" if averaging.sums.scheme.feedback else "lost"
    return f"changes of parameters are what is summed and what is {kept} ({lost}), {steps}"


@dataclass(frozen=True, slots=True)
class AveragingReport:
    """A proved averaging: its period for each of ``proofs``, and its scheme for each number of ranks in a group."""

    averaging: Averaging
    proofs: tuple[PeriodProof, ...]
    groups: Mapping[int, Report]
    warnings: tuple[Diagnostic, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of ranks for which a period makes the mean."""
        return tuple(proof.size for proof in self.proofs)

    @property
    def usual(self) -> PeriodProof:
        """The proof for the fewest ranks, though not for one alone where there are others."""
        return next((proof for proof in self.proofs if proof.size > 1), self.proofs[0])

    @property
    def divisions(self) -> tuple[str, ...]:
        """The divisions of a period, as an author writes them."""
        return tuple(division_text(division) for division in self.averaging.divisions)

    @property
    def name(self) -> str:
        """The name of the averaging."""
        return self.averaging.name

    @property
    def from_any_step(self) -> bool:
        """Return whether all have the mean after any steps that are as many as a period has, wherever they begin."""
        return all(proof.from_any_step for proof in self.proofs)

    def to_json(self) -> dict[str, object]:
        """Return the divisions of a period, the scheme, and the results of the proofs, as JSON data."""
        words = {key: words_of(value) for key, value in self.averaging.words.items()}
        own = {"period": list(self.divisions), **words, "sums": self.averaging.sums.name, "sizes": list(self.sizes)}
        groups = {str(size): one.proof_json() for size, one in self.groups.items()}
        told = [warning.to_json() for warning in self.warnings]
        return {**own, "from_any_step": self.from_any_step, "groups": groups, "diagnostics": told}

    def lines(self, file: str) -> list[str]:
        """Return the report in words, as those of ``file``."""
        period, sums = self.averaging.period, self.averaging.sums.name
        started = "" if self.from_any_step else f"; not after any {period} steps that begin within a period"
        own, groups = self.averaging, {f"{sums} in a group of {size}": one for size, one in self.groups.items()}
        if len(groups) > MOST_LINES:
            groups = dict(list(groups.items())[-1:])
        timing = [f"{file}: {timing_text(own)}"] if own.words else []
        return [
            f"{file}: averaging {self.name} has a period of {count(period, 'step')}: {', '.join(self.divisions)}",
            *timing,
            f"{file}: {made_text(own)}; proved for {sizes_text(self.sizes)}{started}",
            *proved_lines(file, groups),
        ]


def resolve_averaging(syntax: SourceFiles, request: Request) -> tuple[Averaging, tuple[Diagnostic, ...]]:
    """Resolve the syntax to the averaging called ``request.scheme``, and warnings; raises SchemeError."""
    return resolve.resolve_averaging(syntax, request.scheme, request.params or {}, request.levels)


def checked_averaging(syntax: SourceFiles, request: Request) -> AveragingReport:
    """Return the report on the averaging of ``syntax``; raises as ``resolve_averaging`` and ``verify_averaging``."""
    averaging, warnings = resolve_averaging(syntax, request)
    return verify_averaging(averaging, request, warnings)


def verify_averaging(averaging: Averaging, request: Request, warnings: tuple[Diagnostic, ...] = ()) -> AveragingReport:
    """Prove the period of an averaging, and report on its scheme for each size of a group.

    Without a number of ranks it is proved for those of 1 to 16, and some more, that are whole groups.

    Raises:
        VerificationError: ``bad-size`` for another number of ranks than divisions list; ``not-the-mean``; and errors of
            the scheme among the ranks of a group.
    """
    size = request.size if request.size is not None else averaging.listed_size
    if averaging.listed_size not in (None, size):
        ranks = count(averaging.listed_size or 0, "rank")
        message = f"averaging '{averaging.name}' lists {ranks}, and there are {size}"
        raise VerificationError(Diagnostic("bad-size", message, averaging.alternate))
    if size is not None:
        proofs: tuple[PeriodProof, ...] = (prove_period(averaging, size),)
        reports = _groups(averaging, proofs[0].group_sizes, size)
    else:
        proofs, reports = _tried(averaging)
    found = dict.fromkeys(warning for report in reports.values() for warning in report.warnings)
    return AveragingReport(averaging, proofs, reports, (*warnings, *found, *_lone(averaging, proofs)))


def plans_for(averaging: Averaging, sizes: Iterable[int]) -> dict[int, Plan]:
    """Return the plan of the scheme of a group for each number of ranks in it."""
    return {size: lower(averaging.sums.scheme, size) for size in sizes}


def averaging_artifacts(report: AveragingReport) -> dict[int, Artifact]:
    """Compile an artifact for each number of ranks in a group; raises BuildError."""
    return {size: build(render(one, "cpu")) for size, one in report.groups.items()}


def _tried(averaging: Averaging) -> tuple[tuple[PeriodProof, ...], dict[int, Report]]:
    """Return the proofs for those usual numbers of ranks that the averaging is right for."""
    proofs: list[PeriodProof] = []
    reports: dict[int, Report] = {}
    wrong: list[VerificationError] = []
    for size in _usual_sizes(averaging):
        try:
            proof = prove_period(averaging, size)
            reports |= _groups(averaging, [each for each in proof.group_sizes if each not in reports], size)
            proofs.append(proof)
        except VerificationError as error:
            wrong.append(error)
    if not proofs:
        raise wrong[0]
    return tuple(proofs), reports


def _usual_sizes(averaging: Averaging) -> Sequence[int]:
    """Return numbers of ranks that all divisions cut in whole groups, without a single group by chance."""
    widest = [each.outer or each.inner for each in averaging.divisions if isinstance(each, EvenDivision)]
    least, grain = max(1, *(2 * width for width in widest if width > 1), 1), averaging.grain
    most = max(UNPINNED_SIZES[-1], min(2 * least, LARGEST_UNPINNED))
    usual = [size for size in range(grain, most + 1, grain) if size >= least] or [-(-least // grain) * grain]
    if not averaging.requirements:
        return usual
    right = meant(averaging, range(1, LARGEST_SOUGHT + 1))
    return [size for size in right if size in usual] or right[:1] or usual


def _groups(averaging: Averaging, sizes: Sequence[int], ranks: int) -> dict[int, Report]:
    """Return a report on the scheme for each number of ranks in a group; notes name the averaging."""
    scheme, found = averaging.sums.scheme, dict[int, Report]()
    for size in sizes:
        try:
            found[size] = prove(scheme, lower(scheme, size), Request(size), DEFAULT_GRADIENT)
        except VerificationError as error:
            note = f"a group of averaging '{averaging.name}' {format_ranks(ranks)}: {averaging.sums.span}"
            raise VerificationError([replace(each, notes=(*each.notes, note)) for each in error.diagnostics]) from error
    return found


def _lone(averaging: Averaging, proofs: Sequence[PeriodProof]) -> list[Diagnostic]:
    """Return a warning for each step in which every rank is a group by itself, whatever their number."""
    proved = [proof for proof in proofs if proof.size > 1]
    return [
        Diagnostic(
            "lone-ranks",
            f"in the step of '{division_text(division)}' nothing is averaged: each rank is a group by itself",
            division.span,
            help="leave it out, unless a step is to pass without communication",
            severity="warning",
        )
        for step, division in enumerate(averaging.divisions)
        if proved and all(len(proof.steps[step]) == proof.size for proof in proved)
    ]
