"""A Pygments lexer, which colours the ``zen`` blocks of the documentation, and any text that Pygments shows."""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace, _TokenType

from zenc.editor.tokens import TokenRule, rules

TOKENS: dict[str, _TokenType] = {
    "": Whitespace,
    "comment": Comment.Single,
    "string": String.Double,
    "number": Number,
    "unit": Keyword.Type,
    "keyword": Keyword,
    "key": Name.Attribute,
    "declared": Name.Class,
    "call": Name.Function,
    "builtin": Name.Builtin,
    "operator": Operator,
    "punctuation": Punctuation,
    "name": Name,
}


def _definition(rule: TokenRule) -> tuple[str, object]:
    kinds = [TOKENS[kind] for kind in rule.kinds]
    return rule.pattern, bygroups(*kinds) if len(kinds) > 1 else kinds[0]


class ZenLexer(RegexLexer):
    """A lexer that colours schemes, schedules and topologies of zenc."""

    name = "zen"
    aliases: ClassVar[list[str]] = ["zen"]
    filenames: ClassVar[list[str]] = ["*.zen"]
    tokens: ClassVar[dict[str, list[tuple[str, object]]]] = {"root": [_definition(rule) for rule in rules()]}
