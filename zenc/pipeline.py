"""The arrows after parsing: from a program to what is told about it, and to an artifact.

Program --resolve--> Scheme --lower--> Plan --verify--> proved Plan --render--> sources --(cubins)--> Artifact
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING

from zenc.analysis.expected_bytes import ExpectedBytes
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
from zenc.language.files import SourceFiles
from zenc.plan.candidates import able_candidates
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.plan.requirements import ensure_all, nearest_allowed
from zenc.plurals import count
from zenc.rank_ir.lower import lower as lower_rank
from zenc.rank_ir.lower import lower_all
from zenc.rank_ir.text import ShownProgram
from zenc.scheme.model import Choice, Scheme
from zenc.scheme.resolve import resolve, resolve_any
from zenc.simulator.sweep import Planner
from zenc.verify.proof import Proof, verify_all
from zenc.wire.constants import DTYPE_BYTES
from zenc.wire.part_sizes import part_sizes

if TYPE_CHECKING:
    from zenc.draw.flows import Flows
    from zenc.draw.picture import MatrixPicture, SchedulePicture
    from zenc.draw.steps import StepRange as Chosen
    from zenc.draw.steps import Steps
    from zenc.topology.model import Topology

Parameters = Mapping[str, int | float | str]

LARGEST_PROVED = 64
"""Up to it a scheme that is simulated is proved for the very number of ranks."""

MOST_WRITTEN = 128
"""Ranks of a group whose call sequences are written to an artifact: they grow with the square of it."""

USUAL_RANKS = 4
"""What is shown where nobody says how many ranks there are, or the nearest number that the scheme is for."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What ``check`` found: the scheme is right for ``sizes``; ``warnings`` are worth a look.

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
        return self.choice.name if self.choice else self.scheme.name

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(proof.size for proof in self.proofs)

    def __repr__(self) -> str:
        row = len(self.sizes) > 2 and self.sizes == tuple(range(self.sizes[0], self.sizes[-1] + 1))
        sizes = f"{self.sizes[0]} to {self.sizes[-1]}" if row else ", ".join(map(str, self.sizes))
        return f"<zenc.Report {self.name}, proved for {sizes} ranks, {len(self.warnings)} warnings>"

    @property
    def rounds(self) -> Mapping[str, int]:
        """Rounds by kind of phase at the largest size that was proved."""
        return self.proofs[-1].rounds


@dataclass(frozen=True, slots=True)
class Drawing:
    """A scheme's picture; ``steps`` is what it shows: each move, or among many ranks who sends to whom."""

    plan: Plan
    steps: Steps | Flows
    picture: SchedulePicture | MatrixPicture

    def svg(self) -> str:
        """The text of an SVG file, which needs no other file, font or script."""
        from zenc.draw.render import svg

        return svg(self.picture)

    def words(self) -> str:
        """What is drawn, in a line."""
        return f"{self.picture.title}, {count(self.steps.moves, 'move')} in {count(self.steps.drawn, 'step')}"

    def to_json(self) -> dict[str, object]:
        """What is drawn, as JSON data."""
        return {"scheme": self.plan.scheme, "digest": self.plan.digest, **self.steps.to_json()}


def checked(
    program: SourceFiles,
    ranks: int | None,
    params: Parameters | None,
    scheme: str | None,
    topology: Topology | None = None,
    gradient: UniformGradient = DEFAULT_GRADIENT,
) -> Report:
    """Resolve, lower and prove, as ``zenc.api.check`` says."""
    levels = units_of(topology) if topology else {}
    resolved, warnings = resolve_any(program, scheme, params or {}, levels)  # Syntax -> Scheme
    if isinstance(resolved, Choice):
        return _checked_choice(resolved, warnings, ranks, topology, gradient)
    return _proved(resolved, warnings, ranks, topology, gradient)


def _checked_choice(
    choice: Choice,
    warnings: tuple[Diagnostic, ...],
    ranks: int | None,
    topology: Topology | None,
    gradient: UniformGradient,
) -> Report:
    size = topology.size if topology and ranks is None else ranks
    able, left_out = able_candidates(choice, size)
    reports = {candidate.name: _proved(candidate.scheme, (), ranks, topology, gradient) for candidate in able}
    first = next(iter(reports.values()))
    told = dict.fromkeys(warning for report in reports.values() for warning in report.warnings)
    return replace(first, warnings=(*warnings, *left_out, *told), choice=choice, candidates=reports)


def _proved(
    resolved: Scheme,
    warnings: tuple[Diagnostic, ...],
    ranks: int | None,
    topology: Topology | None,
    gradient: UniformGradient,
) -> Report:
    if topology is None:
        plan = lower(resolved, ranks)  # Scheme -> Plan
        return Report(resolved, plan, verify_all(plan), warnings)  # Plan -> proved Plan
    plan = lower(resolved, topology.size if ranks is None else ranks)
    placed = place(plan, topology, _weigher(plan, topology, gradient))  # Plan -> proved Plan @ Topology
    return Report(resolved, plan, (placed.proof,), (*warnings, *placed.warnings), placed)


def _resolved(
    program: SourceFiles, scheme: str | None, params: Parameters | None, topology: Topology | None
) -> tuple[Scheme, tuple[Diagnostic, ...]]:
    return resolve(program, scheme, params or {}, units_of(topology) if topology else {})


def _weigher(plan: Plan, topology: Topology, gradient: UniformGradient) -> ExpectedBytes:
    return ExpectedBytes(plan, topology.size, *astuple(gradient))


def compiled(
    program: SourceFiles,
    ranks: int | None,
    params: Parameters | None,
    target: str,
    scheme: str | None,
    topology: Topology | None = None,
    arch: str | Iterable[str] | None = None,
) -> Artifact:
    """``checked``, and then rendered for ``target``, as ``zenc.api.compile`` says."""
    report = checked(program, ranks, params, scheme, topology)
    architectures = arch if arch is None or isinstance(arch, str) else tuple(arch)
    if report.choice:
        each = {name: _artifact(one, target, architectures) for name, one in report.candidates.items()}
        return _choosing(report.choice, each)
    return _artifact(report, target, architectures)


def _artifact(report: Report, target: str, arch: str | Iterable[str] | None) -> Artifact:
    sources = {} if target == "plan" else rendered(report.plan, target)  # Plan -> sources
    kernels = _kernels(sources, target, arch)  # sources -> cubins
    sequences = _sequences(report.plan) if target == CUDA else {}  # Plan -> rank programs -> call sequences
    return Artifact(report.plan, target, sources, report.scheme.sources, report.sizes, kernels, sequences=sequences)


def _sequences(plan: Plan) -> dict[str, str]:
    """The call sequences of all ranks, where their number is known; of very many each rank makes its own."""
    if plan.size is None or plan.size > MOST_WRITTEN:
        return {}
    programs = lower_all(plan, plan.size)
    return {name: render_sequence(programs, name) for name in (CODE, DATA)}


def _choosing(choice: Choice, artifacts: dict[str, Artifact]) -> Artifact:
    """The artifact of the first candidate, with all of them beside it."""
    first = next(iter(artifacts.values()))
    return replace(first, texts=choice.sources, choosing=Choosing(choice.name, choice.settings, artifacts))


def _kernels(sources: Mapping[str, str], target: str, arch: str | Iterable[str] | None) -> tuple[Cubin, ...]:
    """What of ``sources`` is compiled here and now: kernels for GPUs, since that takes no GPU."""
    if target == CUDA:
        return cubins(sources, arch)
    if arch is not None:
        message = f"the target {target} is not compiled for GPU architectures"
        raise BuildError(Diagnostic("unknown-arch", message, help="choose --target cuda, or leave --arch out"))
    return ()


def rendered(plan: Plan, target: str) -> dict[str, str]:
    """The generated sources of ``plan``: file name -> text."""
    return render(UnitInputs.of(plan), target)


def explained(
    program: SourceFiles,
    ranks: int | None,
    rank: int,
    load: GradientSpec,
    indices: str | os.PathLike[str] | None,
    params: Parameters | None,
    scheme: str | None,
    topology: Topology | None,
) -> Explanation:
    """What a call costs, as ``zenc.api.explain`` says."""
    resolved, _ = resolve_any(program, scheme, params or {}, units_of(topology) if topology else {})
    if isinstance(resolved, Scheme):
        return _explained(resolved, ranks, rank, load, indices, topology)
    if ranks is None and indices is None:
        ranks = topology.size if topology else USUAL_RANKS
    size = read_gradients(indices).size if ranks is None and indices is not None else ranks
    able, _ = able_candidates(resolved, size)
    each = {one.name: _explained(one.scheme, ranks, rank, load, indices, topology) for one in able}
    least = min(each.values(), key=lambda explanation: explanation.busiest_bytes)
    return replace(least, choice=resolved.name, candidates=each)


def _explained(
    resolved: Scheme,
    ranks: int | None,
    rank: int,
    load: GradientSpec,
    indices: str | os.PathLike[str] | None,
    topology: Topology | None,
) -> Explanation:
    unpinned = lower(resolved)
    if ranks is None and indices is None:
        ranks = _usual(unpinned, topology)
    of, load, source = _gradients(load, ranks, indices)
    plan = lower(resolved, of.size)
    explanation = explain_plan(plan, rank, of, load, source)
    general = symbolic(unpinned, of.size, load.density)
    gradient = UniformGradient(load.units, load.width, load.dtype, load.density)
    placed = place(plan, topology, _weigher(plan, topology, gradient)) if topology else None
    return replace(explanation, general=general, placement=placed)


def programmed(
    program: SourceFiles,
    ranks: int | None,
    rank: int,
    units: int,
    width: int,
    dtype: str,
    params: Parameters | None,
    scheme: str | None,
    topology: Topology | None,
) -> dict[str, ShownProgram]:
    """The rank programs that ``zenc.api.rank_programs`` shows."""
    resolved, _ = resolve_any(program, scheme, params or {}, units_of(topology) if topology else {})
    if isinstance(resolved, Choice):
        able, _ = able_candidates(resolved, ranks or (topology.size if topology else USUAL_RANKS))
        schemes = {candidate.name: candidate.scheme for candidate in able}
    else:
        schemes = {resolved.name: resolved}
    shown = {}
    for name, each in schemes.items():
        size = _usual(lower(each), topology) if ranks is None else ranks
        ensure([(rank >= size, f"there is no rank {rank} among {size}"), *unsound_tensor(units, width, dtype)])
        plan = lower(each, size)  # Scheme -> Plan -> rank program
        slots = part_sizes(plan.mapping, units, plan.parts(size))
        shown[name] = ShownProgram(name, lower_rank(plan, size, rank), tuple(slots), width * DTYPE_BYTES[dtype])
    return shown


def planner(
    program: SourceFiles, params: Parameters | None, scheme: str | None, topology: Topology | None
) -> tuple[str, Planner]:
    """The name of a scheme, and what makes its plan for a number of ranks, as ``zenc.api.simulate`` needs it.

    Plans of up to LARGEST_PROVED ranks are proved for these, larger ones for few of them, all by the same moves.
    """
    resolved, _ = _resolved(program, scheme, params, topology)
    return resolved.name, _planner(resolved)


def planners(
    program: SourceFiles, params: Parameters | None, topology: Topology | None
) -> tuple[str, dict[str, Planner]]:
    """As ``planner``; of a scheme that chooses, one for each candidate, by its name."""
    resolved, _ = resolve_any(program, None, params or {}, units_of(topology) if topology else {})
    if isinstance(resolved, Choice):
        return resolved.name, {candidate.name: _planner(candidate.scheme) for candidate in resolved.candidates}
    return resolved.name, {resolved.name: _planner(resolved)}


def _planner(resolved: Scheme) -> Planner:
    general = lower(resolved)

    def plan(size: int) -> Plan:
        ensure_all(general, size)
        if size <= LARGEST_PROVED:
            verify_all(general, (size,))
        elif not proved:
            proved.extend(verify_all(general))
        return general

    proved: list[Proof] = []
    return plan


def _usual(plan: Plan, topology: Topology | None) -> int:
    """How many ranks are meant where nobody says it."""
    return topology.size if topology else nearest_allowed(plan, USUAL_RANKS)


def _gradients(
    load: GradientSpec, ranks: int | None, indices: str | os.PathLike[str] | None
) -> tuple[Gradients, GradientSpec, str]:
    """Drawn gradients for ``ranks``, or recorded ones; what describes them, and where they come from."""
    if indices is None:
        assert ranks is not None
        return drawn(load, ranks), load, source_of(load)
    of = read_gradients(indices)
    ensure([(ranks not in (None, of.size), f"{indices} is of {of.size} ranks, not of {ranks}")])
    return of, GradientSpec(of.units, of.width, of.dtype, of.density), f"recorded in {indices}"


def drawing(
    program: SourceFiles,
    ranks: int | None,
    choice: Chosen,
    params: Parameters | None,
    scheme: str | None,
    topology: Topology | None,
    gradient: UniformGradient,
) -> Drawing:
    """The picture, as ``zenc.api.draw`` says."""
    resolved, _ = _resolved(program, scheme, params, topology)
    if ranks is None:
        ranks = _usual(lower(resolved), topology)
    return picture_of(lower(resolved, ranks), ranks, choice, topology, gradient)


def picture_of(plan: Plan, ranks: int, choice: Chosen, topology: Topology | None, gradient: UniformGradient) -> Drawing:
    """The picture of ``plan`` among ``ranks``: arrows, or a matrix where there are many."""
    from zenc.draw.flows import flows_of
    from zenc.draw.matrix import draw_matrix
    from zenc.draw.scheme import draw
    from zenc.draw.steps import MOST_RANKS, steps_of

    weigher = ExpectedBytes(plan, ranks, *astuple(gradient)) if topology else None
    if ranks > MOST_RANKS:
        flows = flows_of(plan, ranks, choice, topology, weigher)
        return Drawing(plan, flows, draw_matrix(plan, flows))
    shown = steps_of(plan, ranks, choice, topology, weigher)
    return Drawing(plan, shown, draw(plan, shown))
