"""``zenc compile``: from a scheme to a directory that can be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import zenc.cli.common as common
from zenc.codegen.build.arch import USUAL, listed
from zenc.codegen.build.cache import cache_dir
from zenc.common.wording import sizes_text

if TYPE_CHECKING:
    from zenc.codegen.artifact import Artifact
    from zenc.pipeline.request import Target
    from zenc.strategy.pipeline import StrategyArtifacts

TargetOption = Annotated[
    Literal["cpu", "cuda", "plan"],
    typer.Option(
        "--target",
        help="cpu: the plan and C++ kernels; cuda: the plan and GPU kernels, compiled; plan: the plan alone, for other "
        "programs.",
    ),
]
ArchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--arch",
        metavar="ARCH",
        help="For cuda: the GPU architectures to compile for, such as sm_90 or sm_80,sm_90; may be repeated. "
        "'none' leaves that to the machine that loads it. "
        f"[default: {listed(USUAL)}]",
    ),
]
OutputOption = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIR", help="Where to write. [default: build/SCHEME]")
]

EXAMPLES = """\b
Examples:
  zenc compile balanced                      writes build/balanced
  zenc compile mine.zen --ranks 8 -o out
  zenc compile balanced --target cuda        for the usual GPUs; needs none of them
  zenc compile balanced --target cuda --arch sm_90,sm_100
  zenc compile dense_ring --target plan --json
  zenc compile step.zen -o out               each scheme of a strategy, once
  zenc compile allreduce.xml -o out          the plan of another synthesizer
"""


def compile_(
    file: common.WithStrategyArgument,
    ranks: common.RanksOption = None,
    assignments: common.SetOption = None,
    target: TargetOption = "cpu",
    arch: ArchOption = None,
    scheme: common.WhichOption = None,
    topology: common.TopologyOption = None,
    link: common.LinkOption = None,
    output: OutputOption = None,
    json: common.JsonOption = False,
) -> None:
    """Compile a scheme to a directory: manifest, plan and kernels.

    The scheme is proved first; one that is wrong does not compile. Without --ranks the result serves any number that
    the scheme allows. With --topology it is for the ranks of this, and does not compile unless every move has a way
    there; the topology itself is no part of what is written.

    C++ kernels are built by g++ where the scheme is loaded. GPU kernels are compiled here, by NVRTC: sm_90 is
    compute capability 9.0 (H100, H200), and kernels for sm_80 run on 8.0, 8.6 and 8.9. For other GPUs they are compiled
    where the scheme is loaded, if NVRTC is there. Compiled kernels stay in your cache, too: machines that share it
    (ZENC_CACHE_DIR) and have this NVRTC load the scheme without compiling any.

    For a strategy each scheme that its rules name is written, once, to a directory of its own: rules 'on gpu' for cuda,
    rules 'on host' for cpu, all others for --target. zenc.attach takes the whole directory, or the text itself.

    The plan of another synthesizer, as 'zenc check' takes it, becomes a plan of zenc if it is an all-reduce. An
    all-gather becomes the pull and, turned round, the push before it.
    """
    path, params = common.locate(file), common.parameters(assignments)
    if common.is_plan(path, ranks, params, scheme, topology, link):
        return _compile_plan(path, target, arch, output, json)
    with common.reporting(json, "compile"):
        from zenc.kinds import open_summing

        found = open_summing(path, **common.asked(ranks, params, scheme, topology, link))
        if found.kind == "strategy":
            return _save_strategy(found.compile(target, arch), output, json)
        artifact = found.compile(target, arch)
        where = artifact.save(Path("build", artifact.name) if output is None else output)
    common.answer(json, _told(where, artifact), _saved(where, artifact))


def _compile_plan(path: str, target: Target, arch: list[str] | None, output: str | None, json: bool) -> None:
    with common.reporting(json, "compile"):
        from zenc.pipeline.foreign import compile_plan

        artifact = compile_plan(path, target, arch)
        where = artifact.save(Path("build", artifact.name) if output is None else output)
    doc = artifact.plan.doc
    common.answer(json, {**_told(where, artifact), "of": doc}, f"{_saved(where, artifact)}\n  {doc}")


def _told(where: Path, artifact: Artifact) -> dict[str, object]:
    cache = {"cache": str(cache_dir())} if artifact.cubins else {}
    return {"directory": str(where), **cache, "manifest": artifact.manifest}


def _saved(where: Path, artifact: Artifact) -> str:
    plan, proved = artifact.plan, artifact.proved_sizes
    group = sizes_text(proved)
    if plan.size is None:  # it is for no one number of ranks alone
        whole = proved[0] == 1 and len(proved) == proved[-1]
        group = f"any number of ranks{'' if whole else f' that it allows (proved for {group})'}"
    archs = f" ({listed(cubin.arch for cubin in artifact.cubins)})" if artifact.target == "cuda" else ""
    lines = [f"{where}: {artifact.name} for {group}, target {artifact.target}{archs}, plan {artifact.digest[:12]}"]
    if artifact.cubins:
        lines.append(f"  these kernels are in the cache, too, where loading finds them: {cache_dir()}")
    if artifact.choosing:
        lines.append(f"  it chooses from {', '.join(artifact.choosing.candidates)}")
    return "\n".join(lines)


def _save_strategy(compiled: StrategyArtifacts, output: str | None, json: bool) -> None:
    from zenc.strategy.resolve import tensors_text

    where = compiled.save(Path("build", compiled.strategy.name) if output is None else output)
    saved = [(where[name], artifact) for name, artifact in compiled.distinct.items()]
    rules = {at: [tensors_text(rule.tensors) for rule in compiled.rules_of(of)] for at, of in saved}
    told = [{**_told(at, artifact), "rules": rules[at]} for at, artifact in saved]
    lines = [f"{_saved(at, artifact)}\n  for {', '.join(rules[at])}" for at, artifact in saved]
    common.answer(json, {"strategy": compiled.strategy.name, "schemes": told}, "\n".join(lines))
