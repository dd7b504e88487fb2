"""Uses of segments: those that a statement frees, those without a use, and the last uses by all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from zenc.plan.expressions import Ints, Mask
from zenc.plan.ir import SET_KINDS
from zenc.plan.unroll import Rounds
from zenc.rank_ir.ir import (
    AnyStatement,
    Decode,
    Encode,
    Fill,
    Merge,
    RankPhase,
    RankProgram,
    SegmentSpec,
    Select,
    Sparsify,
    Statement,
    made_by,
    used_by,
)
from zenc.scheme.model import Format
from zenc.verify.provenance import by_part

AnyStatementT = TypeVar("AnyStatementT", bound=AnyStatement)
_Changes = Merge | Fill | Sparsify | Select | Encode | Decode


def with_uses(program: RankProgram) -> RankProgram:
    """Return ``program`` without needless statements, and with ``frees``, ``sent_in`` and ``final`` as uses imply.

    A statement is needless where neither a message nor the result needs it.
    """
    used, own = set[int](), frozenset(program.own)
    expand = _freeing(program.expand, used)
    phases = tuple(reversed([_kept(phase, used, own) for phase in reversed(program.phases)]))
    pack = _freeing(program.pack, used)
    return replace(program, segments=_specs(program), pack=pack, phases=phases, expand=expand)


def _kept(phase: RankPhase, used: set[int], own: frozenset[int]) -> RankPhase:
    """Return ``phase`` without needless statements; ``used`` are segments of later ones, and grows by its own."""
    found: list[Statement] = []
    for statement in reversed(phase.statements):
        makes = statement.result if isinstance(statement, _Changes) else None
        if makes is None or makes in used or makes in own:
            found.append(_freeing(statement, used))
    return replace(phase, statements=tuple(reversed(found)))


def _freeing(statement: AnyStatementT, used: set[int]) -> AnyStatementT:
    """Return ``statement`` with the segments it frees; ``used`` are segments of later ones, and grows by its own."""
    uses = used_by(statement)
    frees = tuple([segment for segment in dict.fromkeys((*uses, *made_by(statement))) if segment not in used])
    used.update(uses)
    return replace(statement, frees=frees) if frees else statement


def _specs(program: RankProgram) -> tuple[SegmentSpec, ...]:
    sent: dict[int, Format] = {}
    for phase in program.phases:
        for exchange in phase.exchanges:
            for segment in used_by(exchange):
                sent.setdefault(segment, phase.format)
    final = set(program.expand.segments)
    told = enumerate(program.segments)
    return tuple([replace(s, sent_in=sent.get(n), final=n in final) if n in sent or n in final else s for n, s in told])


@dataclass(slots=True)
class LastUses:
    """The last uses of all ranks' pieces of all parts: a place is rank * parts + part.

    ``freed[phase, step]`` are the places where a step uses or brings a piece that no later step needs, and
    ``needed[phase]`` [places] those with a piece that is needed when the phase ends; steps are numbered from 1.
    """

    freed: dict[tuple[str, int], Ints] = field(default_factory=dict)
    needed: dict[str, Mask] = field(default_factory=dict)


def last_uses(rounds: Rounds) -> LastUses:
    """Return the last uses of segments in ``rounds``, but for announced ones: from the last step to the first."""
    found, needed = LastUses(), np.ones(rounds.size * rounds.parts, dtype=np.bool_)
    for phase, played in reversed(rounds.phases):
        if phase.kind in SET_KINDS:
            continue
        found.needed[phase.name] = needed.copy()
        for number, round_ in reversed(list(enumerate(played, 1))):
            rows = by_part(round_)
            src, dst = (rank * rounds.parts + rows.part for rank in (rows.src, rows.dst))
            touched = np.concatenate((src, dst))
            found.freed[phase.name, number] = np.unique(touched[~needed[touched]])
            if phase.completes:
                needed[dst] = False
            needed[src] = True
    return found
