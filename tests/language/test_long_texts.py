"""Texts of any length take no more time and memory than in proportion."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from zenc.errors import Source, ZencError
from zenc.language.files import load_text
from zenc.language.formatter import format_text
from zenc.language.lexer import Lexer, tables
from zenc.scheme.resolve import resolve
from zenc.topology.load import resolve_topology


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
        with pytest.raises(ZencError) as refused:
            read(text)
        assert {diagnostic.id for diagnostic in refused.value.diagnostics} <= {"nesting", "syntax"}
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
