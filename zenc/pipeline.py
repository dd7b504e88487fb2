"""The pipeline: each arrow is a function from one immutable value to the next.

text --parse--> Syntax --resolve--> Scheme --lower--> Plan --verify--> Proof --render--> sources --build--> Artifact
Artifact --program--> RankProgram --render--> sources --build--> kernels --load--> Backend

A scheme has a meaning for every name; a plan is its moves between ranks; a proof says for which numbers of ranks the
plan sums everything exactly once; an artifact is a plan with generated sources; a backend runs it on one device.
``artifact`` has the arrows of the first line but for parse: an error in the text is reported without numpy, which all
others need. ``backend`` has those of the second, for one rank. Behind them are the arrows that end elsewhere: in the
cost of a call (``explanation``), in programs to show, in plans to draw and to simulate.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from zenc.analysis.contribution import packed_tensor
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.explanation import Explanation
from zenc.analysis.explanation import explain as explain_plan
from zenc.analysis.gains import gain_warnings
from zenc.analysis.placement import Placement, place, units_of
from zenc.analysis.scaling import symbolic
from zenc.codegen.artifact import Artifact, Choosing
from zenc.codegen.build.gpu_kernels import TARGET as CUDA
from zenc.codegen.build.gpu_kernels import cubins
from zenc.codegen.call_program import CODE, DATA, render_sequence
from zenc.codegen.render import UnitInputs, compression_unit
from zenc.codegen.render import render as render_unit
from zenc.errors import BuildError, Diagnostic
from zenc.gradients.index_sets import Gradients, drawn, ensure, read_gradients, unsound_tensor
from zenc.gradients.spec import DEFAULT_GRADIENT, GradientSpec, source_of
from zenc.language.files import SourceFiles, load_file, locate
from zenc.plan.ir import PhaseKind, Plan
from zenc.plan.lower import lower as lower_one
from zenc.plan.requirements import able_candidates, ensure_all, nearest_allowed
from zenc.rank_ir.lower import lower as lower_rank
from zenc.rank_ir.lower import lower_all
from zenc.rank_ir.text import ShownProgram
from zenc.scheme.compression import Fixed
from zenc.scheme.model import Choice, Encoded, Scheme
from zenc.scheme.resolve import resolve as resolve_one
from zenc.scheme.resolve import resolve_any
from zenc.verify.proof import Proof, verify_all
from zenc.verify.rounding import rounding_warnings
from zenc.wire.codes import sum_bits
from zenc.wire.constants import DTYPE_BYTES
from zenc.wire.partitioning import part_sizes

if TYPE_CHECKING:
    import torch

    from zenc.runtime.backend_api import Backend
    from zenc.runtime.communicator import Communicator
    from zenc.runtime.gpu.backend import FixedCapacity
    from zenc.simulator.sweep import Planner
    from zenc.topology.model import Topology

Parameters = Mapping[str, int | float | str]
Target: TypeAlias = Literal["cpu", "cuda", "plan"]
Architectures: TypeAlias = str | Iterable[str] | None

LARGEST_PROVED = 64
"""Ranks up to which a scheme that is simulated is proved for the very number."""

MOST_WRITTEN = 64
"""Ranks up to which the call sequences of all are written to an artifact: they grow with the square of the number."""

NO_CAPACITY = "capacity= is for GPUs; on the CPU all is counted, and it changes nothing"

USUAL_RANKS = 4
"""Ranks that are shown where nobody says how many there are; or the nearest number that the scheme allows."""


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
        """``size``, or a usual number of ranks for ``plan`` where it is None."""
        return nearest_allowed(plan, USUAL_RANKS) if self.size is None else self.size


@dataclass(frozen=True, slots=True)
class Schemes:
    """A scheme, or the candidates of a ``choice``, by name; once lowered also the plan of each."""

    schemes: Mapping[str, Scheme]
    warnings: tuple[Diagnostic, ...]
    choice: Choice | None = None
    plans: Mapping[str, Plan] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the scheme, or of the choice."""
        return self.choice.name if self.choice else next(iter(self.schemes))

    def able(self, size: int | None) -> Schemes:
        """The same without the candidates that don't run among ``size`` ranks, and with warnings about them."""
        if self.choice is None:
            return self
        able, left_out = able_candidates(self.choice, size)
        schemes = {candidate.name: candidate.scheme for candidate in able}
        return replace(self, schemes=schemes, warnings=(*self.warnings, *left_out))


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The result of ``check``: the scheme, its plan, and its proofs, one for each of ``sizes``.

    ``placement``: loads and memory on the topology that it was checked against. Of a ``choice`` the report is that of
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
        """Of the scheme, or of the choice."""
        return self.choice.name if self.choice else self.scheme.name

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of ranks that the scheme was proved for."""
        return tuple(proof.size for proof in self.proofs)

    def __repr__(self) -> str:
        without_gaps = len(self.sizes) > 2 and self.sizes == tuple(range(self.sizes[0], self.sizes[-1] + 1))
        sizes = f"{self.sizes[0]} to {self.sizes[-1]}" if without_gaps else ", ".join(map(str, self.sizes))
        return f"<zenc.Report {self.name}, proved for {sizes} ranks, {len(self.warnings)} warnings>"

    @property
    def rounds(self) -> Mapping[str, int]:
        """Rounds by kind of phase at the largest size that was proved."""
        return self.proofs[-1].rounds


def artifact(syntax: SourceFiles, request: Request, target: Target = "cpu", arch: Architectures = None) -> Artifact:
    """The artifact of ``syntax`` for ``target``.

    Raises the ZencError of the arrow that found something wrong, with all its diagnostics.
    """
    schemes = resolve(syntax, request)  # Syntax -> Scheme, or the candidates of one that chooses
    plans = lower(schemes, request)  # Scheme -> Plan
    report = verify(plans, request)  # Plan -> Proof
    rendered = render(report, target)  # Plan -> sources
    return build(rendered, arch)  # sources -> kernels, those for GPUs: C++ is built where it is loaded


def backend(
    artifact: Artifact,
    device: torch.device,
    ranks: Communicator,
    deadline: float,
    capacity: FixedCapacity | None = None,
) -> Backend:
    """This one of ``ranks`` at work on ``device``; all of them make theirs together, within ``deadline`` seconds.

    With a ``capacity`` GPUs use capacity mode. Raises BuildError, VerificationError, TargetError, SynchronisationError.
    """
    _ensure_able(artifact.plan, device.type == CUDA, ranks.size)
    if device.type == "cuda":  # the same arrows, but kernels: they are compiled in the first call that needs them
        import torch

        from zenc.runtime.gpu.backend import GpuBackend
        from zenc.runtime.gpu.device import TorchGpu

        with torch.cuda.device(device):  # kernels, events and NCCL's communicator belong to the current device
            return GpuBackend(artifact, TorchGpu(device), ranks, deadline, capacity)
    from zenc.runtime.compression.kernels import compression_kernels
    from zenc.runtime.cpu import library
    from zenc.runtime.cpu.backend import CpuBackend

    program = lower_rank(artifact.plan, ranks.size, ranks.rank)  # Plan -> RankProgram
    sources = artifact.sources if artifact.target == "cpu" else rendered_for(artifact.plan, "cpu")  # -> sources
    kernels = library.load(sources, deadline_s=deadline, scheme=artifact.plan.scheme)  # sources -> kernels
    caution = f"{artifact.name}: {NO_CAPACITY}" if capacity and ranks.rank == 0 else ""
    compression = compression_kernels() if artifact.plan.is_lossy else None
    at = artifact.plan.scheme, program, kernels, ranks.transport
    return CpuBackend(*at, deadline, caution, compression)  # kernels -> Backend


def _ensure_able(plan: Plan, on_gpus: bool, size: int | None) -> None:
    """Raise BuildError (``no-compression``) for what ``size`` ranks, or any, can't do ``on_gpus`` or CPUs yet."""
    from zenc.wire.code_parameters import MOST_SUM_BITS

    first = plan.of(PhaseKind.PUSH)[0]
    if size and isinstance(first.code, Fixed) and sum_bits(first.code, size) > MOST_SUM_BITS:
        message = f"sums of {size} values of {first.code.bits} bits have more than {MOST_SUM_BITS}, and are not exact"
        raise BuildError(Diagnostic("no-compression", message, help="use fewer bits, or fewer ranks"))
    if not on_gpus:
        return
    if isinstance(plan.mapping, Encoded):
        message = f"scheme '{plan.scheme}' is balanced by encoded, and calls on GPUs cut a tensor once for all calls"
        raise BuildError(Diagnostic("no-compression", message, help="write balance: imbalanced, or sum on CPUs"))


def resolve(syntax: SourceFiles, request: Request, alone: bool = False) -> Schemes:
    """Syntax -> Scheme. Raises SchemeError; where it is to be one ``alone``, also for one that chooses."""
    resolve_one_or_any = resolve_one if alone else resolve_any
    resolved, warnings = resolve_one_or_any(syntax, request.scheme, request.params or {}, request.levels)
    if isinstance(resolved, Choice):
        return Schemes({candidate.name: candidate.scheme for candidate in resolved.candidates}, warnings, resolved)
    return Schemes({resolved.name: resolved}, warnings)


def lower(schemes: Schemes, request: Request) -> Schemes:
    """Scheme -> Plan, for the ranks of ``request`` or for any number. Raises VerificationError."""
    able = schemes.able(request.size)
    return replace(able, plans={name: lower_one(scheme, request.size) for name, scheme in able.schemes.items()})


def verify(lowered: Schemes, request: Request, gradient: GradientSpec = DEFAULT_GRADIENT) -> Report:
    """Plan -> Proof; on a topology also its Placement. Raises VerificationError, TopologyError."""
    plans = lowered.plans
    reports = {name: prove(scheme, plans[name], request, gradient) for name, scheme in lowered.schemes.items()}
    return joined(lowered, reports)


def joined(schemes: Schemes, reports: Mapping[str, Report]) -> Report:
    """The report on ``schemes`` of those on each of them."""
    warnings = dict.fromkeys(warning for report in reports.values() for warning in report.warnings)
    first, candidates = next(iter(reports.values())), reports if schemes.choice else {}
    return replace(first, warnings=(*schemes.warnings, *warnings), choice=schemes.choice, candidates=candidates)


def prove(scheme: Scheme, plan: Plan, request: Request, gradient: GradientSpec) -> Report:
    """``verify`` of one scheme, which ``plan`` is of."""
    gains = gain_warnings(plan, scheme.span)
    if request.topology is None:
        proofs = verify_all(plan)
        return Report(scheme, plan, proofs, (*gains, *rounding_warnings(plan, proofs)))
    placement = _placed(plan, request.topology, gradient)
    warnings = (*gains, *rounding_warnings(plan, [placement.proof]), *placement.warnings)
    return Report(scheme, plan, (placement.proof,), warnings, placement)


def _placed(plan: Plan, topology: Topology, gradient: GradientSpec) -> Placement:
    return place(plan, topology, expected_bytes(plan, topology.size, gradient))


def render(report: Report, target: Target) -> Artifact:
    """Plan -> sources, of all candidates where there are some."""
    reports = report.candidates or {report.name: report}
    artifacts = {name: _rendered(one, target) for name, one in reports.items()}
    first = next(iter(artifacts.values()))
    if report.choice is None:
        return first
    choosing = Choosing(report.choice.name, report.choice.settings, artifacts)
    return replace(first, texts=report.choice.sources, choosing=choosing)


def _rendered(report: Report, target: Target) -> Artifact:
    _ensure_able(report.plan, target == CUDA, report.plan.size)
    sources = {} if target == "plan" else rendered_for(report.plan, target)
    sequences = _sequences(report.plan) if target == CUDA else {}
    return Artifact(report.plan, target, sources, report.scheme.sources, report.sizes, sequences=sequences)


def _sequences(plan: Plan) -> dict[str, str]:
    """The call sequences of all ranks, where their number is known; of very many each rank makes its own."""
    if plan.size is None or plan.size > MOST_WRITTEN:
        return {}
    programs = lower_all(plan, plan.size)
    return {name: render_sequence(programs, name) for name in (CODE, DATA)}


def rendered_for(plan: Plan, target: str) -> dict[str, str]:
    """The generated sources of ``plan``: file name -> text."""
    unit = render_unit(UnitInputs.of(plan), target)
    return {**unit, **compression_unit()} if target == CUDA and plan.is_lossy else unit


def build(artifact: Artifact, arch: Architectures = None) -> Artifact:
    """Sources -> kernels: those for GPUs, which takes none. Those for CPUs are built when loaded. Raises BuildError."""
    if artifact.target != CUDA:
        if arch is not None:
            message = f"the target {artifact.target} is not compiled for GPU architectures"
            raise BuildError(Diagnostic("unknown-arch", message, help="choose --target cuda, or leave --arch out"))
        return artifact
    architectures = arch if arch is None or isinstance(arch, str) else tuple(arch)
    built = replace(artifact, cubins=cubins(artifact.sources, architectures))
    if built.choosing is None:
        return built
    candidates = {name: build(candidate, architectures) for name, candidate in built.choosing.candidates.items()}
    return replace(built, choosing=replace(built.choosing, candidates=candidates))


def explanation(
    schemes: Schemes, request: Request, rank: int, spec: GradientSpec, indices: str | os.PathLike[str] | None
) -> Explanation:
    """The cost of a call over gradients drawn by ``spec``, or recorded in ``indices``; of a choice the cheapest."""
    recorded = None if indices is None else _recorded(indices, request.ranks)
    source = source_of(spec)
    size = request.size or (USUAL_RANKS if schemes.choice else None)
    if recorded:
        source, size = f"recorded in {indices}", recorded.size
        spec = GradientSpec(recorded.units, recorded.width, recorded.dtype, recorded.density)

    def explained(scheme: Scheme) -> Explanation:
        unpinned = lower_one(scheme)
        gradients = recorded or drawn(spec, size or request.usual_size(unpinned))
        exact = explain_plan(lower_one(scheme, gradients.size), rank, gradients, spec, source)
        placement = _placed(exact.plan, request.topology, spec) if request.topology else None
        return replace(exact, general=symbolic(unpinned, gradients.size, spec.density), placement=placement)

    candidates = {name: explained(scheme) for name, scheme in schemes.able(size).schemes.items()}
    cheapest = min(candidates.values(), key=lambda candidate: candidate.busiest_bytes)
    return replace(cheapest, choice=schemes.choice.name, candidates=candidates) if schemes.choice else cheapest


def _recorded(indices: str | os.PathLike[str], ranks: int | None) -> Gradients:
    gradients = read_gradients(indices)
    ensure([(ranks not in (None, gradients.size), f"{indices} is of {gradients.size} ranks, not of {ranks}")])
    return gradients


def shown_programs(
    schemes: Schemes, request: Request, rank: int, tensor: tuple[int, int, str]
) -> dict[str, ShownProgram]:
    """Scheme -> Plan -> RankProgram of ``rank``, by name, for a ``tensor`` of (units, width, dtype)."""
    dtype = tensor[2]
    shown = {}
    for name, scheme in schemes.able(USUAL_RANKS if request.size is None else request.size).schemes.items():
        size = request.usual_size(lower_one(scheme))
        ensure([(rank >= size, f"there is no rank {rank} among {size}"), *unsound_tensor(*tensor)])
        plan = lower_one(scheme, size)
        units, width = packed_tensor(plan, *tensor[:2])
        slots = part_sizes(plan.mapping, units, width, plan.parts(size))
        shown[name] = ShownProgram(name, lower_rank(plan, size, rank), tuple(slots), width, DTYPE_BYTES[dtype])
    return shown


def pinned(syntax: SourceFiles, request: Request) -> tuple[Plan, int]:
    """The plan of one scheme, and the number of ranks that it is for; raises SchemeError for one that chooses."""
    (scheme,) = resolve(syntax, request, alone=True).schemes.values()
    size = request.usual_size(lower_one(scheme))
    return lower_one(scheme, size), size


def planners_of(paths: Iterable[str | os.PathLike[str]], request: Request) -> dict[str, Planner]:
    """``planners`` of the schemes in ``paths``, by name; of schemes of one name, by path and name."""
    by_path = [
        (path, name, planner)
        for path in paths
        for name, planner in planners(resolve(load_file(locate(path)), request, alone=True)).items()
    ]
    names = [name for _, name, _ in by_path]
    return {name if names.count(name) == 1 else f"{path}: {name}": planner for path, name, planner in by_path}


def planners(schemes: Schemes) -> dict[str, Planner]:
    """By name, functions from a number of ranks to the proved plan of each scheme.

    Plans of up to LARGEST_PROVED ranks are proved for these, larger ones for few of them, all by the same moves.
    """
    return {name: _planner(lower_one(scheme)) for name, scheme in schemes.schemes.items()}


def _planner(unpinned: Plan) -> Planner:
    proofs_for_few: list[Proof] = []

    def plan(size: int) -> Plan:
        ensure_all(unpinned, size)
        if size <= LARGEST_PROVED:
            verify_all(unpinned, (size,))
        elif not proofs_for_few:
            proofs_for_few.extend(verify_all(unpinned))
        return unpinned

    return plan
