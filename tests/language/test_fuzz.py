"""Any text parses to a program or raises a ZencError."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.damage import damaged
from tests.support.fuzz import fuzzed
from tests.support.programs import programs
from tests.support.survival import reading_faults
from tests.support.words import WORDS
from zenc.common.resources import directory
from zenc.language.files import load_text

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
