"""``zenc compile``: from a scheme to a directory that can be loaded."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from zenc.cli.common import (
    JsonOption,
    NameOption,
    RanksOption,
    SchemeArgument,
    SetOption,
    TopologyOption,
    locate,
    on_topology,
    parameters,
    print_json,
    reporting,
)


class Target(str, Enum):
    CPU = "cpu"
    PLAN = "plan"


TargetOption = Annotated[
    Target, typer.Option("--target", help="cpu: the plan and C++ kernels; plan: the plan alone, for other programs.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to write. [default: build/SCHEME]")
]

EXAMPLES = """\b
Examples:
  zenc compile balanced                      writes build/balanced
  zenc compile mine.zen --ranks 8 -o out
  zenc compile dense_ring --target plan --json
"""


def compile_(
    file: SchemeArgument,
    ranks: RanksOption = None,
    assignments: SetOption = None,
    target: TargetOption = Target.CPU,
    scheme: NameOption = None,
    topology: TopologyOption = None,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Compile a scheme to a directory: manifest, plan and kernels.

    The scheme is proved first; one that is wrong does not compile. Without --ranks the result serves any number. With
    --topology it is for the ranks of this, and does not compile unless every move has a way there; the topology itself
    is no part of what is written.
    """
    path, params = locate(file), parameters(assignments)
    with reporting(json):
        from zenc import compiler

        cluster, ranks = on_topology(topology, ranks)
        artifact = compiler.compile(
            path, ranks=ranks, params=params, target=target.value, scheme=scheme, topology=cluster
        )
        where = artifact.save(output or Path("build") / artifact.plan.scheme)
    if json:
        print_json({"ok": True, "directory": str(where), "manifest": artifact.manifest})
    else:
        size = artifact.plan.size
        group = "any number of ranks" if size is None else "1 rank" if size == 1 else f"{size} ranks"
        print(f"{where}: {artifact.plan.scheme} for {group}, target {target.value}, plan {artifact.plan.digest[:12]}")
