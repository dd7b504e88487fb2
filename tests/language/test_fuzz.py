"""Whatever the text, what comes out is a program or a ZencError."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from zenc.errors import ZencError
from zenc.language.load import load_text
from zenc.resources import directory
from zenc.scheme.resolve import resolve

SHIPPED = [path.read_text(encoding="utf-8") for path in sorted(directory("schemes").glob("*.zen"))]
WORDS = [
    "scheme",
    "schedule",
    "import",
    "push",
    "pull",
    "step",
    "for",
    "in",
    "if",
    "else",
    "let",
    "tier",
    "tier node(2): dense_ring",
    "topology",
    "levels",
    "link",
    "unlink",
    "switch",
    "memory",
    "like",
    "->",
    "3 GB/s",
    "send",
    "require",
    "all",
    "part",
    "parts",
    "of",
    "to",
    "where",
    "and",
    "or",
    "not",
    "mod",
    "by\n",
    "",
    "",
    "",
    "then",
    "{",
    "}",
    "(",
    ")",
    ",",
    ":",
    "=",
    "==",
    "<",
    "<<",
    "..",
    "+",
    "-",
    "*",
    "/",
    "^",
    "&",
    "|",
    "0",
    "1",
    "2.5",
    "0x7",
    '"s"',
    "a",
    "rank",
    "size",
    "log2",
    "communication",
    "ring",
    "#",
    "\n",
    ";",
    "%",
    "\x00\n",
    "",
    "",
    "",
    "",
]


def assert_survives(text: str) -> None:
    try:
        resolve(load_text(text))
    except ZencError as error:
        assert error.diagnostics
        assert "Expected one of" not in str(error)


@given(st.text())
@example("\ud800")
@settings(deadline=None)
def test_any_text(text: str) -> None:
    assert_survives(text)


@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join))
@settings(deadline=None, max_examples=200)
def test_any_words(text: str) -> None:
    assert_survives(text)
    assert_survives("scheme a { communication: schedule { push { " + text)
    assert_survives("topology a { " + text)


@given(st.sampled_from(SHIPPED), st.data())
@settings(deadline=None, max_examples=200)
def test_shipped_schemes_with_a_change(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    assert_survives(text[:start] + data.draw(st.sampled_from(["", *WORDS]) | st.text(max_size=5)) + text[end:])
