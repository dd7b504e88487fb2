"""The call sequence of one rank, made ready: a table for the interpreter, or compiled.

    ZENC_SEQUENCE = table | compiled

The interpreter is compiled once for all schemes. Both do the same; compiled C++ can be read and stepped through. An
artifact that is pinned to a number of ranks has both, and the one played has to equal what this zenc makes of its plan.
Halves of calls are tables in either case: they are made when they are first asked for.
"""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass

from zenc.codegen.artifact import Artifact
from zenc.codegen.call_program import CODE, DATA, call_program, render_sequence
from zenc.common.environment import setting
from zenc.errors import ArtifactError, Diagnostic
from zenc.rank_ir.ir import RankProgram
from zenc.rank_ir.lower import lower, lower_all
from zenc.runtime.gpu import library
from zenc.runtime.gpu.library import CallLibrary


class ProgramTable:
    """A program of a rank, or a part of the ``whole`` one, in memory of ``library`` as long as this lives."""

    def __init__(self, library: CallLibrary, program: RankProgram, whole: RankProgram | None = None) -> None:
        self.handle = library.load_program(call_program(program, whole).words)
        weakref.finalize(self, library.unload_program, self.handle).atexit = False


@dataclass(frozen=True, slots=True)
class LoadedSequence:
    """A sequence for ``library`` to play; without a ``program`` its one entry knows all ranks."""

    library: CallLibrary
    program: ProgramTable | None

    def loaded(self, program: RankProgram, whole: RankProgram | None = None) -> ProgramTable:
        """Return the table of another ``program`` of the same rank, which any unit of sequences plays."""
        return ProgramTable(self.library, program, whole)


def load_sequence(artifact: Artifact, size: int, rank: int, deadline: float) -> LoadedSequence:
    """Return the sequence of ``rank`` of ``size`` under the plan of ``artifact``, built within ``deadline`` seconds.

    Raises VerificationError, BuildError, CacheError, ArtifactError ``artifact-damaged`` and ZencError
    ``bad-environment``.
    """
    if setting("ZENC_SEQUENCE") == "compiled":
        return LoadedSequence(library.compiled(_code(artifact, size, rank), deadline, artifact.plan.scheme), None)
    interpreter, program = library.interpreter(deadline), lower(artifact.plan, size, rank)
    if DATA in artifact.sequences:
        _ensure_same(artifact, program)
    return LoadedSequence(interpreter, ProgramTable(interpreter, program))


def _code(artifact: Artifact, size: int, rank: int) -> str:
    """Return the C++ of all ranks, where the artifact has it, or of this one."""
    text = artifact.sequences.get(CODE)
    if text is None:
        return render_sequence([lower(artifact.plan, size, rank)])
    if text != render_sequence(lower_all(artifact.plan, size)):
        raise _other(artifact, CODE)
    return text


def _ensure_same(artifact: Artifact, program: RankProgram) -> None:
    """Raise ArtifactError unless the artifact's program for a rank is ``program``, that of its plan."""
    try:
        data, own = (json.loads(text) for text in (artifact.sequences[DATA], render_sequence([program], DATA)))
        same = data["size"] == own["size"] and data["ranks"][program.rank] == own["ranks"][0]
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise _other(artifact, DATA) from error
    if not same:
        raise _other(artifact, DATA)


def _other(artifact: Artifact, name: str) -> ArtifactError:
    message = f"{name} of {artifact.plan.scheme} is not what zenc makes of its plan"
    return ArtifactError(Diagnostic("artifact-damaged", message, help="compile the scheme again"))
