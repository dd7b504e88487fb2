"""The TextMate grammar, by which Visual Studio Code and others colour the language.

``python -m zenc.editor.textmate`` writes it to ``grammar/vscode/syntaxes/zen.tmLanguage.json``.
"""

from __future__ import annotations

import json

from zenc.editor.tokens import TokenRule, rules
from zenc.resources import directory

PLACE = "vscode/syntaxes/zen.tmLanguage.json"
"""Below the directory of grammars."""

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


def grammar() -> dict[str, object]:
    """The grammar as JSON data."""
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "zen",
        "scopeName": "source.zen",
        "comment": "Made of grammar/zen.lark by python -m zenc.editor.textmate: change that, not this file.",
        "fileTypes": ["zen"],
        "patterns": [_pattern(rule) for rule in rules() if rule.kinds != ("",)],
    }


def text() -> str:
    """The grammar as it is written to its file."""
    return json.dumps(grammar(), indent=2) + "\n"


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
    (directory("grammar") / PLACE).write_text(text(), encoding="utf-8")
