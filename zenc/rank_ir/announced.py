"""Announced calls: a rank program by holders cut after its agreement, to be played as two calls.

    whole = announce | announced            # exchange of index sets, agree | split, push, pull

The announce needs the units alone, and so may be made before there are values. The statements and the numbers of steps
are those of the whole program, so its proof covers them.
"""

from __future__ import annotations

from dataclasses import replace

from zenc.rank_ir.ir import Expand, RankProgram
from zenc.rank_ir.uses import with_uses


def announce_of(program: RankProgram) -> RankProgram:
    """Return the announce of ``program``, a whole one by holders; it ends with the agreement on all owners."""
    announce = program.phases[0]
    alone = replace(announce, statements=announce.statements[:-1])
    return with_uses(replace(program, phases=(alone,), expand=Expand((), program.expand.sets)))


def announced_of(program: RankProgram) -> RankProgram:
    """Return the rest of ``program`` after its announce; it begins with the owners of all units."""
    announce, push, *pulls = program.phases
    begun = replace(push, statements=(*announce.statements[-1:], *push.statements))
    return with_uses(replace(program, phases=(begun, *pulls), expand=replace(program.expand, sets=())))
