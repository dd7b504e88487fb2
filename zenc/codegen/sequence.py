"""What one rank does in a call, as straight-line steps over numbered segments, in which nothing but counts is unknown.

The own segments of all parts come first, then those that the statements make, in their order. The statements are what
``zenc.runtime.cpu.executor`` does while it plays a program, found before the call; what no other statement, no message
and no result needs is left out. Segments of a dense phase need no counts: they have all slots. So the first message
from one rank to another is announced, and after it all that are counted.
"""

from __future__ import annotations

from dataclasses import replace

from zenc.codegen.lowering import Lowering
from zenc.codegen.statements import Sequence, Transfer, needed_only, renumbered, with_numbers
from zenc.errors import Diagnostic, InternalError
from zenc.plan.ir import Phase, Plan
from zenc.plan.rank_schedule import program
from zenc.scheme.model import Format
from zenc.verify.incoming import verify_with_pieces


def sequence(plan: Plan, size: int, rank: int) -> Sequence:
    """What ``rank`` of ``size`` does under ``plan``, which is proved; raises VerificationError."""
    if plan.announce is not None:
        raise InternalError(Diagnostic("internal", "a plan by holders has no cut that is known before a call"))
    rounds, _, pieces = verify_with_pieces(plan, size, rank)
    steps = program(rounds, rank)
    lowering = Lowering(rank, size, rounds.parts, pieces)
    for number, (phase, of_phase) in enumerate(zip(_phases(plan), (*steps.pushes, *steps.pulls), strict=True)):
        is_push = number < len(plan.pushes)
        following = _phases(plan)[number + 1 :]
        lowering.begin(plan, phase, is_push)
        for step in of_phase:
            lowering.step(step)
        if following:
            lowering.end(following[0].format)
    return _without_the_needless(lowering.done())


def _phases(plan: Plan) -> tuple[Phase, ...]:
    return (*plan.pushes, *plan.pulls)


def _without_the_needless(found: Sequence) -> Sequence:
    """Only what is sent or needed for the result, numbered anew, and with the formats that segments are sent in."""
    needed = {*range(found.parts), *found.own, *found.complete}
    phases = needed_only(found.phases, needed)
    asked: dict[int, Format] = {}
    for phase in phases:
        for statement in phase.statements:
            if isinstance(statement, Transfer):
                for segment in (segment for parcel in statement.sends for segment in parcel.segments):
                    asked.setdefault(segment, phase.format)
    kept_numbers = sorted(needed)
    numbers = {old: new for new, old in enumerate(kept_numbers)}
    return replace(
        found,
        segments=tuple(replace(found.segments[old], asked=asked.get(old)) for old in kept_numbers),
        own=renumbered(found.own, numbers),
        phases=with_numbers(phases, numbers),
        complete=renumbered(found.complete, numbers),
    )
