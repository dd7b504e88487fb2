"""The whole chain of arrows: from text to an artifact, and from an artifact to a collective.

text --parse--> Syntax --resolve--> Scheme --lower--> Plan --verify--> proved Plan --render--> Artifact
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zenc.codegen.artifact import Artifact, load_artifact
from zenc.codegen.render import UnitInputs, render
from zenc.errors import ArtifactError, Diagnostic, ZencError
from zenc.language.load import Program, load_file, load_text
from zenc.plan.expected import DEFAULT_GRADIENT, Gradient, Weigher
from zenc.plan.explain import Explanation
from zenc.plan.explain import explain as explain_plan
from zenc.plan.gradients import Gradients, demand, read_gradients
from zenc.plan.lower import lower
from zenc.plan.model import Plan
from zenc.plan.placement import Placement, place, units_of
from zenc.plan.symbolic import symbolic
from zenc.plan.synthetic import Load, drawn, source_of
from zenc.plan.verify import Proof, verify_all
from zenc.scheme.library import locate
from zenc.scheme.model import Scheme
from zenc.scheme.resolve import resolve

if TYPE_CHECKING:
    import torch.distributed as dist

    from zenc.draw.picture import SchedulePicture
    from zenc.draw.steps import Steps
    from zenc.runtime.collective import Collective
    from zenc.topology.model import Topology

Path_ = str | os.PathLike[str]
Parameters = Mapping[str, int | float | str]
Target = Literal["cpu", "plan"]

DEFAULT_DEADLINE = 300.0
"""Seconds that any single wait may take, unless ``deadline=`` or ZENC_DEADLINE_S say otherwise."""


@dataclass(frozen=True, slots=True)
class Report:
    """What ``check`` found: the scheme is right for ``sizes``; ``warnings`` are worth a look.

    ``placement``: what it asks of the topology that it was checked against.
    """

    scheme: Scheme
    plan: Plan
    proofs: tuple[Proof, ...]
    warnings: tuple[Diagnostic, ...]
    placement: Placement | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(proof.size for proof in self.proofs)

    @property
    def rounds(self) -> dict[str, int]:
        """Rounds by kind of phase at the largest size that was proved."""
        return self.proofs[-1].rounds


@dataclass(frozen=True, slots=True)
class Drawing:
    """A scheme's picture; ``steps`` is what it shows."""

    plan: Plan
    steps: Steps
    picture: SchedulePicture

    def svg(self) -> str:
        """The text of an SVG file, which needs no other file, font or script."""
        from zenc.draw.render import svg

        return svg(self.picture)

    def to_json(self) -> dict[str, object]:
        """What is drawn, as JSON data."""
        return {"scheme": self.plan.scheme, "digest": self.plan.digest, **self.steps.to_json()}


def check(
    path: Path_,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    gradient: Gradient = DEFAULT_GRADIENT,
) -> Report:
    """Parse, resolve, lower and prove the scheme in ``path``, for ``ranks`` or for 1 to 16 ranks.

    With a ``topology`` it is proved for the ranks of this, and every move must have a way there; loads of links and
    memory are those to expect for ``gradient``.

    Raises SchemeSyntaxError, SchemeError, VerificationError or TopologyError with everything wrong at that stage.
    """
    return _checked(load_file(locate(path)), ranks, params, scheme, topology, gradient)


def _checked(
    program: Program,
    ranks: int | None,
    params: Parameters | None,
    scheme: str | None,
    topology: Topology | None = None,
    gradient: Gradient = DEFAULT_GRADIENT,
) -> Report:
    levels = units_of(topology) if topology else {}
    resolved, warnings = resolve(program, scheme, params or {}, levels)  # Syntax -> Scheme
    if topology is None:
        plan = lower(resolved, ranks)  # Scheme -> Plan
        return Report(resolved, plan, verify_all(plan), warnings)  # Plan -> proved Plan
    plan = lower(resolved, topology.size if ranks is None else ranks)
    placed = place(plan, topology, Weigher(plan, topology.size, *astuple(gradient)))  # Plan -> proved Plan @ Topology
    return Report(resolved, plan, (placed.proof,), (*warnings, *placed.warnings), placed)


def compile(
    path: Path_,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    target: Target = "cpu",
    scheme: str | None = None,
    topology: Topology | None = None,
) -> Artifact:
    """Compile the scheme in ``path`` (a file, or the name of a shipped scheme).

    Args:
        path: a ``.zen`` file, or a shipped scheme's name such as ``balanced``.
        ranks: pin the artifact to this many ranks; without it, it serves any number, and is proved for 1 to 16 now
            and for the real number when it is loaded.
        params: values of the scheme's parameters.
        target: ``cpu``, or ``plan`` for the plan alone.
        scheme: which one, where the file has several.
        topology: pin the artifact to the ranks of this, and demand a way there for every move.

    Raises:
        ZencError: of the stage that found something wrong, with all its diagnostics.
    """
    return _compiled(load_file(locate(path)), ranks, params, target, scheme, topology)


def compile_text(
    text: str,
    *,
    name: str = "<text>",
    ranks: int | None = None,
    params: Parameters | None = None,
    target: Target = "cpu",
    scheme: str | None = None,
) -> Artifact:
    """``compile`` for a text; ``name`` is what diagnostics call it."""
    return _compiled(load_text(text, name), ranks, params, target, scheme)


def _compiled(
    program: Program,
    ranks: int | None,
    params: Parameters | None,
    target: Target,
    scheme: str | None,
    topology: Topology | None = None,
) -> Artifact:
    report = _checked(program, ranks, params, scheme, topology)
    sources = {} if target == "plan" else rendered(report.plan, target)  # Plan -> sources
    return Artifact(report.plan, target, sources, report.scheme.sources, report.sizes)


def rendered(plan: Plan, target: str) -> dict[str, str]:
    """The generated sources of ``plan``: file name -> text."""
    return render(UnitInputs.of(plan), target)


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
    """The steps and messages of ``rank``, and the bytes of all of ``ranks`` (default 4): see ``zenc.plan.explain``.

    The gradients are drawn as ``zenc.plan.synthetic`` says, or read from the file ``indices``, which then decides
    about everything else. With a ``topology`` of so many ranks, also the loads of its links.
    """
    resolved, _ = resolve(load_file(locate(path)), scheme, params or {}, units_of(topology) if topology else {})
    load = Load(units, width, dtype, density, zipf, overlap, seed)
    of, load, source = _gradients(load, ranks, indices)
    plan = lower(resolved, of.size)
    explanation = explain_plan(plan, rank, of, load, source)
    general = symbolic(lower(resolved), of.size, load.density)
    gradient = load.units, load.width, load.dtype, load.density
    placed = place(plan, topology, Weigher(plan, topology.size, *gradient)) if topology else None
    return replace(explanation, general=general, placement=placed)


def _gradients(load: Load, ranks: int | None, indices: Path_ | None) -> tuple[Gradients, Load, str]:
    """Drawn gradients, or recorded ones; what describes them, and where they come from."""
    if indices is None:
        return drawn(load, ranks or 4), load, source_of(load)
    of = read_gradients(indices)
    demand([(ranks not in (None, of.size), f"{indices} is of {of.size} ranks, not of {ranks}")])
    return of, Load(of.units, of.width, of.dtype, of.density), f"recorded in {indices}"


def draw(
    path: Path_,
    ranks: int,
    *,
    phase: str | None = None,
    steps: tuple[int, int | None] = (1, None),
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    gradient: Gradient = DEFAULT_GRADIENT,
) -> Drawing:
    """The scheme in ``path`` among ``ranks`` ranks as a picture: who sends what to whom, and who holds what after.

    Args:
        path: a ``.zen`` file, or the name of a shipped scheme.
        ranks: at most 32.
        phase: ``push`` or ``pull``; without it, all.
        steps: the first and the last step of each phase, from 1; None is the last there is.
        params: values of the scheme's parameters.
        scheme: which one, where the file has several.
        topology: of ``ranks`` ranks; arrows get the colour of the load that ``gradient`` puts on its links.
        gradient: the one that loads are expected for.

    Raises:
        ZencError: DrawingError for more than can be drawn, and what ``check`` raises.
    """
    from zenc.draw.scheme import draw as draw_plan
    from zenc.draw.steps import Choice, steps_of

    resolved, _ = resolve(load_file(locate(path)), scheme, params or {}, units_of(topology) if topology else {})
    plan = lower(resolved, ranks)
    weigher = Weigher(plan, ranks, *astuple(gradient)) if topology else None
    shown = steps_of(plan, ranks, Choice(phase, *steps), topology, weigher)
    return Drawing(plan, shown, draw_plan(plan, shown))


def load(
    what: Artifact | Path_, group: dist.ProcessGroup | None = None, *, deadline: float | None = None
) -> Collective:
    """Make a compiled scheme ready to run on a process group. All ranks of the group call this together.

    Args:
        what: an artifact, the directory of a saved one, or a ``.zen`` file (compiled for the size of the group).
        group: the ranks that take part; default: all. Any backend: zenc makes a gloo group of its own over them.
        deadline: seconds that any single wait may take; default ZENC_DEADLINE_S or 300.

    Raises:
        ZencError: this rank's own scheme, artifact, compiler or cache is at fault.
        SynchronisationError: another rank failed, holds another scheme, or did not come.
    """
    from zenc.runtime.load import load_collective

    return load_collective(lambda size: _obtained(what, size), group, seconds(deadline))


def _obtained(what: Artifact | Path_, size: int) -> Artifact:
    """The artifact that ``what`` stands for, fit for ``size`` ranks."""
    if isinstance(what, Artifact):
        artifact = what
    elif Path(what).is_dir():
        artifact = load_artifact(what)
    else:
        artifact = compile(what, ranks=size)
    artifact.demand_size(size)
    _demand_own_code(artifact)
    return artifact


def _demand_own_code(artifact: Artifact) -> None:
    """An artifact is data: the code that runs is what this zenc generates from its plan, and nothing else."""
    if artifact.target == "plan":
        message = f"{artifact.plan.scheme} was compiled to a plan only, which can't be run"
        raise ArtifactError(Diagnostic("artifact-without-code", message, help="compile it with --target cpu"))
    if artifact.sources != rendered(artifact.plan, artifact.target):
        message = f"the code of {artifact.plan.scheme} is not what zenc generates from its plan"
        raise ArtifactError(Diagnostic("artifact-damaged", message, help="compile the scheme again"))


def seconds(deadline: float | None) -> float:
    """``deadline``, or what the environment says, or the default; raises ZencError (``bad-deadline``)."""
    given = os.environ.get("ZENC_DEADLINE_S") if deadline is None else deadline
    try:
        chosen = DEFAULT_DEADLINE if given is None else float(given)
    except ValueError:
        chosen = -1.0
    if not 0 < chosen < float("inf"):
        raise ZencError(Diagnostic("bad-deadline", f"a deadline is a number of seconds above 0, not {given!r}"))
    return chosen
