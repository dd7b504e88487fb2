"""Capacity mode: the room for the units of a call on a GPU, which is fixed before anything of it is known.

Ranks learn it from the counts of earlier calls, or users say how much it is: docs/adr/0119-learned-capacity.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from zenc.errors import Diagnostic, ZencError
from zenc.plan.ir import PhaseKind, Plan
from zenc.scheme.compression import Fixed
from zenc.scheme.model import Encoded, Format

Shares: TypeAlias = float | tuple[float, float] | Literal["learned", "exact"]
"""Capacities as users give them: ``FixedCapacity.own``, or both, or a word."""
Greatest: TypeAlias = Callable[[Sequence[float]], list[float]]
"""A function that returns the greatest of each number [n] that the ranks give; all call it together."""
DENSITY_IS_KNOWN = "how much it selects is known, and not to be learned: give a share"
MARGIN, RELEARNED = 1.25, 127
"""The room that is learned, over what was counted, and the calls of a group after which one teaches again.

A prime: layouts in turns all come to it.
"""
FEWEST_EXACT, MOST_EXACT = 4, 64
"""Exact calls after one that did not fit, if another one had not shortly before."""
STEADY = 0.9, 1.4
"""Room in use stays if it is at least and at most this much of the room that ranks learn."""
MOST_MORE = 1 << 20
"""Bytes of a rank's gradient that room may add to what was counted: more take longer than counting, some 40 us."""


@dataclass(frozen=True, slots=True)
class FixedCapacity:
    """Capacities as shares of each part's units: ``own`` for a rank's gradient, and ``total`` for any sum."""

    own: float
    total: float

    def __str__(self) -> str:
        return f"capacity {self.own:g}, {self.total:g}"


@dataclass(frozen=True, slots=True)
class LearnedCapacity:
    """Capacities that the calls of each layout learn, one for another."""

    def __str__(self) -> str:
        return "learned capacity"


Capacity: TypeAlias = FixedCapacity | LearnedCapacity


class CapacityLearner:
    """The capacity of the next call of one layout of ``size`` bytes, among ranks that agree by ``greatest``.

    ``room`` is None before a call that is made exactly. All ranks know which: they have seen the same calls fit.
    ``is_sure``: there is nothing to do after a call that fits, but for each 127th of the group.
    """

    def __init__(self, greatest: Greatest, size: int) -> None:
        self.room: FixedCapacity | None = None
        self.is_sure = False
        self._greatest, self._size = greatest, size
        self._left, self._pause = 0, 0  # exact calls before ranks learn: in this pause, and in the next one

    def ended(self, made_again: bool, own: Iterable[int], total: Iterable[int], slots: Iterable[int]) -> None:
        """Learn from a call that has ended, with all ranks, where that is due.

        The occupied units of its parts, of a rank's ``own`` gradient and in all, and all units: ``slots``, all [parts].
        """
        sure = self.is_sure and not made_again
        if made_again:
            self.room, self._left = None, self._pause
            self._pause = min(MOST_EXACT, max(FEWEST_EXACT, 2 * self._pause))
        elif self.room is not None:
            self._pause = max(0, self._pause - 1)
        else:
            self._left -= 1
        if sure or (self.room is None and self._left <= 0):
            self._learn(own, total, slots)
        self.is_sure = self.room is not None and self._pause == 0

    def _learn(self, own: Iterable[int], total: Iterable[int], slots: Iterable[int]) -> None:
        counted = [max(n / max(1, of) for n, of in zip(counts, slots, strict=True)) for counts in (own, total)]
        shares = self._greatest(counted)
        new = FixedCapacity(*(min(1.0, MARGIN * share + 1e-9) for share in shares))
        if self._size * (new.own - shares[0]) > MOST_MORE:
            self.room, self._left = None, RELEARNED
        elif self.room is None or not _is_near(self.room, new):
            self.room = new


def _is_near(room: FixedCapacity, learned: FixedCapacity) -> bool:
    pairs = (room.own, learned.own), (room.total, learned.total)
    return all(STEADY[0] * new <= old <= STEADY[1] * new for old, new in pairs)


def capacity_of(given: Shares | None, plan: Plan, size: int) -> Capacity | None:
    """Return the capacities by ``given`` for ``plan``; raises ZencError ``bad-capacity``, ``no-capacity-mode``.

    Without a share for sums, theirs is that of all ``size`` ranks together. None, given: learned where it can be.
    """
    learned = given is None or given == "learned"
    why = _no_room_because(plan) or (DENSITY_IS_KNOWN if learned and plan.is_lossy else "")
    if given == "exact" or (given is None and (why or plan.feedback is not None)):
        return None
    if why:
        message = f"{plan.scheme} has no capacity mode: {why}"
        raise ZencError(Diagnostic("no-capacity-mode", message, help="leave out capacity="))
    if learned:
        return LearnedCapacity()
    own = total = 0.0
    match given:
        case (int() | float() as own, int() | float() as total):
            pass
        case int() | float() as own:
            total = min(1.0, own * size)
    if not 0 < own <= total <= 1:
        message = f"capacity={given!r} is no share of the units"
        help = (
            "give the greatest density of a rank's gradient, above 0 and up to 1, or a pair: with that of the sum; "
            "or 'learned', or 'exact'"
        )
        raise ZencError(Diagnostic("bad-capacity", message, help=help))
    return FixedCapacity(own, total)


def _no_room_because(plan: Plan) -> str:
    """Return why no room can be made for the calls of ``plan`` before anything is known; empty where it can."""
    later = [phase for phase in plan.phases if phase is not plan.of(PhaseKind.PUSH)[0]]
    if plan.announces:
        return "who holds what decides about its messages, and is asked first"
    if isinstance(plan.mapping, Encoded):
        return "its parts are cut by the bytes of sums, which are not known before"
    if any(isinstance(phase.code, Fixed) for phase in plan.phases):
        return "all ranks agree on the scale of its integers before they send any"
    if any(phase.merge for phase in plan.phases) or any(phase.select for phase in later):
        return "what its ranks select of sums is counted before it is sent"
    if any(phase.code is not None and phase.format is not Format.DENSE for phase in plan.phases):
        return "what it encodes has an index, and how many values follow that is not known before"
    return ""
