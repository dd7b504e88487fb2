"""Public functions: ``compile`` a scheme's text to an artifact, ``load`` an artifact as a collective, and their kin.

A scheme says how ranks sum a sparse tensor; an artifact is a compiled one, with its plan and generated sources; a
collective is an artifact on a process group, ready to sum. Texts are parsed here. The later stages are functions of
``zenc.pipeline``, which is imported when a text has parsed: it needs numpy, and takes as long to import as a long text
to read. A Request has the arguments that all stages share. Functions that predict are in ``zenc.forecast``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypedDict

from zenc.common.arguments import names_wrong_types
from zenc.errors import ArtifactError, Diagnostic, SchemeError
from zenc.gradients.spec import DEFAULT_GRADIENT, GradientSpec
from zenc.language.files import SourceFiles, load_text, locate, read_program

if TYPE_CHECKING:
    import torch.distributed as dist
    from typing_extensions import Self, Unpack

    from zenc.analysis.explanation import Explanation
    from zenc.codegen.artifact import Artifact
    from zenc.draw.scheme import Drawing
    from zenc.pipeline.request import Architectures, Parameters, Report, Request, Target
    from zenc.rank_ir.text import ShownProgram
    from zenc.runtime.call.collective import Collective
    from zenc.runtime.gpu.capacity import Shares
    from zenc.scheme.library import ShippedScheme
    from zenc.simulator.calibration import Calibration
    from zenc.topology.model import Topology

AnyPath = str | os.PathLike[str]


class Asked(TypedDict, total=False):
    """The arguments of ``zenc.open`` but for the text, for all functions that take them, too."""

    ranks: int | None
    params: Parameters | None
    scheme: str | None
    topology: Topology | None
    link: float | str | None


def asked(what: AnyPath, **given: Unpack[Asked]) -> tuple[SourceFiles, Request]:
    """Return the parsed text of a file or of what comes with zenc, or a text itself, and the request of all arguments.

    Raises SchemeSyntaxError, or SchemeError for a file that can't be read, before numpy is imported.
    """
    syntax = read_program(what)
    from zenc.pipeline.request import Request

    return syntax, Request(**given)


@dataclass(frozen=True, slots=True, repr=False)
class OpenedText:
    """A parsed text with the request ``asked`` of it: a base of all kinds that ``zenc.open`` returns."""

    kind: ClassVar[str]
    syntax: SourceFiles
    asked: Request

    def __repr__(self) -> str:
        return f"<zenc.{type(self).__name__} {self.syntax.main.source.name}>"

    def lacks(self, verb: str, help: str) -> SchemeError:
        """Return the error of a kind that can't be asked for ``verb``."""
        message = f"{self.syntax.main.source.name} is about its {self.kind}, which has no '{verb}'"
        return SchemeError(Diagnostic("wrong-kind", message, help=help))

    def without_link(self) -> Self:
        """Return this text; raise SchemeError (``wrong-kind``) if it has a link, as only schemes may."""
        if self.asked.link is not None:
            raise self.lacks("link", "name one of its schemes, or leave the link out")
        return self

    def at(self, size: int) -> Self:
        """Return the text asked for ``size`` ranks."""
        return replace(self, asked=replace(self.asked, ranks=size))


class SchemeText(OpenedText):
    """A text about a scheme, as ``zenc.open`` returns it: how ranks sum a tensor."""

    kind: ClassVar[Literal["scheme"]] = "scheme"

    def check(self, gradient: GradientSpec = DEFAULT_GRADIENT) -> Report:
        """Resolve, lower and prove the scheme, for its ranks or for 1 to 16 ranks.

        With a topology it is proved for the ranks of this, and every move must have a route over its links; the report
        then has the loads of links and the memory to expect for ``gradient``.

        Raises SchemeError, VerificationError or TopologyError with everything wrong at that stage.
        """
        from zenc.pipeline import lower, resolve, verify

        return verify(lower(resolve(self.syntax, self.asked), self.asked), self.asked, gradient)

    def compile(self, target: Target = "cpu", arch: Architectures = None) -> Artifact:
        """Compile the scheme: for its ranks, or for any number, and then proved for 1 to 16 now, and again when loaded.

        Args:
            target: ``cpu``, ``cuda``, or ``plan`` for the plan alone.
            arch: for ``cuda``: the GPU architectures to compile kernels for now, such as ``["sm_90"]``; the usual ones
                where it is not given, and none if it is empty. No GPU is needed.

        Raises ZencError of the stage that found something wrong, with all its diagnostics.
        """
        from zenc.pipeline import artifact

        return artifact(self.syntax, self.asked, target, arch)

    def explain(
        self, rank: int = 0, gradient: GradientSpec = DEFAULT_GRADIENT, indices: AnyPath | None = None
    ) -> Explanation:
        """Return the steps and messages of ``rank``, and the bytes of all ranks in a call.

        It is among the ranks asked for, or 4, or the nearest number that the scheme allows; with a topology the loads
        of its links are shown, too. ``indices`` is a file of recorded gradients, instead of those like ``gradient``.

        Raises ZencError for what ``check`` raises, and ``bad-load`` for a gradient or a rank that can't be.
        """
        from zenc.pipeline import resolve
        from zenc.pipeline.shown import explanation

        return explanation(resolve(self.syntax, self.asked), self.asked, rank, gradient, indices)

    def programs(
        self, rank: int = 0, units: int = 1_000_000, width: int = 64, dtype: str = "f32"
    ) -> dict[str, ShownProgram]:
        """Return the program of ``rank`` in a call, statement by statement (``zenc.rank_ir.ir``), by the scheme's name.

        A scheme that chooses among others has the program of each candidate. Bytes of messages that are known before a
        call are those of a tensor of ``units`` of ``width`` values. Raises ZencError for a rank that does not exist.
        """
        from zenc.pipeline import resolve
        from zenc.pipeline.shown import shown_programs

        return shown_programs(resolve(self.syntax, self.asked), self.asked, rank, (units, width, dtype))

    def draw(
        self,
        *,
        phase: str | None = None,
        steps: tuple[int, int | None] = (1, None),
        gradient: GradientSpec = DEFAULT_GRADIENT,
    ) -> Drawing:
        """Draw the scheme: its sends, and the pieces that ranks hold after them.

        It is among at most 256 ranks, above 16 as a matrix; default: those of the topology, or 4, or the nearest number
        that the scheme allows.

        Args:
            phase: ``push``, ``pull``, or under ``balanced by holders`` ``announce`` or ``directory``; without it, all.
            steps: the first and the last step of each phase, from 1; None is the very last one.
            gradient: on a topology, arrows get the colour of the load that it puts on links.

        Raises:
            ZencError: DrawingError for more than can be drawn, and as ``check`` does.
        """
        from zenc.draw.scheme import picture_of
        from zenc.draw.shown import StepRange
        from zenc.pipeline.shown import pinned

        plan, size = pinned(self.syntax, self.asked, gradient)
        return picture_of(plan, size, StepRange(phase, *steps), self.asked.topology, gradient)

    def load(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        deadline: float | None = None,
        capacity: Shares | None = None,
        shared_memory: bool = True,
    ) -> Collective:
        """Make the scheme ready to run on a process group, compiled for its size; see ``zenc.load``."""
        return loaded(lambda size: self.at(size).compile(), group, deadline, capacity, shared_memory)


def schemes() -> list[ShippedScheme]:
    """Return the schemes that come with zenc, by name: dimensions, wire formats, parameters and a summary.

    Raises InternalError ``broken-installation``.
    """
    from zenc.scheme.library import shipped

    return shipped()


@names_wrong_types
def check(path: AnyPath, *, gradient: GradientSpec = DEFAULT_GRADIENT, **given: Unpack[Asked]) -> Report:
    """Prove the scheme in ``path``, as ``zenc.open(path, ...).check(gradient)`` does.

    Raises SchemeSyntaxError, SchemeError, VerificationError or TopologyError with everything wrong at that stage.
    """
    return SchemeText(*asked(path, **given)).check(gradient)


@names_wrong_types
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
    """Compile the scheme in ``path`` (a file, or the name of a shipped scheme), as ``SchemeText.compile`` does.

    Args:
        path: a ``.zen`` file, or a shipped scheme's name such as ``balanced``.
        ranks: pin the artifact to this many ranks; without it, it serves any number.
        params: values of the scheme's parameters.
        target: ``cpu``, ``cuda``, or ``plan`` for the plan alone.
        scheme: which one, where the file has several.
        topology: pin the artifact to the ranks of this, and demand a route over its links for every move.
        arch: for ``cuda``: the GPU architectures to compile kernels for now, such as ``["sm_90"]``.
        link: the bandwidth between ranks, in bytes a second or as ``'400 Gbit/s'``: where the format is ``auto`` it is
            then the one that takes least time, links and kernels together, and otherwise the one with fewest bytes.

    Raises ZencError of the stage that found something wrong, with all its diagnostics.
    """
    text = SchemeText(*asked(path, ranks=ranks, params=params, scheme=scheme, topology=topology, link=link))
    return text.compile(target, arch)


@names_wrong_types
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
    from zenc.pipeline.request import Request

    return SchemeText(syntax, Request(ranks, params, scheme)).compile(target, arch)


@names_wrong_types
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

    They are those of ``zenc.open(path, ...).explain(rank, gradient, indices)``, with a gradient of ``units`` rows of
    ``width`` values of ``dtype``, of which each rank holds the share ``density``: at random by ``seed``, or by Zipf's
    law with the exponent ``zipf``, with ``overlap`` as the share that another rank holds, too, on average. ``link`` is
    as for ``compile``; kernels are those of GPUs where the topology has some.
    """
    text = SchemeText(*asked(path, ranks=ranks, params=params, scheme=scheme, topology=topology, link=link))
    return text.explain(rank, GradientSpec(units, width, dtype, density, zipf, overlap, seed), indices)


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
    """Return the program of ``rank`` in a call, as ``zenc.open(path, ...).programs(...)`` does."""
    text = SchemeText(*asked(path, ranks=ranks, params=params, scheme=scheme, topology=topology))
    return text.programs(rank, units, width, dtype)


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
    """Draw the scheme in ``path`` among ``ranks`` ranks, as ``zenc.open(path, ...).draw(...)`` does."""
    text = SchemeText(*asked(path, ranks=ranks, params=params, scheme=scheme, topology=topology))
    return text.draw(phase=phase, steps=steps, gradient=gradient)


@names_wrong_types
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
        capacity: on GPUs, make room for a number of units instead of counting them first, so that the host waits once
            a call: what earlier calls of the same shape had, and a quarter more (default for schemes that lose nothing;
            "learned"); or the greatest density of any rank's gradient, or a pair of that and of the sum's, each in any
            part, whose calls can be captured in CUDA graphs. Where the room is too small a call is made again without
            it, on all ranks. "exact": count. Calls on the CPU do, and rank 0 says so once where shares are given.
        link: as ``compile`` takes it, where it is compiled here.
        shared_memory: ranks of one host exchange gradients in host memory through memory that they share. False: over
            the wire, as with ranks of other hosts. The same on all ranks; ZENC_SHARED_MEMORY=0 does it for a process.

    Raises:
        ZencError: this rank's own scheme, artifact, compiler, cache or capacity is at fault.
        SynchronisationError: another rank failed, holds another scheme, or did not come.
    """
    return loaded(lambda size: artifact_for(size, what, params, link), group, deadline, capacity, shared_memory)


def loaded(
    obtain: Callable[[int], Artifact],
    group: dist.ProcessGroup | None,
    deadline: float | None,
    capacity: Shares | None,
    shared_memory: bool,
) -> Collective:
    """Return what ``obtain`` compiles for a number of ranks, ready to run on a process group, as ``load`` does."""
    from zenc.pipeline import backend
    from zenc.runtime.load import load_collective

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
    from zenc.codegen.render import rendered_for

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
