"""Coder of a plan: the kernels that turn values into bytes and back."""

from __future__ import annotations

from zenc.errors import BuildError, Diagnostic
from zenc.plan.ir import Plan
from zenc.runtime.compression.losses import Coder


def coder_for(plan: Plan) -> Coder | None:
    """The coder for the phases of ``plan``; None where no values are encoded. Raises BuildError."""
    if all(phase.code is None for phase in plan.phases):
        return None
    message = f"scheme '{plan.scheme}' encodes values, which the run time can't do yet"
    raise BuildError(Diagnostic("no-compression", message, help="take a scheme without 'as'"))
