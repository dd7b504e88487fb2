"""Canonical text parses back to its tree; any text parses to a program or raises a ZencError."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.damage import WORDS, damaged
from tests.support.fuzz import fuzzed
from tests.support.programs import programs
from tests.support.schedules import block_lines, block_text, blocks, expressions
from tests.support.survival import reading_faults
from zenc.common.resources import directory
from zenc.errors import Source
from zenc.language.files import load_text
from zenc.language.formatter import expression_text
from zenc.language.parse import parse, parse_block, parse_expression
from zenc.language.schedule import Block, Expression, Integer


@fuzzed(100)
@given(expressions())
def test_expressions_come_back(expression: Expression) -> None:
    assert parse_expression(expression_text(expression)) == expression


@fuzzed(60)
@given(blocks())
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
        "(a + b) * c - (d - e)", "not (a and b) or c == (d < e)", "-(a + b)", "a - -b", "1 << k & 3",
        "a mod b / c mod d", "min(a + 1, -b)", "(not a) + 1",
    ],
)  # fmt: skip
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


SHIPPED = [path.read_text(encoding="utf-8") for path in sorted(directory("schemes").rglob("*.zen"))]


@fuzzed(100)
@given(st.text())
@example("\ud800")
def test_any_text(text: str) -> None:
    assert reading_faults(text) == []


@fuzzed(200)
@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
def test_any_words(text: str) -> None:
    assert reading_faults(text) == []
    assert reading_faults("scheme a { communication: schedule { push { " + text) == []
    assert reading_faults("topology a { " + text) == []


@fuzzed(200)
@given(damaged(st.sampled_from(SHIPPED), WORDS))
def test_shipped_texts_with_changes(text: str) -> None:
    assert reading_faults(text) == []


@fuzzed(100)
@given(programs())
def test_generated_programs(text: str) -> None:
    if "no such.zen" not in text:
        assert load_text(text).main
    assert reading_faults(text) == []


@fuzzed(100)
@given(damaged(programs(), WORDS))
def test_generated_programs_with_changes(text: str) -> None:
    assert reading_faults(text) == []
