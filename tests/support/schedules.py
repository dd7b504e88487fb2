"""Random schedules, as trees, which may mean nothing."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from zenc.errors import printable
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
