"""The pipeline: each arrow is a function from one immutable value to the next.

text --parse--> Syntax --resolve--> Scheme --lower--> Plan --verify--> Proof --render--> sources --build--> Artifact
Artifact --program--> RankProgram --render--> sources --build--> kernels --load--> Backend

A scheme has a meaning for every name; a plan is its moves between ranks; a proof has the numbers of ranks for which the
plan sums everything exactly once; an artifact is a plan with generated sources; a backend runs it on one device.
``artifact`` has the arrows of the first line but for parse: an error in the text is reported without numpy, which all
others need. ``backend`` has those of the second, for one rank. ``request`` has the values that arrows pass on,
``shown`` those that end elsewhere; ``zenc.strategy.pipeline`` goes along all of them for each rule of a strategy,
``zenc.averaging.pipeline`` for each group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from zenc.analysis.plan_warnings import gain_warnings, rounding_warnings
from zenc.codegen.artifact import Artifact, Choosing
from zenc.codegen.build.gpu_kernels import TARGET as CUDA
from zenc.codegen.build.gpu_kernels import cubins
from zenc.codegen.call_program import CODE, DATA, render_sequence
from zenc.codegen.render import rendered_for
from zenc.errors import BuildError, Diagnostic
from zenc.gradients.spec import DEFAULT_GRADIENT, GradientSpec
from zenc.language.files import SourceFiles
from zenc.pipeline.request import Architectures, Report, Request, Schemes, Target
from zenc.plan.ir import PhaseKind, Plan
from zenc.rank_ir.halves import lower_part
from zenc.rank_ir.lower import lower as lower_rank
from zenc.rank_ir.lower import lower_all
from zenc.scheme.compression import Fixed, Rounded, Rounding
from zenc.scheme.model import MOST_CUT, Choice, Contiguous, Scheme
from zenc.scheme.resolve import resolve as resolve_one
from zenc.scheme.resolve import resolve_any
from zenc.verify.proof import verify_all
from zenc.wire.codes import MOST_SUM_BITS, sum_bits
from zenc.wire.formats import format_costs

if TYPE_CHECKING:
    import torch

    from zenc.analysis.placement import Placement
    from zenc.runtime.backend_api import Backend
    from zenc.runtime.cpu.ownership import HolderKernels
    from zenc.runtime.gpu.capacity import Capacity
    from zenc.runtime.group.communicator import Communicator
    from zenc.topology.model import Topology

MOST_WRITTEN = 64
"""Most ranks for which the call sequences of all are written to an artifact: they grow with the square of the number.
"""

AUTO = "schemes/auto.zen"
"""The text that is given trees as a candidate, as ``zenc.language.files`` names it."""

NO_CAPACITY = "capacity= is for GPUs; on the CPU all is counted, and it changes nothing"


def artifact(syntax: SourceFiles, request: Request, target: Target = "cpu", arch: Architectures = None) -> Artifact:
    """Return the artifact of ``syntax`` for ``target``.

    Raises the ZencError of the arrow that found something wrong, with all its diagnostics.
    """
    schemes = resolve(syntax, request)  # Syntax -> Scheme, or the candidates of one that chooses
    plans = lower(schemes, request)  # Scheme -> Plan
    report = verify(plans, request)  # Plan -> Proof
    rendered = render(report, target)  # Plan -> sources
    return build(rendered, arch)  # sources -> kernels, those for GPUs: C++ is built where it is loaded


def artifact_of_plan(plan: Plan, target: Target = "cpu", arch: Architectures = None) -> Artifact:
    """Return the artifact of a plan that has no text, pinned to a number of ranks; raises as ``artifact`` does."""
    _ensure_able(plan, plan.size, target)
    proved = tuple(proof.size for proof in verify_all(plan))  # Plan -> Proof
    sources = {} if target == "plan" else rendered_for(plan, target)  # Plan -> sources
    sequences = _sequences(plan) if target == CUDA else {}
    return build(Artifact(plan, target, sources, (), proved, sequences=sequences), arch)


def backend(
    artifact: Artifact,
    device: torch.device,
    ranks: Communicator,
    deadline: float,
    capacity: Capacity | None = None,
    shared_memory: bool = True,
) -> Backend:
    """Return the backend of this one of ``ranks`` on ``device``; all make theirs together, within ``deadline`` seconds.

    With a ``capacity`` GPUs use capacity mode; without ``shared_memory`` CPUs exchange over the wire.
    Raises BuildError, VerificationError, TargetError, SynchronisationError.
    """
    _ensure_able(artifact.plan, ranks.size, device.type)
    if device.type == "cuda":  # the same arrows, but kernels: they are compiled in the first call that needs them
        import torch

        from zenc.runtime.gpu.backend import GpuBackend
        from zenc.runtime.gpu.device import TorchGpu

        with torch.cuda.device(device):  # kernels, events and NCCL's communicator belong to the current device
            return GpuBackend(artifact, TorchGpu(device), ranks, deadline, capacity)
    from zenc.runtime.cpu import library
    from zenc.runtime.cpu.backend import CpuBackend
    from zenc.runtime.gpu.capacity import FixedCapacity

    program = lower_rank(artifact.plan, ranks.size, ranks.rank)  # Plan -> RankProgram
    sources = artifact.sources if artifact.target == "cpu" else rendered_for(artifact.plan, "cpu")  # -> sources
    mapping, scheme = artifact.plan.mapping, artifact.plan.scheme
    kernels = library.load(sources, mapping, deadline_s=deadline, scheme=scheme)  # sources -> kernels
    caution = f"{artifact.name}: {NO_CAPACITY}" if isinstance(capacity, FixedCapacity) and ranks.rank == 0 else ""
    compression = None
    if artifact.plan.is_lossy or artifact.plan.feedback is not None:
        from zenc.runtime.lossy.kernels import compression_kernels

        compression = compression_kernels()
    costs = format_costs(artifact.plan.link)
    at = artifact.plan.scheme, program, kernels, ranks.transport if shared_memory else ranks.wire
    part_of = partial(lower_part, artifact.plan, ranks.size, ranks.rank)
    ordered = isinstance(artifact.plan.mapping, Contiguous)
    holding = _owners_kernels(artifact.plan, deadline) if artifact.plan.across else None
    return CpuBackend(*at, deadline, caution, compression, part_of, ordered, holding, costs)  # kernels -> Backend


def _owners_kernels(plan: Plan, deadline: float) -> HolderKernels:
    """Return kernels that choose owners in the outermost tier: compiled for that alone, the same for all by holders."""
    from zenc.runtime.cpu import library
    from zenc.runtime.cpu.ownership import HolderKernels

    sources, mapping = rendered_for(plan.outside, "cpu"), plan.outside.mapping
    return HolderKernels(library.load(sources, mapping, deadline_s=deadline, scheme=plan.scheme).path)


def _ensure_able(plan: Plan, size: int | None, target: str) -> None:
    """Raise BuildError where ``target`` can't run ``plan`` among ``size`` ranks, or any number.

    The id is ``no-compression`` where sums of the ranks have too many bits; ``owners-in-a-tier`` for GPUs, also where
    the units of an owner are cut.
    """
    cut = plan.tiers[-1].cut if plan.announces else 1
    if cut > 1 and (target == CUDA or (size or 1) * cut > MOST_CUT):
        message = f"{plan.scheme} cuts what each rank owns in {cut}, which CPUs alone do, in {MOST_CUT:,} parts at most"
        help = "write partition: parallelism, or fewer parts; or sum the tensor on the CPU"
        raise BuildError(Diagnostic("owners-in-a-tier", message, plan.tiers[-1].span, help=help))
    if plan.across is not None and target == CUDA:
        message = f"the outermost tier of {plan.scheme} is balanced by holders, which GPUs do among all ranks only"
        help = "put a scheme with another balance outermost, such as 'balanced'; or sum the tensor on the CPU"
        raise BuildError(Diagnostic("owners-in-a-tier", message, plan.tiers[-1].span, help=help))
    first = plan.of(PhaseKind.PUSH)[0]
    if size and isinstance(first.code, Fixed) and sum_bits(first.code, size) > MOST_SUM_BITS:
        message = f"sums of {size} values of {first.code.bits} bits have more than {MOST_SUM_BITS}, and are not exact"
        raise BuildError(Diagnostic("no-compression", message, help="use fewer bits, or fewer ranks"))


def resolve(syntax: SourceFiles, request: Request, alone: bool = False) -> Schemes:
    """Resolve the syntax to schemes; raises SchemeError, also for one that chooses where it is to be one ``alone``.

    On a topology ``auto`` has a candidate that is synthesized for it.
    """
    resolve_one_or_any = resolve_one if alone else resolve_any
    resolved, warnings = resolve_one_or_any(syntax, request.scheme, request.params or {}, request.levels)
    if isinstance(resolved, Choice):
        if request.topology and syntax.main.source.name == AUTO:
            from zenc.select.candidates import with_trees

            resolved = with_trees(resolved, request.topology)
        return Schemes({candidate.name: candidate.scheme for candidate in resolved.candidates}, warnings, resolved)
    return Schemes({resolved.name: resolved}, warnings)


def lower(schemes: Schemes, request: Request) -> Schemes:
    """Lower the schemes to plans, for the ranks of ``request`` or for any number; raises VerificationError."""
    able = schemes.able(request.size)
    return replace(able, plans={name: request.plan_of(scheme, request.size) for name, scheme in able.schemes.items()})


def verify(lowered: Schemes, request: Request, gradient: GradientSpec = DEFAULT_GRADIENT) -> Report:
    """Prove the plans; on a topology also place them. Raises VerificationError, TopologyError."""
    plans = lowered.plans
    reports = {name: prove(scheme, plans[name], request, gradient) for name, scheme in lowered.schemes.items()}
    return joined(lowered, reports)


def joined(schemes: Schemes, reports: Mapping[str, Report]) -> Report:
    """Return the report on ``schemes`` from those on each of them."""
    warnings = dict.fromkeys(warning for report in reports.values() for warning in report.warnings)
    first, candidates = next(iter(reports.values())), reports if schemes.choice else {}
    return replace(first, warnings=(*schemes.warnings, *warnings), choice=schemes.choice, candidates=candidates)


def prove(scheme: Scheme, plan: Plan, request: Request, gradient: GradientSpec) -> Report:
    """Verify one scheme, whose plan is ``plan``, as ``verify`` does."""
    gains = gain_warnings(plan, scheme.span)
    if isinstance(plan.feedback, Rounding):
        verify_all(plan.rounded(Rounded("bf16")))  # the same moves, of values that are rounded where they are sent
    if request.topology is None:
        proofs = verify_all(plan)
        return Report(scheme, plan, proofs, (*gains, *rounding_warnings(plan, proofs)))
    placement = placed(plan, request.topology, gradient)
    warnings = (*gains, *rounding_warnings(plan, [placement.proof]), *placement.warnings)
    return Report(scheme, plan, (placement.proof,), warnings, placement)


def placed(plan: Plan, topology: Topology, gradient: GradientSpec) -> Placement:
    """Return the loads and the memory of ``plan`` on ``topology``, with gradients like ``gradient``."""
    from zenc.analysis.expected_bytes import expected_bytes
    from zenc.analysis.fit import ensure_fits
    from zenc.analysis.placement import place

    ensure_fits(plan, topology)  # bytes are to be expected only of ranks that fill the tiers
    return place(plan, topology, expected_bytes(plan, topology.size, gradient, topology.has_gpus))


def render(report: Report, target: Target) -> Artifact:
    """Render the plan to sources, with all candidates of a choice."""
    artifacts = {name: _rendered(one, target) for name, one in report.each.items()}
    first = next(iter(artifacts.values()))
    if report.choice is None:
        return first
    choosing = Choosing(report.choice.name, report.choice.settings, artifacts)
    return replace(first, texts=report.choice.sources, choosing=choosing)


def _rendered(report: Report, target: Target) -> Artifact:
    _ensure_able(report.plan, report.plan.size, target)
    sources = {} if target == "plan" else rendered_for(report.plan, target)
    sequences = _sequences(report.plan.gathering) if target == CUDA else {}
    return Artifact(report.plan, target, sources, report.scheme.sources, report.sizes, sequences=sequences)


def _sequences(plan: Plan) -> dict[str, str]:
    """Return the call sequences of all ranks, where their number is known; of very many, each rank makes its own."""
    if plan.size is None or plan.size > MOST_WRITTEN:
        return {}
    programs = lower_all(plan, plan.size)
    return {name: render_sequence(programs, name) for name in (CODE, DATA)}


def build(artifact: Artifact, arch: Architectures = None) -> Artifact:
    """Build the kernels for GPUs, without needing one; those for CPUs are built when loaded. Raises BuildError."""
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
