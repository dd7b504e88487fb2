"""Public functions: ``compile`` a scheme's text to an artifact, ``load`` an artifact as a collective, and their kin.

A scheme says how ranks sum a sparse tensor; an artifact is a compiled one, with its plan and generated sources; a
collective is an artifact on a process group, ready to sum. Texts are parsed here. The later stages are functions of
``zenc.pipeline``, which is imported when a text has parsed: it needs numpy, and takes as long to import as a long text
to read. A Request has the arguments that all stages share. Functions that predict are in ``zenc.forecast``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from zenc.errors import ArtifactError, Diagnostic
from zenc.gradients.spec import DEFAULT_GRADIENT, GradientSpec
from zenc.language.files import SourceFiles, load_file, load_text, locate

if TYPE_CHECKING:
    import torch.distributed as dist

    from zenc.analysis.explanation import Explanation
    from zenc.codegen.artifact import Artifact
    from zenc.draw.scheme import Drawing
    from zenc.pipeline.request import Architectures, Parameters, Report, Request, Target
    from zenc.rank_ir.text import ShownProgram
    from zenc.runtime.collective import Collective
    from zenc.runtime.gpu.capacity import Shares
    from zenc.scheme.library import ShippedScheme
    from zenc.simulator.calibration import Calibration
    from zenc.topology.model import Topology

AnyPath = str | os.PathLike[str]


def asked(
    path: AnyPath,
    ranks: int | None,
    params: Parameters | None,
    scheme: str | None,
    topology: Topology | None,
    link: float | str | None = None,
) -> tuple[SourceFiles, Request]:
    """Return the parsed text of a file or a shipped scheme, and the request of the arguments of all functions.

    Raises SchemeSyntaxError, or SchemeError for a file that can't be read, before numpy is imported.
    """
    syntax = load_file(locate(path))
    from zenc.pipeline.request import Request

    return syntax, Request(ranks, params, scheme, topology, link)


def schemes() -> list[ShippedScheme]:
    """Return the schemes that come with zenc, by name: dimensions, wire formats, parameters and a summary.

    Raises InternalError ``broken-installation``.
    """
    from zenc.scheme.library import shipped

    return shipped()


def check(
    path: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    gradient: GradientSpec = DEFAULT_GRADIENT,
) -> Report:
    """Parse, resolve, lower and prove the scheme in ``path``, for ``ranks`` or for 1 to 16 ranks.

    With a ``topology`` it is proved for the ranks of this, and every move must have a route over its links; the report
    then has the loads of links and the memory to expect for ``gradient``.

    Raises SchemeSyntaxError, SchemeError, VerificationError or TopologyError with everything wrong at that stage.
    """
    syntax, request = asked(path, ranks, params, scheme, topology)
    from zenc.pipeline import lower, resolve, verify

    return verify(lower(resolve(syntax, request), request), request, gradient)


def compile(
    path: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    target: Target = "cpu",
    scheme: str | None = None,
    topology: Topology | None = None,
    arch: Architectures = None,
    link: float | str | None = None,
) -> Artifact:
    """Compile the scheme in ``path`` (a file, or the name of a shipped scheme).

    Args:
        path: a ``.zen`` file, or a shipped scheme's name such as ``balanced``.
        ranks: pin the artifact to this many ranks; without it, it serves any number, and is proved for 1 to 16 now
            and for the real number when it is loaded.
        params: values of the scheme's parameters.
        target: ``cpu``, ``cuda``, or ``plan`` for the plan alone.
        scheme: which one, where the file has several.
        topology: pin the artifact to the ranks of this, and demand a route over its links for every move.
        arch: for ``cuda``: the GPU architectures to compile kernels for now, such as ``["sm_90"]``; the usual ones
            where it is not given, and none if it is empty. No GPU is needed.
        link: the bandwidth between ranks, in bytes a second or as ``'400 Gbit/s'``: where the format is ``auto`` it is
            then the one that takes least time, links and kernels together, and otherwise the one with fewest bytes.

    Raises:
        ZencError: of the stage that found something wrong, with all its diagnostics.
    """
    syntax, request = asked(path, ranks, params, scheme, topology, link)
    from zenc.pipeline import artifact

    return artifact(syntax, request, target, arch)


def compile_text(
    text: str,
    *,
    name: str = "<text>",
    ranks: int | None = None,
    params: Parameters | None = None,
    target: Target = "cpu",
    scheme: str | None = None,
    arch: Architectures = None,
) -> Artifact:
    """Compile a text as ``compile`` does a file; ``name`` is its name in diagnostics."""
    syntax = load_text(text, name)
    from zenc.pipeline import artifact
    from zenc.pipeline.request import Request

    return artifact(syntax, Request(ranks, params, scheme), target, arch)


def explain(
    path: AnyPath,
    ranks: int | None = None,
    rank: int = 0,
    density: float = 0.01,
    units: int = 1_000_000,
    width: int = 64,
    dtype: str = "f32",
    zipf: float | None = None,
    overlap: float | None = None,
    seed: int = 0,
    indices: AnyPath | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    link: float | str | None = None,
) -> Explanation:
    """Return the steps and messages of ``rank``, and the bytes of all ranks in a call.

    Args:
        path: a ``.zen`` file, or the name of a shipped scheme.
        ranks: default: those of the topology, or 4, or the nearest number that the scheme allows.
        rank: the one whose steps are shown.
        density: share of the units that each rank's gradient holds.
        units: rows of the tensor.
        width: values in a row.
        dtype: ``f32``, ``f64``, ``f16`` or ``bf16``.
        zipf: exponent of the law by which ranks hold units; without it they hold them at random.
        overlap: share of one rank's units that another holds, on average.
        seed: of the random choice of units.
        indices: a file of recorded gradients, instead of those that the six arguments before it describe.
        params: values of the scheme's parameters.
        scheme: which one, where the file has several.
        topology: of as many ranks; the loads of its links are shown, too.
        link: as ``compile`` takes it; kernels are those of GPUs where the topology has some.

    Raises ZencError for what ``check`` raises, and ``bad-load`` for a gradient or a rank that can't be.
    """
    syntax, request = asked(path, ranks, params, scheme, topology, link)
    from zenc.gradients.spec import GradientSpec
    from zenc.pipeline import resolve
    from zenc.pipeline.shown import explanation

    gradients = GradientSpec(units, width, dtype, density, zipf, overlap, seed)
    return explanation(resolve(syntax, request), request, rank, gradients, indices)


def rank_programs(
    path: AnyPath,
    ranks: int | None = None,
    rank: int = 0,
    units: int = 1_000_000,
    width: int = 64,
    dtype: str = "f32",
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
) -> dict[str, ShownProgram]:
    """Return the program of ``rank`` in a call, statement by statement (``zenc.rank_ir.ir``), by the scheme's name.

    A scheme that chooses among others has the program of each candidate. Bytes of messages that are known before a
    call are those of a tensor of ``units`` of ``width`` values. Raises ZencError for a rank that does not exist.
    """
    syntax, request = asked(path, ranks, params, scheme, topology)
    from zenc.pipeline import resolve
    from zenc.pipeline.shown import shown_programs

    return shown_programs(resolve(syntax, request), request, rank, (units, width, dtype))


def draw(
    path: AnyPath,
    ranks: int | None = None,
    *,
    phase: str | None = None,
    steps: tuple[int, int | None] = (1, None),
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    gradient: GradientSpec = DEFAULT_GRADIENT,
) -> Drawing:
    """Draw the scheme in ``path`` among ``ranks`` ranks: its sends, and the pieces that ranks hold after them.

    Args:
        path: a ``.zen`` file, or the name of a shipped scheme.
        ranks: at most 256, above 16 as a matrix; default: those of the topology, or 4, or the nearest number that
            the scheme allows.
        phase: ``push`` or ``pull``, or ``announce`` under ``balanced by holders``; without it, all.
        steps: the first and the last step of each phase, from 1; None is the very last one.
        params: values of the scheme's parameters.
        scheme: which one, where the file has several.
        topology: one of ``ranks`` ranks; arrows get the colour of the load that ``gradient`` puts on its links.
        gradient: the one that loads are expected for.

    Raises:
        ZencError: DrawingError for more than can be drawn, and as ``check`` does.
    """
    syntax, request = asked(path, ranks, params, scheme, topology)
    from zenc.draw.scheme import picture_of
    from zenc.draw.shown import StepRange
    from zenc.pipeline.shown import pinned

    plan, size = pinned(syntax, request, gradient)
    return picture_of(plan, size, StepRange(phase, *steps), topology, gradient)


def load(
    what: Artifact | AnyPath,
    group: dist.ProcessGroup | None = None,
    *,
    params: Parameters | None = None,
    deadline: float | None = None,
    capacity: Shares | None = None,
    shared_memory: bool = True,
    link: float | str | None = None,
) -> Collective:
    """Make a compiled scheme ready to run on a process group. All ranks of the group call this together.

    Args:
        what: an artifact, the directory of a saved one, or a ``.zen`` file (compiled for the size of the group).
        group: the ranks that take part; default: all. Any backend: zenc makes a gloo group of its own over them.
        params: values of the scheme's parameters, where it is compiled here.
        deadline: seconds that any single wait may take; default: ZENC_DEADLINE_S, or the timeout of ``group``.
        capacity: on GPUs, make room for a number of units instead of counting them first: the greatest density of any
            rank's gradient, or a pair of that and of the sum's, each in any part. The host then waits once a call, and
            calls can be captured in CUDA graphs; messages have room for all possible units. Where the room is too small
            a call is made again without it, on all ranks. Calls on the CPU do without, and rank 0 says so once.
        link: as ``compile`` takes it, where it is compiled here.
        shared_memory: ranks of one host exchange gradients in host memory through memory that they share. False: over
            the wire, as with ranks of other hosts. The same on all ranks; ZENC_SHARED_MEMORY=0 does it for a process.

    Raises:
        ZencError: this rank's own scheme, artifact, compiler, cache or capacity is at fault.
        SynchronisationError: another rank failed, holds another scheme, or did not come.
    """
    from zenc.pipeline import backend
    from zenc.runtime.load import load_collective

    def obtain(size: int) -> Artifact:
        return artifact_for(size, what, params, link)

    return load_collective(obtain, backend, group, deadline, capacity, shared_memory=shared_memory)


def artifact_for(
    size: int, what: Artifact | AnyPath, params: Parameters | None, link: float | str | None = None
) -> Artifact:
    """Return the artifact for ``size`` ranks: ``what`` itself, read from that directory, or compiled from that file."""
    from zenc.codegen.artifact import Artifact, load_artifact

    if isinstance(what, Artifact):
        artifact = what
    elif os.path.isdir(locate(what)):
        artifact = load_artifact(what)
    else:
        return compile(what, ranks=size, params=params, link=link)
    if params or link is not None:
        message = f"{artifact.name} was compiled with its parameters and link, and is given others"
        raise ArtifactError(Diagnostic("compiled-parameters", message, help="compile it with these: params=, link="))
    artifact.ensure_size(size)
    _ensure_own_code(artifact)
    return artifact


def _ensure_own_code(artifact: Artifact) -> None:
    """Raise unless the artifact's code is what this zenc generates from its plan: an artifact is data."""
    from zenc.pipeline import rendered_for

    if artifact.target == "plan":
        message = f"{artifact.plan.scheme} was compiled to a plan only, which can't be run"
        raise ArtifactError(Diagnostic("artifact-without-code", message, help="compile it with --target cpu"))
    for candidate in artifact.choosing.candidates.values() if artifact.choosing else ():
        _ensure_own_code(candidate)
    if artifact.sources != rendered_for(artifact.plan, artifact.target):
        message = f"the code of {artifact.plan.scheme} is not what zenc generates from its plan"
        raise ArtifactError(Diagnostic("artifact-damaged", message, help="compile the scheme again"))


def calibrate(
    report: Callable[[str], None] = lambda _: None,
    group: dist.ProcessGroup | None = None,
    *,
    link: float | None = None,
    name: str = "measured",
) -> Calibration:
    """Measure network and kernels of the cluster of ``group``, for predictions; all its ranks call this together.

    Args:
        report: called with the name of the next measurement.
        group: the ranks that take part; default: all.
        link: nominal bandwidth of the links, in bytes a second; then the efficiency is measured against it.
        name: that of the calibration.

    Raises:
        SynchronisationError: the group has one rank (``too-few-ranks``), or as ``load`` does.
    """
    import torch.distributed as dist

    from zenc.calibrate.network import RING, calibrate
    from zenc.runtime.cpu import library

    ranks = dist.get_world_size(group)
    balanced, holders = compile("balanced", ranks=ranks), compile("holders", ranks=ranks)
    one_step, many_steps = compile("agsparse", ranks=ranks), compile_text(RING, ranks=ranks)
    collectives = [load(artifact, group) for artifact in (one_step, balanced, many_steps)]
    kernels, by_holders = (
        library.load(artifact.sources, artifact.plan.mapping, scheme=artifact.name) for artifact in (balanced, holders)
    )
    return calibrate(group, collectives, kernels, by_holders, report, link, name)
