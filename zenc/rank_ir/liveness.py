"""Liveness of segments: what a rank program needs of what was written down, and where each segment is used last."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from zenc.rank_ir.ir import (
    AnyStatement,
    Fill,
    Merge,
    RankPhase,
    RankProgram,
    SegmentSpec,
    Sparsify,
    Statement,
    made_by,
    used_by,
)
from zenc.scheme.model import Format

AnyStatementT = TypeVar("AnyStatementT", bound=AnyStatement)


def with_uses(program: RankProgram) -> RankProgram:
    """``program`` without what neither a message nor the result needs, and with all that follows from uses.

    That is ``frees`` of every statement, and of every segment ``sent_in`` and ``final``.
    """
    used, own = set[int](), frozenset(program.own)
    expand = _freeing(program.expand, used)
    phases = tuple(reversed([_kept(phase, used, own) for phase in reversed(program.phases)]))
    pack = _freeing(program.pack, used)
    return replace(program, segments=_specs(program), pack=pack, phases=phases, expand=expand)


def _kept(phase: RankPhase, used: set[int], own: frozenset[int]) -> RankPhase:
    """``phase`` without what is not needed; ``used`` are segments that later statements use, and grows by its own."""
    found: list[Statement] = []
    for statement in reversed(phase.statements):
        if not isinstance(statement, Merge | Fill | Sparsify) or statement.result in (used | own):
            found.append(_freeing(statement, used))
    return replace(phase, statements=tuple(reversed(found)))


def _freeing(statement: AnyStatementT, used: set[int]) -> AnyStatementT:
    """``statement`` with what it frees, where ``used`` are segments of later ones, to which its own are added."""
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
