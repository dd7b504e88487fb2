"""The tables are those of the grammar, and parsing by them gives lark's trees."""

import re
import time
import tracemalloc
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from tests.support.refusals import refusals
from zenc.common.resources import directory
from zenc.errors import Source, ZencError
from zenc.language import generate_tables, lexer, parse
from zenc.language.files import load_text
from zenc.language.formatter import format_text
from zenc.language.lexer import Lexer, tables
from zenc.language.rules import Rules
from zenc.scheme.resolve import resolve
from zenc.topology.load import resolve_topology

Start = Literal["start_file", "start_block", "start_expression"]

GRAMMAR = directory("grammar") / "zen.lark"
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(directory("schemes").glob("*.zen"))]
PIECE = re.compile(r'"[^"]*"|#[^\n]*\n|\w+|\.\.|->|[=!<>]=|<<|>>|\S|\s+')
RARE = {"1.5", "0x_f", "1..2", "->", "\N{NO-BREAK SPACE}"}
PIECES = sorted(RARE.union(*(PIECE.findall(text) for text in TEXTS)))


class Plain(Rules):
    """A builder that keeps nodes and tokens as they are."""

    def __getattr__(self, name: str) -> Any:
        if name.isupper():
            return lambda token: token
        return lambda span, *items: (name, span.start, span.end, [plain(item) for item in items])


def plain(item: object) -> object:
    """Return a node or a token, of ours or of lark's, in one form."""
    match item:
        case lexer.Token(terminal, text, start):
            return terminal, text, start
        case Token():
            return item.type, str(item), item.start_pos
        case Tree(data, children) if item.meta.empty:
            return str(data), 0, 0, [plain(child) for child in children]
        case Tree(data, children):
            return str(data), item.meta.start_pos, item.meta.end_pos, [plain(child) for child in children]
    return item


@lru_cache(maxsize=1)
def lark() -> Lark:
    return generate_tables.grammar(GRAMMAR.read_text(encoding="utf-8"))


def by_lark(text: str, start: Start) -> object:
    """Return the tree, or None where lark refuses the text."""
    try:
        return plain(lark().parse(text, start=start))
    except UnexpectedInput:
        return None


def by_tables(text: str, start: Start) -> object:
    reader = parse._TreeReader(Source("t", text), start)
    steps = reader.read()
    return None if reader.problems else Plain(reader.source).build(steps)


def test_the_tables_are_those_of_the_grammar() -> None:
    known = GRAMMAR.with_suffix(".json").read_text(encoding="utf-8")
    made = generate_tables.text_of(generate_tables.worked_out(GRAMMAR.read_text(encoding="utf-8")))
    assert made == known, "the grammar has changed: run make tables"


def test_a_grammar_that_was_changed_is_read_by_lark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of tables beside a changed grammar is stale, and not used."""
    text = GRAMMAR.read_text(encoding="utf-8")
    (tmp_path / "zen.json").write_bytes(GRAMMAR.with_suffix(".json").read_bytes())
    (tmp_path / "zen.lark").write_text(text.replace('"scheme"', '"synchronise"'), encoding="utf-8")
    monkeypatch.setattr(lexer, "directory", lambda name: tmp_path)
    changed, known = lexer.tables.__wrapped__(), lexer.tables()
    assert "SYNCHRONISE" in changed.terminals.keys() | set(changed.words.values())
    assert "SYNCHRONISE" not in known.terminals.keys() | set(known.words.values())


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.splitlines()[0])
def test_shipped_texts_read_as_by_lark(text: str) -> None:
    assert by_tables(text, "start_file") == by_lark(text, "start_file") is not None


@st.composite
def spoilt(draw: st.DrawFn) -> str:
    """Draw a shipped text with a few pieces removed or inserted."""
    pieces = PIECE.findall(draw(st.sampled_from(TEXTS)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(pieces) - 1))
        pieces[place : place + draw(st.integers(0, 1))] = draw(st.lists(st.sampled_from(PIECES), max_size=2))
    return "".join(pieces)


@settings(deadline=None)
@given(spoilt())
def test_spoilt_texts_read_as_by_lark(text: str) -> None:
    assert by_tables(text, "start_file") == by_lark(text, "start_file")


@settings(deadline=None)
@example("start_block", "")
@example("start_file", "# nothing")
@example("start_expression", "(a << (b))")
@example("start_expression", "a->b")
@example("start_block", "step { send all to total } for i in 1..2 { }")
@example("start_file", "topology t { link a->b: 3 GB/s, 2 us link a - b: 1.5e3 GB }")
@given(
    st.sampled_from(["start_block", "start_expression"]), st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join)
)
def test_any_text_reads_as_by_lark(start: Start, text: str) -> None:
    assert by_tables(text, start) == by_lark(text, start)


def body(statements: str) -> str:
    return f"schedule s {{ push {{ {statements} }} pull {{ }} }}"


def numbered(text: str, count: int) -> str:
    return "".join(text.replace("@", str(n)) for n in range(count))


LONG: dict[str, Callable[[int], str]] = {
    "keys": lambda n: f"scheme a {{ {numbered('k@: auto' + chr(10), n)} }}",
    "tiers": lambda n: f"scheme a {{ {numbered('tier t@(2): dense_ring' + chr(10), n)} }}",
    "parameters": lambda n: f"scheme a({numbered('k@ = 1, ', n)}z) {{ push: auto }}",
    "imports": lambda n: numbered('import "nowhere_@"\n', n),
    "statements": lambda n: body("let a = 1\n" * n),
    "comments": lambda n: body("# nothing\n" * n),
    "comments beside": lambda n: body("let a = 1  # nothing\n" * n),
    "one comment": lambda n: f"# {'x' * 10 * n}\n{body('')}",
    "one doc": lambda n: f'scheme a {{ "{"x  y" * n}" push: auto }}',
    "white space": lambda n: f"scheme a {{ {' ' * 10 * n}push: auto }}",
    "one sum": lambda n: body(f"let a = {'1 + ' * n} 1"),
    "arguments": lambda n: body(f"let a = f({'1, ' * n} 1)"),
    "errors": lambda n: body("let a = = 1\n" * n),
    "quotes": lambda n: '"\n' * n,
    "words": lambda n: "scheme a " * n,
    "links": lambda n: f"topology t {{ levels: gpu(2) {'link gpu(0) - gpu(1): 1 GB/s' * n} }}",
    "unknown names": lambda n: f"scheme a {{ communication: schedule {{ push {{ {numbered('let a@ = b@ ', n)} }} }} }}",
    "unknown schemes": lambda n: f"scheme t {{ {numbered('tier a@(2): b@ ', n)} }} {numbered('scheme c@ { }', n)}",
    "unused names": lambda n: f"topology t {{ like ring(2) {numbered('let a@ = 1 ', n)} }}",
}
MANY = {2_000: 5.0, 6_000: 15.0}
"""Statements, and the seconds for them; quadratic time takes a minute and more at 6,000."""


@pytest.mark.one_in(6)
@pytest.mark.parametrize("count", [2_000, pytest.param(6_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", LONG)
def test_long_texts(kind: str, count: int) -> None:
    text = LONG[kind](count)
    start = time.process_time()
    for read in (read_scheme, read_topology, lay_out):
        try:
            read(text)
        except ZencError as error:
            assert 0 < len(error.diagnostics) <= 20 and str(error)
    assert time.process_time() - start < MANY[count]


def read_scheme(text: str) -> None:
    program = load_text(text)
    resolve(program, next((scheme.name.text for scheme in program.main.schemes), None))


def read_topology(text: str) -> None:
    resolve_topology(load_text(text))


def lay_out(text: str) -> None:
    format_text(text, "long.zen")


DEEP: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: body(f"let a = {'(' * n}1{')' * n}"),
    "open parentheses": lambda n: body("let a = " + "(" * n),
    "minus": lambda n: body(f"let a = {'-' * n}1"),
    "not": lambda n: body(f"let a = {'not ' * n}1"),
    "calls": lambda n: body(f"let a = {'f(' * n}{')' * n}"),
    "blocks": lambda n: body("if a { " * n + "}" * n),
    "open blocks": lambda n: body("if a {\n" * n),
    "branches": lambda n: body("if a { } " + "else if a { } " * n),
    "declarations": lambda n: f"topology t {{ {'for i in 0 .. 1 { ' * n}{'}' * n} }}",
    "indices": lambda n: f"topology t {{ switch s({'(' * n}1{')' * n}) }}",
}


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("depth", [3_000, 100_000])
def test_deep_texts(kind: str, depth: int) -> None:
    """Unreasonable nesting is refused, and never overruns Python's stack."""
    text = DEEP[kind](depth)
    start = time.process_time()
    for read in (load_text, lay_out):
        assert {diagnostic.id for diagnostic in refusals(ZencError, read, text)} <= {"nesting", "syntax"}
    assert time.process_time() - start < 5


def test_comments_take_no_memory() -> None:
    source = Source("long.zen", body("# nothing\n" * 50_000))
    lexer = Lexer(tables())
    tracemalloc.start()
    found = [token.text for token in lexer.tokens(source.text, 0, [tables().starts["start_file"]])]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[:2] == ["schedule", "s"] and found[-2:] == ["}", ""]
    assert peak < 10_000_000
