"""Public functions over plans that other synthesizers wrote: ``check_plan`` judges, ``compile_plan`` makes one run."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from zenc.errors import ArtifactError, Diagnostic, PlanError
from zenc.plan.from_json import MOST_LETTERS, plan_from_json
from zenc.referee.convert import convert
from zenc.referee.open import PlanReport, check_plan, kind_of

if TYPE_CHECKING:
    from zenc.codegen.artifact import Artifact
    from zenc.pipeline.request import Architectures, Target

__all__ = ["PlanReport", "check_plan", "compile_plan", "is_plan"]


def is_plan(path: str | os.PathLike[str]) -> bool:
    """Return whether the file ``path`` holds a plan of another program, by its contents."""
    return kind_of(path) is not None


def compile_plan(path: str | os.PathLike[str], target: Target = "cpu", arch: Architectures = None) -> Artifact:
    """Compile the plan of another program in ``path``: an all-reduce, or an all-gather behind its reverse.

    Args:
        path: a file as ``check_plan`` takes it.
        target: ``cpu``, ``cuda``, or ``plan`` for the plan alone.
        arch: for ``cuda``, as ``zenc.compile`` takes it.

    Raises ZencError: what ``check_plan`` raises; PlanError ``not-convertible`` for a plan that zenc can't run.
    """
    from zenc.pipeline import artifact_of_plan

    report = check_plan(path)
    plan = convert(report.plan, report.transfers)
    try:
        plan_from_json(json.loads(plan.text()))
    except ArtifactError as error:
        message = f"{report.plan.source.name} comes to a plan that is too long: {error.diagnostics[0].message}"
        help = f"the expressions of a plan have {MOST_LETTERS:,} letters at most: take fewer ranks"
        raise PlanError(Diagnostic("not-convertible", message, help=help)) from error
    return artifact_of_plan(plan, target, arch)
