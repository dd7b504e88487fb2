"""A plan that another synthesizer wrote, made a plan of zenc, and on along the arrows of the pipeline."""

from __future__ import annotations

import json
import os

from zenc.codegen.artifact import Artifact
from zenc.errors import ArtifactError, Diagnostic, PlanError
from zenc.pipeline import artifact_of_plan
from zenc.pipeline.request import Architectures, Target
from zenc.plan.from_json import MOST_LETTERS, plan_from_json
from zenc.referee.convert import convert
from zenc.referee.open import check_plan


def compile_plan(path: str | os.PathLike[str], target: Target = "cpu", arch: Architectures = None) -> Artifact:
    """Compile the plan of another program in ``path``: an all-reduce, or an all-gather behind its reverse.

    Args:
        path: a file as ``check_plan`` takes it.
        target: ``cpu``, ``cuda``, or ``plan`` for the plan alone.
        arch: for ``cuda``, as ``zenc.compile`` takes it.

    Raises ZencError: what ``check_plan`` raises; PlanError ``not-convertible`` for a plan that zenc can't run.
    """
    report = check_plan(path)
    plan = convert(report.plan, report.transfers)
    try:
        plan_from_json(json.loads(plan.text()))
    except ArtifactError as error:
        message = f"{report.plan.source.name} comes to a plan that is too long: {error.diagnostics[0].message}"
        help = f"the expressions of a plan have {MOST_LETTERS:,} letters at most: take fewer ranks"
        raise PlanError(Diagnostic("not-convertible", message, help=help)) from error
    return artifact_of_plan(plan, target, arch)
