"""The call sequence of one rank, made ready: a table for the interpreter.

The interpreter is compiled once for all schemes. An artifact that is pinned to a number of ranks has the programs of
all, and what is played is what this zenc makes of its plan.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from zenc.codegen.artifact import Artifact
from zenc.codegen.call_program import DATA, call_program, render_sequence
from zenc.errors import ArtifactError, Diagnostic
from zenc.rank_ir.ir import RankProgram
from zenc.rank_ir.lower import lower
from zenc.runtime.gpu import library
from zenc.runtime.gpu.library import CallLibrary


@dataclass(frozen=True, slots=True)
class LoadedSequence:
    """A sequence in ``library``, which owns the handle ``program``."""

    library: CallLibrary
    program: int


def load_sequence(artifact: Artifact, size: int, rank: int, deadline: float) -> LoadedSequence:
    """The sequence of ``rank`` of ``size`` under the plan of ``artifact``, built within ``deadline`` seconds.

    Raises VerificationError, BuildError, CacheError and ArtifactError ``artifact-damaged``.
    """
    interpreter, program = library.interpreter(deadline), lower(artifact.plan, size, rank)
    if DATA in artifact.sequences:
        _ensure_same(artifact, program)
    return LoadedSequence(interpreter, interpreter.load_program(call_program(program).words))


def _ensure_same(artifact: Artifact, program: RankProgram) -> None:
    """Raise ArtifactError unless what the artifact has for a rank is ``program``, which its plan means."""
    try:
        data, own = (json.loads(text) for text in (artifact.sequences[DATA], render_sequence([program])))
        same = data["size"] == own["size"] and data["ranks"][program.rank] == own["ranks"][0]
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise _other(artifact) from error
    if not same:
        raise _other(artifact)


def _other(artifact: Artifact) -> ArtifactError:
    message = f"{DATA} of {artifact.plan.scheme} is not what zenc makes of its plan"
    return ArtifactError(Diagnostic("artifact-damaged", message, help="compile the scheme again"))
