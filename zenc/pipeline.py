"""The pipeline: each arrow is a function from one immutable value to the next.

text --parse--> Syntax --resolve--> Scheme --lower--> Plan --verify--> Proof --render--> sources --build--> Artifact
Artifact --program--> RankProgram --render--> sources --build--> kernels --load--> Collective

``artifact`` has the arrows of the first line but for parse: a text that does not parse is told of without numpy, which
all others need. Every rank of a process group goes the second line, in ``zenc.runtime.load``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.explanation import Explanation
from zenc.analysis.explanation import explain as explain_plan
from zenc.analysis.placement import Placement, place, units_of
from zenc.analysis.scaling import symbolic
from zenc.codegen.artifact import Artifact, Choosing
from zenc.codegen.build.gpu_kernels import TARGET as CUDA
from zenc.codegen.build.gpu_kernels import Cubin, cubins
from zenc.codegen.call_sequence import CODE, DATA, render_sequence
from zenc.codegen.render import UnitInputs, render
from zenc.errors import BuildError, Diagnostic
from zenc.gradients.generators import GradientSpec, drawn, source_of
from zenc.gradients.index_sets import Gradients, ensure, read_gradients, unsound_tensor
from zenc.gradients.uniform import DEFAULT_GRADIENT, UniformGradient
from zenc.language.files import SourceFiles, load_file, locate
from zenc.plan.candidates import able_candidates
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.requirements import ensure_all, nearest_allowed
from zenc.rank_ir.lower import lower as lower_rank
from zenc.rank_ir.lower import lower_all
from zenc.rank_ir.text import ShownProgram
from zenc.scheme.model import Choice, Scheme
from zenc.scheme.resolve import resolve as resolve_one
from zenc.scheme.resolve import resolve_any
from zenc.verify.proof import Proof, verify_all
from zenc.wire.constants import DTYPE_BYTES
from zenc.wire.part_sizes import part_sizes

if TYPE_CHECKING:
    from zenc.simulator.sweep import Planner
    from zenc.topology.model import Topology

Parameters = Mapping[str, int | float | str]
Target: TypeAlias = Literal["cpu", "cuda", "plan"]
Architectures: TypeAlias = str | Iterable[str] | None

LARGEST_PROVED = 64
"""Up to it a scheme that is simulated is proved for the very number of ranks."""

MOST_WRITTEN = 64
"""Ranks of a group whose call sequences are written to an artifact: they grow with the square of it."""

USUAL_RANKS = 4
"""What is shown where nobody says how many ranks there are, or the nearest number that the scheme is for."""


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments that a caller fixes: a scheme of the text, values of its parameters, ranks or topology."""

    ranks: int | None = None
    params: Parameters | None = None
    scheme: str | None = None
    topology: Topology | None = None

    @property
    def size(self) -> int | None:
        """The number of ranks, which is the topology's where it is not given; None: any number."""
        return self.topology.size if self.topology and self.ranks is None else self.ranks

    @property
    def levels(self) -> dict[str, int]:
        """Level of the topology -> how many ranks one unit of it has."""
        return units_of(self.topology) if self.topology else {}

    def usual_size(self, plan: Plan) -> int:
        """``size``, or what is shown of ``plan`` where nobody says it."""
        return nearest_allowed(plan, USUAL_RANKS) if self.size is None else self.size


@dataclass(frozen=True, slots=True)
class Schemes:
    """A scheme, or the candidates of a ``choice``, by name."""

    schemes: Mapping[str, Scheme]
    warnings: tuple[Diagnostic, ...]
    choice: Choice | None = None

    @property
    def name(self) -> str:
        """Of the scheme, or of the choice."""
        return self.choice.name if self.choice else next(iter(self.schemes))

    def able(self, size: int | None) -> Schemes:
        """Without the candidates that don't run among ``size`` ranks, and with warnings about them."""
        if self.choice is None:
            return self
        able, left_out = able_candidates(self.choice, size)
        schemes = {candidate.name: candidate.scheme for candidate in able}
        return replace(self, schemes=schemes, warnings=(*self.warnings, *left_out))


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The result of ``check``: the scheme is right for ``sizes``; ``warnings`` are worth a look.

    ``placement``: what it asks of the topology that it was checked against. Of a ``choice`` the report is that of the
    candidate that runs first; ``candidates`` are the reports of all that can run, by their names.
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
        """Of the scheme, or of the choice."""
        return self.choice.name if self.choice else self.scheme.name

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of ranks that it was proved for."""
        return tuple(proof.size for proof in self.proofs)

    def __repr__(self) -> str:
        row = len(self.sizes) > 2 and self.sizes == tuple(range(self.sizes[0], self.sizes[-1] + 1))
        sizes = f"{self.sizes[0]} to {self.sizes[-1]}" if row else ", ".join(map(str, self.sizes))
        return f"<zenc.Report {self.name}, proved for {sizes} ranks, {len(self.warnings)} warnings>"

    @property
    def rounds(self) -> Mapping[str, int]:
        """Rounds by kind of phase at the largest size that was proved."""
        return self.proofs[-1].rounds


def artifact(syntax: SourceFiles, given: Request, target: Target = "cpu", arch: Architectures = None) -> Artifact:
    """The artifact of ``syntax`` for ``target``.

    Raises the ZencError of the arrow that found something wrong, with all its diagnostics.
    """
    resolved = resolve(syntax, given)  # Syntax -> Scheme, or the candidates of one that chooses
    report = verify(resolved, given)  # Scheme -> Plan -> Proof
    return build(report, target, arch)  # Plan -> sources -> kernels


def resolve(syntax: SourceFiles, given: Request, alone: bool = False) -> Schemes:
    """Syntax -> Scheme. Raises SchemeError; where it is to be one ``alone``, also for one that chooses."""
    how = resolve_one if alone else resolve_any
    found, warnings = how(syntax, given.scheme, given.params or {}, given.levels)
    if isinstance(found, Choice):
        return Schemes({candidate.name: candidate.scheme for candidate in found.candidates}, warnings, found)
    return Schemes({found.name: found}, warnings)


def verify(schemes: Schemes, given: Request, gradient: UniformGradient = DEFAULT_GRADIENT) -> Report:
    """Scheme -> Plan -> Proof; on a topology also what the plan asks of it. Raises VerificationError, TopologyError."""
    able = schemes.able(given.size)
    reports = {name: _proved(scheme, given, gradient) for name, scheme in able.schemes.items()}
    first = next(iter(reports.values()))
    told = dict.fromkeys(warning for report in reports.values() for warning in report.warnings)
    candidates = reports if able.choice else {}
    return replace(first, warnings=(*able.warnings, *told), choice=able.choice, candidates=candidates)


def _proved(scheme: Scheme, given: Request, gradient: UniformGradient) -> Report:
    plan = lower(scheme, given.size)
    if given.topology is None:
        return Report(scheme, plan, verify_all(plan), ())
    placed = _placed(plan, given.topology, gradient)
    return Report(scheme, plan, (placed.proof,), placed.warnings, placed)


def _placed(plan: Plan, topology: Topology, gradient: UniformGradient) -> Placement:
    return place(plan, topology, expected_bytes(plan, topology.size, gradient))


def build(report: Report, target: Target, arch: Architectures = None) -> Artifact:
    """Plan -> sources -> kernels, of all candidates where there are some. Raises BuildError."""
    architectures = arch if arch is None or isinstance(arch, str) else tuple(arch)
    each = {name: _built(one, target, architectures) for name, one in (report.candidates or {"": report}).items()}
    first = next(iter(each.values()))
    if report.choice is None:
        return first
    choosing = Choosing(report.choice.name, report.choice.settings, each)
    return replace(first, texts=report.choice.sources, choosing=choosing)


def _built(report: Report, target: Target, arch: Architectures) -> Artifact:
    sources = {} if target == "plan" else rendered(report.plan, target)
    kernels, sequences = _kernels(sources, target, arch), _sequences(report.plan) if target == CUDA else {}
    return Artifact(report.plan, target, sources, report.scheme.sources, report.sizes, kernels, sequences=sequences)


def _sequences(plan: Plan) -> dict[str, str]:
    """The call sequences of all ranks, where their number is known; of very many each rank makes its own."""
    if plan.size is None or plan.size > MOST_WRITTEN:
        return {}
    programs = lower_all(plan, plan.size)
    return {name: render_sequence(programs, name) for name in (CODE, DATA)}


def rendered(plan: Plan, target: str) -> dict[str, str]:
    """The generated sources of ``plan``: file name -> text."""
    return render(UnitInputs.of(plan), target)


def _kernels(sources: Mapping[str, str], target: Target, arch: Architectures) -> tuple[Cubin, ...]:
    """What of ``sources`` is compiled here and now: kernels for GPUs, since that takes no GPU."""
    if target == CUDA:
        return cubins(sources, arch)
    if arch is not None:
        message = f"the target {target} is not compiled for GPU architectures"
        raise BuildError(Diagnostic("unknown-arch", message, help="choose --target cuda, or leave --arch out"))
    return ()


def explanation(
    schemes: Schemes, given: Request, rank: int, spec: GradientSpec, indices: str | os.PathLike[str] | None
) -> Explanation:
    """The cost of a call over drawn gradients, or over those that ``indices`` records; of a choice the cheapest."""
    recorded = None if indices is None else _recorded(indices, given.ranks)
    source = f"recorded in {indices}" if recorded else source_of(spec)
    if recorded:
        spec = GradientSpec(recorded.units, recorded.width, recorded.dtype, recorded.density)

    def explained(scheme: Scheme) -> Explanation:
        unpinned = lower(scheme)
        of = recorded or drawn(spec, size or given.usual_size(unpinned))
        found = explain_plan(lower(scheme, of.size), rank, of, spec, source)
        gradient = UniformGradient(spec.units, spec.width, spec.dtype, spec.density)
        placed = _placed(found.plan, given.topology, gradient) if given.topology else None
        return replace(found, general=symbolic(unpinned, of.size, spec.density), placement=placed)

    size = recorded.size if recorded else given.size or (USUAL_RANKS if schemes.choice else None)
    each = {name: explained(scheme) for name, scheme in schemes.able(size).schemes.items()}
    least = min(each.values(), key=lambda one: one.busiest_bytes)
    return replace(least, choice=schemes.choice.name, candidates=each) if schemes.choice else least


def _recorded(indices: str | os.PathLike[str], ranks: int | None) -> Gradients:
    found = read_gradients(indices)
    ensure([(ranks not in (None, found.size), f"{indices} is of {found.size} ranks, not of {ranks}")])
    return found


def shown_programs(
    schemes: Schemes, given: Request, rank: int, tensor: tuple[int, int, str]
) -> dict[str, ShownProgram]:
    """Scheme -> Plan -> RankProgram of ``rank``, by name, for a ``tensor`` of (units, width, dtype)."""
    units, width, dtype = tensor
    shown = {}
    for name, scheme in schemes.able(USUAL_RANKS if given.size is None else given.size).schemes.items():
        size = given.usual_size(lower(scheme))
        ensure([(rank >= size, f"there is no rank {rank} among {size}"), *unsound_tensor(*tensor)])
        plan = lower(scheme, size)
        slots = part_sizes(plan.mapping, units, width, plan.parts(size))
        shown[name] = ShownProgram(name, lower_rank(plan, size, rank), tuple(slots), width * DTYPE_BYTES[dtype])
    return shown


def pinned(syntax: SourceFiles, given: Request) -> tuple[Plan, int]:
    """The plan of one scheme, and the number of ranks that it is for; raises SchemeError for one that chooses."""
    (scheme,) = resolve(syntax, given, alone=True).schemes.values()
    size = given.usual_size(lower(scheme))
    return lower(scheme, size), size


def planners(schemes: Schemes) -> dict[str, Planner]:
    """By name, functions from a number of ranks to the proved plan of each scheme.

    Plans of up to LARGEST_PROVED ranks are proved for these, larger ones for few of them, all by the same moves.
    """
    return {name: _planner(lower(scheme)) for name, scheme in schemes.schemes.items()}


def planners_of(paths: Iterable[str | os.PathLike[str]], given: Request) -> dict[str, Planner]:
    """Those of the schemes in ``paths``, by name; of schemes of one name, by path and name."""
    found = [
        (path, name, plan)
        for path in paths
        for name, plan in planners(resolve(load_file(locate(path)), given, alone=True)).items()
    ]
    names = [name for _, name, _ in found]
    return {name if names.count(name) == 1 else f"{path}: {name}": plan for path, name, plan in found}


def _planner(general: Plan) -> Planner:
    def plan(size: int) -> Plan:
        ensure_all(general, size)
        if size <= LARGEST_PROVED:
            verify_all(general, (size,))
        elif not proved:
            proved.extend(verify_all(general))
        return general

    proved: list[Proof] = []
    return plan
