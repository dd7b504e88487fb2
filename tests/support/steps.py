"""Rounds of a plan as the moves that ``tests.support.executor`` plays."""

from __future__ import annotations

from tests.support.executor import Move, Steps
from zenc.plan.rounds import Round


def steps_of(rounds: tuple[Round, ...]) -> Steps:
    """One move a part."""
    return [
        [
            Move(int(src), int(dst), part, int(origin))
            for src, dst, first, last, origin in zip(r.src, r.dst, r.first, r.last, r.origin, strict=True)
            for part in range(int(first), int(last) + 1)
        ]
        for r in rounds
    ]
