"""Subsets of the slots that an owner has: those that some ranks hold, as the index sets of all ranks tell by holders.

    Subset = part rank marked  pieces: number*        # slots of a part: those of one rank, or of several pieces

The owner of a part holds all of its slots, so what it has contributed to has those of the owner alone. ``marked``
subsets are needed as bitmaps, the others only as counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Ranks: TypeAlias = tuple[int, ...]
Key: TypeAlias = tuple[int, Ranks]
"""A part, and ranks in ascending order."""


@dataclass(frozen=True, slots=True)
class Subset:
    """``rank`` is -1 where there are ``pieces``."""

    part: int
    rank: int
    marked: bool = False
    pieces: tuple[int, ...] = ()


@dataclass(slots=True)
class OwnerSubsets:
    """Those that are asked for, by part and ranks, and whether as bitmaps."""

    marked: dict[Key, bool] = field(default_factory=dict)

    def ask(self, of: Key, *, marked: bool) -> None:
        """Ask for that of a part by ranks; for several of them also for that of each, as bitmaps."""
        part, ranks = key = canonical(of)
        several = len(ranks) > 1
        self.marked[key] = self.marked.get(key, False) or marked or several
        for rank in ranks if several else ():
            self.ask((part, (rank,)), marked=True)

    def numbers(self) -> dict[Key, int]:
        """Key, as ``canonical`` has it, -> the number among those that are ``made``."""
        order = sorted(self.marked, key=lambda key: (len(key[1]) > 1, not self.marked[key], key))
        return {key: number for number, key in enumerate(order)}

    def made(self) -> tuple[Subset, ...]:
        """All that was asked for: first those of one rank, and of these first the marked ones."""
        numbers = self.numbers()
        return tuple(
            Subset(part, ranks[0], self.marked[part, ranks])
            if len(ranks) == 1
            else Subset(part, -1, True, tuple(numbers[part, (rank,)] for rank in ranks))
            for part, ranks in numbers
        )


def canonical(of: Key) -> Key:
    """The owner alone has all slots that it has with others."""
    part, ranks = of
    return part, (part,) if part in ranks else ranks
