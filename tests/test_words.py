"""Numbers in messages agree with their nouns."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.sources import nodes_of
from zenc.common.wording import aligned, count
from zenc.verify.provenance import MOST_NAMED, named

PACKAGE = Path(__file__).resolve().parents[1] / "zenc"
OTHERS = re.compile(r" (?:(?:other|more) [a-z]+s|others|[a-z]+s more(?! than))\b")
"""Words that follow a number, where one alone would be wrong."""


def test_one_and_many() -> None:
    assert (count(1, "step"), count(0, "step"), count(1200, "step")) == ("1 step", "0 steps", "1,200 steps")
    assert (count(1, "entry", "entries"), count(2, "entry", "entries")) == ("1 entry", "2 entries")


def test_cells_of_a_column_begin_or_end_below_each_other() -> None:
    rows = [("name", "bytes", ""), ("a", "12", "none"), ("longest", "3", "")]
    assert aligned(rows, [1]) == ["name     bytes", "a           12  none", "longest      3"]
    assert aligned(rows, gap=" ") == ["name    bytes", "a       12    none", "longest 3"]
    assert aligned([]) == []


def test_one_rank_more_than_are_named() -> None:
    assert named(list(range(MOST_NAMED + 1))).endswith(" and 1 other")


def test_how_many_others_there_are_is_counted() -> None:
    """``{n} more steps`` would say ``1 more steps``: such words come from ``count``."""
    wrong = [
        f"{path}: {after.value}"
        for path in PACKAGE.rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.JoinedStr)
        for before, after in zip(node.values, node.values[1:], strict=False)
        if isinstance(before, ast.FormattedValue) and isinstance(after, ast.Constant) and OTHERS.match(str(after.value))
    ]
    assert wrong == []
