"""An executor of moves that shares nothing with the verifier: lists of Python objects instead of sets in arrays.

It follows the words of ``zenc.plan.model``. A contribution is a number of its own; a sum is the nested tuple of what
was added, in order. Values are played as exact fractions too, so that the final numbers can be looked at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass(frozen=True)
class Move:
    """``origin`` is -1, or the rank whose contribution alone is sent."""

    src: int
    dst: int
    part: int
    origin: int = -1


class Wrong(Exception):
    """The moves do not do what they are for."""


Steps = list[list[Move]]


def leaves(tree: Any) -> list[int]:
    """The ranks whose contributions are in ``tree``, as often as they are."""
    return [tree] if isinstance(tree, int) else [leaf for branch in tree for leaf in leaves(branch)]


def execute(push: Steps, pull: Steps, size: int, parts: int, one_shot: bool) -> None:
    """Play the moves; raises Wrong unless every rank ends with every part, summed once from each rank, in one order."""
    held: list[list[list[Any]]] = [[[rank] for _ in range(parts)] for rank in range(size)]
    for step in push:
        play_push(step, held, one_shot)
    for step in pull:
        play_pull(step, held, size)
    everyone = list(range(size))
    for part in range(parts):
        for rank in range(size):
            if sorted(contributions(held[rank][part])) != everyone:
                raise Wrong(f"rank {rank} ends without part {part}")
            if not one_shot and held[rank][part] != held[0][part]:
                raise Wrong(f"rank {rank} adds part {part} in another order than rank 0")
    check_numbers(held, size, parts)


def contributions(pieces: list[Any]) -> list[int]:
    return [leaf for piece in pieces for leaf in leaves(piece)]


def play_push(step: list[Move], held: list[list[list[Any]]], one_shot: bool) -> None:
    arriving: dict[tuple[int, int], list[tuple[int, list[Any]]]] = {}
    for move in step:
        pieces = held[move.src][move.part]
        if move.origin >= 0:
            if not one_shot:
                raise Wrong("merged pieces have no single origin")
            pieces = [piece for piece in pieces if piece == move.origin]
            if not pieces:
                raise Wrong("nothing to send")
        arriving.setdefault((move.dst, move.part), []).append((move.src, list(pieces)))
    joined = {}
    for (dst, part), came in arriving.items():
        groups = sorted([(dst, held[dst][part]), *came], key=lambda group: group[0])
        together = [piece for _, pieces in groups for piece in pieces]
        if max(Counter(contributions(together)).values()) > 1:
            raise Wrong(f"rank {dst} counts part {part} twice")
        joined[dst, part] = together if one_shot else [tuple(together)]
    for (dst, part), pieces in joined.items():
        held[dst][part] = pieces


def play_pull(step: list[Move], held: list[list[list[Any]]], size: int) -> None:
    before = [[list(pieces) for pieces in parts] for parts in held]
    taken = set()
    for move in step:
        if len(contributions(before[move.src][move.part])) != size:
            raise Wrong("an incomplete part is sent in the pull")
        if len(contributions(before[move.dst][move.part])) == size or (move.dst, move.part) in taken:
            raise Wrong("a part comes twice in the pull")
        taken.add((move.dst, move.part))
        held[move.dst][move.part] = before[move.src][move.part]


def check_numbers(held: list[list[list[Any]]], size: int, parts: int) -> None:
    """The same with numbers: rank r gives 1 / (r + 2) of part p, and p; every sum is the one expected."""
    for part in range(parts):
        expected = sum((Fraction(1, rank + 2) + part for rank in range(size)), Fraction(0))
        for rank in range(size):
            total = sum((Fraction(1, leaf + 2) + part for leaf in contributions(held[rank][part])), Fraction(0))
            if total != expected:
                raise Wrong(f"rank {rank} ends with {total} in part {part}, not {expected}")
