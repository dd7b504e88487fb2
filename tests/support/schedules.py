"""Random expressions, statements and schedules, and their texts."""

from functools import cache
from typing import TypeAlias

from hypothesis import strategies as st

from zenc.errors import printable
from zenc.language import schedule as s
from zenc.language.formatter import expression_text, parts_text
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

names = st.sampled_from(["rank", "size", "parts", "one_shot", "k", "half_2", "order", "total", "_x"])


@cache
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


@cache
def messages() -> st.SearchStrategy[str]:
    """Draw text for a string: anything that can be shown, in one line."""
    texts = st.text(st.characters(exclude_characters='"\0', codec="utf-8"), max_size=20)
    return texts.map(lambda text: printable(" ".join(text.split())))


@cache
def blocks() -> st.SearchStrategy[Block]:
    e = expressions()
    parts = st.builds(All) | st.builds(Part, e) | st.builds(PartRange, e, e)
    sends = st.builds(Send, parts, e, st.none() | e, st.none() | e)
    leaves = st.builds(Let, names, e) | sends | st.builds(Require, e, messages())

    def compound(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        block = st.lists(inner, max_size=3).map(tuple)
        return st.builds(Step, block) | st.builds(For, names, e, e, block) | st.builds(If, e, block, block)

    return st.lists(st.recursive(leaves, compound, max_leaves=6), max_size=4).map(tuple)  # type: ignore[arg-type]


_Lines: TypeAlias = list[str]

_WIDEST = 100
_INDENT = "    "


def block_text(block: s.Block, indent: int = 0) -> str:
    """Return the statements, one a line; blocks of one short statement stand on the line of their head."""
    return "\n".join(block_lines(block, indent))


def block_lines(block: s.Block, indent: int = 0) -> list[str]:
    """Return the lines of ``block_text``; ``indent`` counts levels of four spaces."""
    return [_INDENT * indent + line for statement in block for line in _statement(statement)]


def _statement(statement: s.Statement) -> _Lines:
    match statement:
        case s.Let():
            return [f"let {statement.name} = {expression_text(statement.value)}"]
        case s.Require(condition, message):
            return [f'require {expression_text(condition)} "{message}"']
        case s.Send():
            return [_send(statement)]
        case s.Step():
            return _braced("step", statement.body)
        case s.For():
            first, last = expression_text(statement.first), expression_text(statement.last)
            return _braced(f"for {statement.variable} in {first} .. {last}", statement.body)
        case s.If():
            return _if(statement)


def _if(statement: s.If) -> _Lines:
    lines = _braced(f"if {expression_text(statement.condition)}", statement.then)
    if not statement.otherwise:
        return lines
    only = statement.otherwise[0]
    chained = len(statement.otherwise) == 1 and isinstance(only, s.If)
    rest = _statement(only) if chained else _braced("", statement.otherwise)
    head = f"else {rest[0].lstrip()}"
    if lines[-1] == "}":
        return [*lines[:-1], f"}} {head}", *rest[1:]]
    return [*lines, head, *rest[1:]]


def _braced(head: str, body: s.Block) -> _Lines:
    inner = [line for statement in body for line in _statement(statement)]
    if not inner:
        return [f"{head} {{ }}"]
    if len(inner) == 1 and len(head) + len(inner[0]) + 5 <= _WIDEST:
        return [f"{head} {{ {inner[0]} }}"]
    return [f"{head} {{", *(_INDENT + line for line in inner), "}"]


def _send(send: s.Send) -> str:
    of = f" of {expression_text(send.origin)}" if send.origin is not None else ""
    where = f" where {expression_text(send.where)}" if send.where is not None else ""
    return f"send {parts_text(send.parts)}{of} to {expression_text(send.to)}{where}"
