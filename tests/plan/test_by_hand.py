"""``plan.json`` is complete: a reader that knows nothing but docs/internals/plan.md executes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import zenc

Sends = list[tuple[int, int]]
"""Sent parts with their receivers."""


def value(text: str, names: dict[str, int]) -> int:
    """Evaluate an expression of ``balanced``, whose operators are those of Python but for two."""
    return int(eval(re.sub(r"\bmod\b", "%", text).replace("/", "//"), {}, names))


def moves(block: list[dict[str, Any]], names: dict[str, int]) -> Iterator[Sends]:
    for item in block:
        if "step" in item:
            yield [move for send in moves(item["step"], names) for move in send]
        elif "for" in item:
            for i in range(value(item["from"], names), value(item["to"], names) + 1):
                yield from moves(item["do"], {**names, item["for"]: i})
        elif "if" in item:
            yield from moves(item["then"] if value(item["if"], names) else item["else"], names)
        else:
            which = item["send"].partition(" ")[2]
            chosen = range(names["parts"]) if item["send"] == "all" else [value(which, names)]
            yield [(part, value(item["to"], names)) for part in chosen]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_balanced_by_hand(size: int) -> None:
    plan = zenc.compile("balanced", target="plan").plan.to_json()
    held = [[f"{part}{'abcde'[rank]}" for part in range(size)] for rank in range(size)]
    sums = [" + ".join(f"{part}{letter}" for letter in "abcde"[:size]) for part in range(size)]
    for phase, (described,) in (("push", plan["pushes"]), ("pull", plan["pulls"])):
        names = {"size": size, "parts": size}
        of_rank = [list(moves(described["moves"], {"rank": rank, **names})) for rank in range(size)]
        for step in zip(*of_rank, strict=True):
            before = [list(row) for row in held]
            for rank in range(size):
                arriving = [(source, part) for source in range(size) for part, to in step[source] if to == rank]
                for part in {part for _, part in arriving}:
                    holders = [source for source, other in arriving if other == part] + [rank] * (phase == "push")
                    held[rank][part] = " + ".join(before[holder][part] for holder in sorted(holders))
        if phase == "push":
            assert [held[rank][rank] for rank in range(size)] == sums
    assert held == [sums] * size
