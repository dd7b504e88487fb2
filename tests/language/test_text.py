"""Canonical text parses back to the tree it was made of."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenc.errors import Source
from zenc.language.parse import parse, parse_block, parse_expression
from zenc.language.schedule import (
    BINARY_OPERATORS,
    UNARY_OPERATORS,
    All,
    Apply,
    Binary,
    Block,
    Expression,
    For,
    If,
    Integer,
    Let,
    Part,
    PartRange,
    Require,
    Send,
    Step,
    Unary,
    Variable,
)
from zenc.language.text import block_lines, block_text, expression_text
from zenc.resources import directory

names = st.sampled_from(["rank", "size", "parts", "one_shot", "k", "half_2", "order", "total", "_x"])


def expressions() -> st.SearchStrategy[Expression]:
    leaves = st.builds(Integer, st.integers(0, 2**64 - 1)) | st.builds(Variable, names)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Unary, st.sampled_from(UNARY_OPERATORS), inner),
            st.builds(Binary, st.sampled_from(BINARY_OPERATORS), inner, inner),
            st.builds(Apply, names, st.lists(inner, max_size=3).map(tuple)),
        ),
        max_leaves=12,
    )


def blocks() -> st.SearchStrategy[Block]:
    e = expressions()
    parts = st.builds(All) | st.builds(Part, e) | st.builds(PartRange, e, e)
    messages = st.text(st.characters(exclude_characters='"\0', codec="utf-8")).map(lambda text: " ".join(text.split()))
    sends = st.builds(Send, parts, e, st.none() | e, st.none() | e)
    leaves = st.builds(Let, names, e) | sends | st.builds(Require, e, messages)

    def compound(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        block = st.lists(inner, max_size=3).map(tuple)
        return st.builds(Step, block) | st.builds(For, names, e, e, block) | st.builds(If, e, block, block)

    return st.lists(st.recursive(leaves, compound, max_leaves=6), max_size=4).map(tuple)  # type: ignore[arg-type]


@given(expressions())
@settings(deadline=None)
def test_expressions_come_back(expression: Expression) -> None:
    assert parse_expression(expression_text(expression)) == expression


@given(blocks())
@settings(deadline=None, max_examples=60)
def test_blocks_come_back(block: Block) -> None:
    assert parse_block(block_text(block)) == block
    assert parse_block(block_text(block, indent=2)) == block


@pytest.mark.parametrize("schedule", parse(Source("p", (directory("schemes") / "patterns.zen").read_text())).schedules)
def test_patterns_come_back(schedule: object) -> None:
    for block in (schedule.push, schedule.pull):  # type: ignore[attr-defined]
        assert parse_block(block_text(block)) == block


@pytest.mark.parametrize(
    "text",
    [
        "(a + b) * c - (d - e)",
        "not (a and b) or c == (d < e)",
        "-(a + b)",
        "a - -b",
        "1 << k & 3",
        "a mod b / c mod d",
        "min(a + 1, -b)",
        "(not a) + 1",
    ],
)
def test_parentheses_are_the_fewest(text: str) -> None:
    assert expression_text(parse_expression(text)) == text


def test_a_negative_literal_is_still_read() -> None:
    assert expression_text(Integer(-3)) == "-3"


def test_layout() -> None:
    text = "let n = 1\nif n { step { send all to 1 } }\nelse {\n    let m = 2\n    step { }\n}"
    assert block_text(parse_block(text)) == text
    assert block_lines(parse_block("if a { let b = 1 let c = 2 } else if d { } else { }"), indent=1) == [
        "    if a {",
        "        let b = 1",
        "        let c = 2",
        "    } else if d { }",
    ]
