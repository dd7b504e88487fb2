"""The public verbs: text to an artifact, and an artifact to a collective.

Texts are parsed here, and the other arrows are those of ``zenc.pipeline``, which is imported when a text has parsed: it
takes numpy, and as long to import as a long text to read. Verbs that predict are in ``zenc.forecast``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from zenc.errors import ArtifactError, Diagnostic
from zenc.gradients.uniform import DEFAULT_GRADIENT, UniformGradient
from zenc.language.files import load_file, load_text, locate

if TYPE_CHECKING:
    import torch.distributed as dist

    from zenc.analysis.explanation import Explanation
    from zenc.codegen.artifact import Artifact
    from zenc.draw.drawing import Drawing
    from zenc.pipeline import Architectures, Parameters, Report, Target
    from zenc.rank_ir.text import ShownProgram
    from zenc.runtime.collective import Collective
    from zenc.runtime.gpu.fixed_capacity import Shares
    from zenc.scheme.library import ShippedScheme
    from zenc.simulator.calibration import Calibration
    from zenc.topology.model import Topology

Path_ = str | os.PathLike[str]


def schemes() -> list[ShippedScheme]:
    """The schemes that come with zenc, by name: dimensions, wire formats, parameters with defaults, and a summary.

    Raises InternalError ``broken-installation``.
    """
    from zenc.scheme.library import shipped

    return shipped()


def check(
    path: Path_,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    gradient: UniformGradient = DEFAULT_GRADIENT,
) -> Report:
    """Parse, resolve, lower and prove the scheme in ``path``, for ``ranks`` or for 1 to 16 ranks.

    With a ``topology`` it is proved for the ranks of this, and every move must have a way there; loads of links and
    memory are those to expect for ``gradient``.

    Raises SchemeSyntaxError, SchemeError, VerificationError or TopologyError with everything wrong at that stage.
    """
    syntax = load_file(locate(path))
    from zenc.pipeline import Request, resolve, verify

    given = Request(ranks, params, scheme, topology)
    return verify(resolve(syntax, given), given, gradient)


def compile(
    path: Path_,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    target: Target = "cpu",
    scheme: str | None = None,
    topology: Topology | None = None,
    arch: Architectures = None,
) -> Artifact:
    """Compile the scheme in ``path`` (a file, or the name of a shipped scheme).

    Args:
        path: a ``.zen`` file, or a shipped scheme's name such as ``balanced``.
        ranks: pin the artifact to this many ranks; without it, it serves any number, and is proved for 1 to 16 now
            and for the real number when it is loaded.
        params: values of the scheme's parameters.
        target: ``cpu``, ``cuda``, or ``plan`` for the plan alone.
        scheme: which one, where the file has several.
        topology: pin the artifact to the ranks of this, and demand a way there for every move.
        arch: for ``cuda``: the GPU architectures to compile kernels for now, such as ``["sm_90"]``; the usual ones
            where it is not given, and none if it is empty. No GPU is needed.

    Raises:
        ZencError: of the stage that found something wrong, with all its diagnostics.
    """
    syntax = load_file(locate(path))
    from zenc.pipeline import Request, artifact

    return artifact(syntax, Request(ranks, params, scheme, topology), target, arch)


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
    """``compile`` for a text; ``name`` is what diagnostics call it."""
    syntax = load_text(text, name)
    from zenc.pipeline import Request, artifact

    return artifact(syntax, Request(ranks, params, scheme), target, arch)


def explain(
    path: Path_,
    ranks: int | None = None,
    rank: int = 0,
    density: float = 0.01,
    units: int = 1_000_000,
    width: int = 64,
    dtype: str = "f32",
    zipf: float | None = None,
    overlap: float | None = None,
    seed: int = 0,
    indices: Path_ | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
) -> Explanation:
    """The steps and messages of ``rank``, and the bytes of all of ``ranks``: see ``zenc.analysis.explanation``.

    The gradients are drawn as ``zenc.gradients.generators`` says, or read from the file ``indices``, which then decides
    about everything else. With a ``topology`` of so many ranks, also the loads of its links. ``ranks`` are those of the
    topology where they are not given, and without one 4, or the nearest number that the scheme allows.
    """
    syntax = load_file(locate(path))
    from zenc.gradients.generators import GradientSpec
    from zenc.pipeline import Request, explanation, resolve

    given, spec = (
        Request(ranks, params, scheme, topology),
        GradientSpec(units, width, dtype, density, zipf, overlap, seed),
    )
    return explanation(resolve(syntax, given), given, rank, spec, indices)


def rank_programs(
    path: Path_,
    ranks: int | None = None,
    rank: int = 0,
    units: int = 1_000_000,
    width: int = 64,
    dtype: str = "f32",
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
) -> dict[str, ShownProgram]:
    """The programs of ranks in a call, statement by statement: ``zenc.rank_ir.ir``.

    By the name of the scheme; of a scheme that chooses, of each candidate. Bytes of messages that are known before a
    call are those of a tensor of ``units`` of ``width`` values. Raises ZencError for a rank that there is not.
    """
    syntax = load_file(locate(path))
    from zenc.pipeline import Request, resolve, shown_programs

    given = Request(ranks, params, scheme, topology)
    return shown_programs(resolve(syntax, given), given, rank, (units, width, dtype))


def draw(
    path: Path_,
    ranks: int | None = None,
    *,
    phase: str | None = None,
    steps: tuple[int, int | None] = (1, None),
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    gradient: UniformGradient = DEFAULT_GRADIENT,
) -> Drawing:
    """The scheme in ``path`` among ``ranks`` ranks as a picture: who sends what to whom, and who holds what after.

    Args:
        path: a ``.zen`` file, or the name of a shipped scheme.
        ranks: at most 256, above 16 as a matrix; default: those of the topology, or 4, or the nearest number that
            the scheme allows.
        phase: ``push`` or ``pull``, or ``announce`` under ``balanced by holders``; without it, all.
        steps: the first and the last step of each phase, from 1; None is the last there is.
        params: values of the scheme's parameters.
        scheme: which one, where the file has several.
        topology: of ``ranks`` ranks; arrows get the colour of the load that ``gradient`` puts on its links.
        gradient: the one that loads are expected for.

    Raises:
        ZencError: DrawingError for more than can be drawn, and what ``check`` raises.
    """
    syntax = load_file(locate(path))
    from zenc.draw.drawing import picture_of
    from zenc.draw.steps import StepRange
    from zenc.pipeline import Request, pinned

    plan, size = pinned(syntax, Request(ranks, params, scheme, topology))
    return picture_of(plan, size, StepRange(phase, *steps), topology, gradient)


def load(
    what: Artifact | Path_,
    group: dist.ProcessGroup | None = None,
    *,
    params: Parameters | None = None,
    deadline: float | None = None,
    capacity: Shares | None = None,
) -> Collective:
    """Make a compiled scheme ready to run on a process group. All ranks of the group call this together.

    Args:
        what: an artifact, the directory of a saved one, or a ``.zen`` file (compiled for the size of the group).
        group: the ranks that take part; default: all. Any backend: zenc makes a gloo group of its own over them.
        params: values of the scheme's parameters, where it is compiled here.
        deadline: seconds that any single wait may take; default: ZENC_DEADLINE_S, or the timeout of ``group``.
        capacity: on GPUs, make room for so many units instead of counting them first: the greatest density of any
            rank's gradient, or a pair of that and of the sum's, each in any part. The host then waits once a call, and
            calls can be captured in CUDA graphs; messages have room for all that there may be. Where there is not
            room a call is made again without, on all ranks. Calls on the CPU do without, and rank 0 says so once.

    Raises:
        ZencError: this rank's own scheme, artifact, compiler, cache or capacity is at fault.
        SynchronisationError: another rank failed, holds another scheme, or did not come.
    """
    from zenc.runtime.deadline import deadline_of
    from zenc.runtime.load import load_collective

    return load_collective(lambda size: _obtained(what, size, params), group, deadline_of(deadline, group), capacity)


def calibrate(
    report: Callable[[str], None] = lambda _: None,
    group: dist.ProcessGroup | None = None,
    *,
    link: float | None = None,
    name: str = "measured",
) -> Calibration:
    """Measure what ``zenc.simulator.predict`` needs to know of the cluster of ``group``, all ranks of which call this.

    Args:
        report: is told what is measured next.
        group: the ranks that take part; default: all.
        link: what the links are said to carry, in bytes a second; then the efficiency is measured against it.
        name: of the calibration.

    Raises:
        SynchronisationError: the group has one rank (``too-few-ranks``), or what ``load`` raises.
    """
    import torch.distributed as dist

    from zenc.calibrate.latency_fit import RING
    from zenc.calibrate.network import calibrate
    from zenc.runtime.cpu import library

    ranks = dist.get_world_size(group)
    balanced, holders = compile("balanced", ranks=ranks), compile("holders", ranks=ranks)
    one_step, many_steps = compile("agsparse", ranks=ranks), compile_text(RING, ranks=ranks)
    calls = [load(each, group) for each in (one_step, balanced, many_steps)]
    mixed, by_holders = (library.load(one.sources, scheme=one.name) for one in (balanced, holders))
    return calibrate(group, calls, mixed, by_holders, report, link, name)


def _obtained(what: Artifact | Path_, size: int, params: Parameters | None) -> Artifact:
    """The artifact that ``what`` stands for, fit for ``size`` ranks."""
    from zenc.codegen.artifact import Artifact, load_artifact

    if isinstance(what, Artifact):
        artifact = what
    elif os.path.isdir(what):
        artifact = load_artifact(what)
    else:
        return compile(what, ranks=size, params=params)
    if params:
        message = f"{artifact.name} was compiled with values for its parameters, and is given others"
        raise ArtifactError(Diagnostic("compiled-parameters", message, help="compile it with these: params="))
    artifact.ensure_size(size)
    _ensure_own_code(artifact)
    return artifact


def _ensure_own_code(artifact: Artifact) -> None:
    """An artifact is data: the code that runs is what this zenc generates from its plan, and nothing else."""
    from zenc.pipeline import rendered

    if artifact.target == "plan":
        message = f"{artifact.plan.scheme} was compiled to a plan only, which can't be run"
        raise ArtifactError(Diagnostic("artifact-without-code", message, help="compile it with --target cpu"))
    for candidate in artifact.choosing.candidates.values() if artifact.choosing else ():
        _ensure_own_code(candidate)
    if artifact.sources != rendered(artifact.plan, artifact.target):
        message = f"the code of {artifact.plan.scheme} is not what zenc generates from its plan"
        raise ArtifactError(Diagnostic("artifact-damaged", message, help="compile the scheme again"))
