"""The tokens of the language for colouring: one list of patterns, which Pygments and TextMate both read.

    TokenRule = pattern x Kind*                  # a kind for each group of the pattern; "" is white space
    Kind = comment | string | number | unit | keyword | key | declared | call | builtin | operator | punctuation | name

Words, operators, numbers and comments are those of the tables that are made of ``grammar/zen.lark``. The kind of a word
depends on the grammar around it; here the characters beside it must do. So a text that does not parse has colours, too.

Visual Studio Code and others read the TextMate grammar that ``python -m zenc.editor.tokens`` writes from them, to
``grammar/vscode/syntaxes/zen.tmLanguage.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from zenc.common.resources import directory
from zenc.language.lexer import tables
from zenc.language.schedule import BUILTIN_NAMES, FUNCTIONS
from zenc.scheme.units import UNITS

PUNCTUATION = ("LBRACE", "RBRACE", "LPAR", "RPAR", "LSQB", "RSQB", "COMMA", "COLON")
NAMED = ("STRING", "FLOAT", "INTEGER", "NAME", "WORD")
OPERATOR_WORDS = ("and", "or", "not", "mod")

_BEFORE = {
    "tier": r"\s+\w+\s*[(:]",
    "choose": r"\s*(?:\(|from\b)",
    "from": r"\s*\[",
    "alternate": r"\s*\[",
    "inside": r"\s+\w",
    "across": r"\s+\w",
    "groups": r"\s*\[",
    "tensors": r"\s+\"",
    "others": r"\s*:",
    "on": r"\s+\w",
    "trees": r"\s*\(",
    "tree": r"\s+(?:all|parts?)\b",
    "branch": r"\s+[\w(-]",
    "by": r"\s+\w",
    "then": r"\s+\w",
    "as": r"\s+\w",
    "like": r"\s+[\w\"]",
    "levels": r"\s*:",
    "switch": r"\s+\w",
    "link": r"\s+\w",
    "unlink": r"\s+\w",
    "memory": r"\s+\w",
}
"""Words that also name things -> the text after them where they do not."""


class TokenRule(NamedTuple):
    """A regular expression, and the kind of the match of each of its groups."""

    pattern: str
    kinds: tuple[str, ...]


@cache
def rules() -> tuple[TokenRule, ...]:
    """Return the rules in the order in which they are tried; none but comments and strings matches more than a line."""
    known = tables()
    word, number = known.terminals["WORD"], f"{known.terminals['FLOAT']}|{known.terminals['INTEGER']}"
    operators = [pattern for name, pattern in known.terminals.items() if name not in (*PUNCTUATION, *NAMED)]
    longest_first = sorted({unit for units in UNITS.values() for unit in units}, key=lambda unit: (-len(unit), unit))
    keyword = _any(name for name in known.words if name not in (*_BEFORE, *OPERATOR_WORDS, "parts", "above"))
    return (
        TokenRule(r"\s+", ("",)),
        TokenRule(known.ignored.rpartition("|")[2], ("comment",)),
        TokenRule(known.terminals["STRING"], ("string",)),
        TokenRule(rf"({number})(\s*)({_any(longest_first)})(?![\w/])", ("number", "", "unit")),
        TokenRule(number, ("number",)),
        *(TokenRule(rf"\b{name}\b(?={following})", ("keyword",)) for name, following in _BEFORE.items()),
        TokenRule(r"\b(send|tree)(\s+)(parts)\b", ("keyword", "", "keyword")),
        TokenRule(r"\b(tensors)(\s+)(above)\b", ("keyword", "", "keyword")),
        TokenRule(rf"\b(?:{word})(?=\s*:)", ("key",)),
        TokenRule(
            rf"\b(scheme|schedule|compress|strategy|averaging|topology)(\s+)({word})", ("keyword", "", "declared")
        ),
        TokenRule(rf"\b(?:{_any(OPERATOR_WORDS)})\b", ("operator",)),
        TokenRule(rf"\b(?:{keyword})\b", ("keyword",)),
        TokenRule(rf"\b(?:{_any(FUNCTIONS)})(?=\s*\()", ("builtin",)),
        TokenRule(rf"\b(?:{_any(BUILTIN_NAMES)})\b", ("builtin",)),
        TokenRule(rf"\b(?:{word})(?=\()", ("call",)),
        TokenRule(rf"(?:{word})", ("name",)),
        TokenRule("|".join(operators), ("operator",)),
        TokenRule("|".join(known.terminals[name] for name in PUNCTUATION), ("punctuation",)),
    )


def _any(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in words)


PLACE = "vscode/syntaxes/zen.tmLanguage.json"
"""The place of the grammar, below the directory of grammars."""

SCOPES = {
    "comment": "comment.line.number-sign",
    "string": "string.quoted.double",
    "number": "constant.numeric",
    "unit": "keyword.other.unit",
    "keyword": "keyword.control",
    "key": "variable.other.property",
    "declared": "entity.name.type",
    "call": "entity.name.function",
    "builtin": "support.function",
    "operator": "keyword.operator",
    "punctuation": "punctuation",
    "name": "variable.other",
}


def textmate_grammar() -> dict[str, object]:
    """Return the grammar as JSON data."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "zen",
        "scopeName": "source.zen",
        "comment": "Made of grammar/zen.lark by python -m zenc.editor.tokens: change that, not this file.",
        "fileTypes": ["zen"],
        "patterns": [_pattern(rule) for rule in rules() if rule.kinds != ("",)],
    }


def textmate_text() -> str:
    """Return the grammar as it is written to its file."""
    return json.dumps(textmate_grammar(), indent=2) + "\n"


def _pattern(rule: TokenRule) -> dict[str, object]:
    if rule.kinds == ("string",):  # it may span lines, and TextMate matches within one
        return {"name": _scope("string"), "begin": '"', "end": '"'}
    if len(rule.kinds) == 1:
        return {"name": _scope(rule.kinds[0]), "match": rule.pattern}
    captures = {str(place): {"name": _scope(kind)} for place, kind in enumerate(rule.kinds, start=1) if kind}
    return {"match": rule.pattern, "captures": captures}


def _scope(kind: str) -> str:
    return f"{SCOPES[kind]}.zen"


if __name__ == "__main__":
    (directory("grammar") / PLACE).write_text(textmate_text(), encoding="utf-8")
