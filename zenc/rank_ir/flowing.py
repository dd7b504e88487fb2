"""Flowing programs: a message leaves once what it carries is there, and the pull begins while the push goes on.

Exchanges stand in the order of their steps, those of the pull ``early`` steps before their own. Each is cut in one of
what comes, which nothing waits for until it is used, and one for each message that leaves, behind the merges that make
what it carries. An announce goes before all that, as it is. All ranks have one order of steps, and a message waits for
those of earlier steps alone: so there is no circle of ranks that wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from zenc.plan.ir import SET_KINDS, PhaseKind
from zenc.rank_ir.ir import Exchange, RankPhase, RankProgram, Statement, made_by, used_by
from zenc.rank_ir.uses import with_uses

_Placed = tuple[int, Statement]


def flowing(program: RankProgram) -> RankProgram:
    """Return ``program``, whose pull may begin early, as one that flows: its phases stand in turns."""
    announces = [replace(phase, statements=_bare(phase)) for phase in program.phases if phase.kind in SET_KINDS]
    placed = groupby(_in_order(program), key=itemgetter(0))
    phases = [replace(program.phases[at], statements=tuple([each for _, each in of])) for at, of in placed]
    return with_uses(replace(program, phases=(*announces, *phases), pack=replace(program.pack, frees=())))


def _bare(phase: RankPhase) -> tuple[Statement, ...]:
    return tuple([replace(each, frees=()) for each in phase.statements])


def _in_order(program: RankProgram) -> Iterator[_Placed]:
    """Yield the statements with the places of their phases; each but an exchange stands before its first use."""
    later = [(at, phase) for at, phase in enumerate(program.phases) if phase.kind not in SET_KINDS]
    every = [(at, each) for at, phase in later for each in _bare(phase)]
    makers = {made: place for place in every if not isinstance(place[1], Exchange) for made in made_by(place[1])}

    def needed(segments: Iterable[int]) -> Iterator[_Placed]:
        for segment in segments:
            if (maker := makers.pop(segment, None)) is not None:
                yield from needed(used_by(maker[1]))
                yield maker

    yield from needed(program.own)
    exchanges = [(at, each) for at, each in every if isinstance(each, Exchange)]
    early = [program.early if phase.kind is PhaseKind.PULL else 0 for phase in program.phases]
    for at, step in sorted(exchanges, key=lambda placed: (placed[1].number - early[placed[0]], placed[0])):
        if step.receives:
            yield at, replace(step, sends=())
        for message in step.sends:
            yield from needed(message.segments)
            yield at, replace(step, sends=(message,), receives=())
    yield from needed(program.expand.segments)
