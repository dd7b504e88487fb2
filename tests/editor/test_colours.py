"""Colours against the grammar: each terminal of lark's tables is one token of the lexer, of a like kind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pygments.lexers import load_lexer_from_file
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace

from zenc.common.resources import directory
from zenc.editor import tokens
from zenc.editor.highlight import TOKENS, ZenLexer
from zenc.editor.tokens import NAMED, OPERATOR_WORDS, PUNCTUATION, rules
from zenc.errors import Source
from zenc.language.lexer import END, Token, tables
from zenc.language.parse import _TreeReader

FILES = sorted(directory("schemes").rglob("*.zen"))
VSCODE = directory("grammar") / "vscode"


class Tokens(_TreeReader):
    """Formatter that keeps the tokens it gets."""

    def __init__(self, text: str) -> None:
        super().__init__(Source("t", text), "start_file")
        self.found: list[Token] = []
        self.read()
        assert not self.problems

    def _remember(self, token: Token) -> None:
        super()._remember(token)
        if token.terminal != END:
            self.found.append(token)


def fits(token: Token, kind: object) -> bool:
    """Return whether a token of the grammar may have the colour ``kind``."""
    if token.terminal in ("NAME", "WORD"):
        return kind in Name or kind is Keyword.Type
    if token.terminal in NAMED:
        return kind in (String if token.terminal == "STRING" else Number)
    if token.terminal in PUNCTUATION:
        return kind in Punctuation
    return kind in Keyword if token.text.isalpha() and token.text not in OPERATOR_WORDS else kind in Operator


def coloured(text: str) -> dict[int, tuple[object, str]]:
    return {at: (kind, part) for at, kind, part in ZenLexer().get_tokens_unprocessed(text)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tokens_of_shipped_files_are_those_of_the_grammar(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    left = coloured(text)
    for token in Tokens(text).found:
        kind, part = left.pop(token.start)
        if part.startswith(token.text + "/") and kind is Keyword.Type:  # one unit, which is three terminals
            left |= {token.end: (Operator, "/"), token.end + 1: (Keyword.Type, part.partition("/")[2])}
        else:
            assert part == token.text, f"{path.name}: {part!r} is {token.text!r}"
        assert fits(token, kind), f"{path.name}: {part!r} is {token.terminal}, and coloured as {kind}"
    assert {kind for kind, _ in left.values()} <= {Comment.Single, Whitespace}


def test_all_that_the_grammar_knows_has_a_colour() -> None:
    known = tables()
    for word in known.words:
        assert any(re.search(rf"\b{word}\b", rule.pattern.replace(r"\b", " ")) for rule in rules()), word
    for name, pattern in known.terminals.items():
        assert name in ("NAME",) or any(pattern in rule.pattern for rule in rules()), name
    assert {kind for rule in rules() for kind in rule.kinds} == set(TOKENS) == {"", *tokens.SCOPES}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("300 GB/s", [Number, Whitespace, Keyword.Type]),
        ("push: auto", [Name.Attribute, Punctuation, Whitespace, Name]),
        ("push {", [Keyword, Whitespace, Punctuation]),
        ("parts - 1", [Name.Builtin, Whitespace, Operator, Whitespace, Number]),
        ("send parts 1", [Keyword, Whitespace, Keyword, Whitespace, Number]),
        ('"over\nlines" # note', [String.Double, Whitespace, Comment.Single]),
        ("let memory = 3", [Keyword, Whitespace, Name, Whitespace, Operator, Whitespace, Number]),
        ("scheme $", [Keyword, Whitespace, "Error"]),
    ],
)
def test_colours(text: str, kinds: list[object]) -> None:
    found = [kind for _, kind, _ in ZenLexer().get_tokens_unprocessed(text)]
    assert [str(kind).rpartition(".")[2] if kind not in TOKENS.values() else kind for kind in found] == kinds


def test_the_textmate_grammar_is_what_the_command_writes() -> None:
    path = directory("grammar") / tokens.PLACE
    assert path.read_text(encoding="utf-8") == tokens.textmate_text(), "run python -m zenc.editor.tokens"


def test_the_extension_names_what_is_there() -> None:
    package = json.loads((VSCODE / "package.json").read_text(encoding="utf-8"))
    (language,), (grammar,) = package["contributes"]["languages"], package["contributes"]["grammars"]
    assert language["extensions"] == [".zen"] and grammar["scopeName"] == tokens.textmate_grammar()["scopeName"]
    for place in (package["main"], language["configuration"], grammar["path"]):
        assert (VSCODE / place).is_file(), place
    settings = json.loads((VSCODE / language["configuration"]).read_text(encoding="utf-8"))
    assert settings["comments"]["lineComment"] == "#"

    """The entry point names the lexer, and no word of any block is an error to it."""
    root = Path(__file__).resolve().parents[2]
    assert 'zen = "zenc.editor.highlight:ZenLexer"' in (root / "pyproject.toml").read_text(encoding="utf-8")
    blocks = list(zen_blocks(root))
    assert len(blocks) > 5
    for block in blocks:
        assert all("Error" not in str(kind) for _, kind, _ in ZenLexer().get_tokens_unprocessed(block)), block


def zen_blocks(root: Path) -> Iterator[str]:
    for page in (root / "README.md", *(root / "docs").rglob("*.md")):
        yield from re.findall(r"^```zen\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_pygments_finds_it_by_the_file() -> None:
    lexer = load_lexer_from_file(str(Path(tokens.__file__).parent / "highlight.py"), "ZenLexer")
    assert lexer.aliases == ["zen"]
