"""Diagnostics of syntax errors: the parser's situation, where the text leaves the grammar, to a message in words.

Situation = source, before: Token*, found: Token?, accepted: terminals, opened: Token*
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zenc.common.wording import did_you_mean
from zenc.errors import Diagnostic, Source, Span
from zenc.language.lexer import Token, tables
from zenc.language.recovery import DECLARATIONS, DECLARED, RESERVED, STATEMENTS, Lexeme, starts_declaration, unclosed

_ATOM = {"INTEGER", "FLOAT", "NAME", "LPAR", "MINUS", "NOT"}
_OPERATORS = {
    "OR", "AND", "COMPARISON", "BAR", "CARET", "AMPERSAND", "LEFT", "RIGHT", "PLUS", "MINUS", "STAR", "SLASH", "MOD",
}  # fmt: skip
_LITERALS = {
    "LPAR": "'('", "RPAR": "')'", "LBRACE": "'{'", "RBRACE": "'}'",
    "ARROW": "'->'", "COMMA": "','", "COLON": "':'", "EQUAL": "'='", "RANGE": "'..'",
    "TO": "'to'", "IN": "'in'", "OF": "'of'", "WHERE": "'where'", "ELSE": "'else'", "NAME": "a name",
    "LSQB": "'['", "RSQB": "']'", "FROM": "'from'",
}  # fmt: skip

_HELP_BY_SPELLING = {
    "&&": "write 'and'",
    "||": "write 'or'",
    "!": "write 'not'",
    "%": "write 'mod' for the remainder",
    "**": "write '1 << n' for a power of two",
    "//": "did you mean '/'? It rounds down. A comment starts with '#'",
    "...": "write '..'",
    "elif": "write 'else if'",
    "xor": "did you mean '^'?",
    "div": "did you mean '/'? It rounds down",
    "/*": "a comment starts with '#', and runs to the end of its line",
    ";": "nothing stands between entries or statements",
    "'": "a string stands in double quotes",
    "[": "expressions have no lists",
    "?": "a choice is a statement: if CONDITION { ... } else { ... }, or send ... where CONDITION",
}


_DOUBLED = tuple(spelling for spelling in _HELP_BY_SPELLING if len(spelling) == 2 and not spelling.isalpha())


@dataclass(frozen=True)
class Situation:
    """The state of the parser at an error, at ``offset``; ``found`` is None at the end of the text."""

    source: Source
    offset: int
    found: Token | None
    before: Sequence[Token]
    opened: Sequence[Token]
    accepted: frozenset[str]

    @property
    def text(self) -> str:
        """The found token or character, as it is written."""
        if self.found is not None:
            return self.found.text
        return self.source.text[self.offset : self.offset + 1]

    def last(self, place: int = 1) -> str:
        """Return the ``place``-th token before the error; empty where there is no such token."""
        return self.before[-place].text if len(self.before) >= place else ""

    def span(self) -> Span:
        """Return the place of the found token or character; one character at the end of the text."""
        return Span(self.source, self.offset, self.offset + max(1, len(self.text)))

    def span_of(self, token: Token) -> Span:
        """Return the place of a token of ``before`` or ``opened``."""
        return Span(self.source, token.start, token.end)


def complain(at: Situation) -> Diagnostic:
    """Return the diagnostic of the first rule that fits the situation."""
    for rule in _RULES:
        diagnostic = rule(at)
        if diagnostic is not None:
            return diagnostic
    return _expected(at)


def _say(message: str, span: Span, help: str | None = None) -> Diagnostic:
    return Diagnostic("syntax", message, span, help=help)


def _quoted(text: str) -> str:
    if text.startswith('"'):
        return "a string"
    shown = text if len(text) <= 24 else text[:20] + "..."
    return "'" + "".join(c if c.isprintable() else f"<U+{ord(c):04X}>" for c in shown) + "'"


# The rules, each for one thing that people write ------------------------------------------------------------------


def _brace_never_closed(at: Situation) -> Diagnostic | None:
    """Diagnose a brace never closed: at the end, or where a declaration starts at the margin in an open block."""
    if not any(token.text == "{" for token in at.opened):
        return None
    margin = [Lexeme(at.text, at.offset)]
    if at.before:
        margin.append(Lexeme(at.last(), at.before[-1].start))
    declaration = next((piece for piece in margin if starts_declaration(at.source.text, piece)), None)
    end = declaration.offset if declaration else at.offset
    if not declaration and not _at_end(at):
        return None
    brace = unclosed(at.source.text, end)
    if brace is None:
        return None
    what = "this '{' is never closed"
    return _say(what if declaration else f"unexpected end of file: {what}", Span(at.source, brace, brace + 1))


def _parenthesis_never_closed(at: Situation) -> Diagnostic | None:
    if not at.opened or at.opened[-1].text != "(" or "RPAR" not in at.accepted:
        return None
    if not _at_end(at) and at.text not in ("{", "}", "..") and at.text not in (*RESERVED, *DECLARED):
        return None
    message = "this '(' is never closed"
    if _at_end(at):
        message = f"unexpected end of file: {message}"
    return _say(message, at.span_of(at.opened[-1]))


def _nothing_to_close(at: Situation) -> Diagnostic | None:
    if at.text == "}" and not at.opened:
        return _say("this '}' closes nothing", at.span())
    if at.text == ")" and all(token.text != "(" for token in at.opened):
        return _say("this ')' closes nothing", at.span())
    return None


def _bad_spelling(at: Situation) -> Diagnostic | None:
    if at.found is not None or _at_end(at):
        return None
    rest = at.source.text[at.offset : at.offset + 200]
    if rest[0] == '"':
        return _say("this string is never closed", at.span(), "a string ends with a double quote")
    number = re.match(r"[0-9][\w.]*", rest)
    if number:
        return _say(f"{_quoted(number[0])} is no number", Span(at.source, at.offset, at.offset + len(number[0])))
    help = _HELP_BY_SPELLING.get("..." if rest[0] == "." and at.last() == ".." else rest[0])
    return _say(f"unexpected character {_quoted(rest[0])}", at.span(), help)


def _doubled(at: Situation) -> Diagnostic | None:
    """Diagnose operators and comments of other languages: ``&&``, ``||``, ``//``, ``**`` and ``/*``."""
    for start in (at.offset - 1, at.offset):
        both = at.source.text[max(0, start) : start + 2]
        if both in _DOUBLED:
            return _say(f"unexpected '{both}'", Span(at.source, start, start + 2), _HELP_BY_SPELLING[both])
    return None


def _range_of_python(at: Situation) -> Diagnostic | None:
    """Diagnose ``for i in range(8) {``."""
    if "RANGE" not in at.accepted or at.last() != ")":
        return None
    line = at.source.text[at.source.text.rfind("\n", 0, at.offset) + 1 : at.offset]
    found = re.search(r"\bin\s+(range)\s*\(([^{}]*)\)\s*$", line)
    if found is None:
        return None
    start = at.offset - len(line) + found.start(1)
    bounds = [bound.strip() for bound in found[2].split(",")]
    first, end = bounds if len(bounds) == 2 else ("0", found[2].strip())
    last = str(int(end) - 1) if re.fullmatch("[0-9]{1,19}", end) else f"{end} - 1"
    help = f"did you mean '{first} .. {last}'? Both ends are included"
    return _say("a range is written FIRST .. LAST", Span(at.source, start, start + len("range")), help)


def _misplaced(at: Situation) -> Diagnostic | None:
    terminal = at.found.terminal if at.found else ""
    if at.text == "=" and "COMPARISON" in at.accepted:
        return _say("unexpected '=' in an expression", at.span(), "write '==' to compare")
    if terminal == "COMPARISON" and "AND" in at.accepted:
        return _say("comparisons do not chain", at.span(), "write 'a < b and b < c'")
    if at.text == ":" and at.last(2) == ":" and at.before[-1].terminal == "WORD":
        return _say(f"expected a value after '{at.last(3)}:'", at.span_of(at.before[-1]))
    if terminal == "FLOAT" and "INTEGER" in at.accepted:
        return _say(f"{_quoted(at.text)} is no integer", at.span(), "schedules count in integers")
    if at.text in RESERVED and "NAME" in at.accepted and "INTEGER" not in at.accepted:
        return _say(f"'{at.text}' is a word of the language, and can't be a name", at.span())
    if at.text == "else" and "SEND" in at.accepted:
        return _say("'else' without an 'if' before it", at.span())
    return None


_RULES: tuple[Callable[[Situation], Diagnostic | None], ...] = (
    _brace_never_closed,
    _parenthesis_never_closed,
    _nothing_to_close,
    _bad_spelling,
    _doubled,
    _range_of_python,
    _misplaced,
)


# What is left -----------------------------------------------------------------------------------------------------


def _at_end(at: Situation) -> bool:
    return at.offset >= len(at.source.text.rstrip())


def _expected(at: Situation) -> Diagnostic:
    last = at.last(2) + ":" if at.last() == ":" else at.last()
    after = f" after {_quoted(last)}" if last else ""
    wanted = f"expected {_either(expectations(at.accepted))}{after}"
    if _at_end(at):
        end = max(0, len(at.source.text.rstrip()) - 1)
        return _say(f"unexpected end of file: {wanted}", Span(at.source, end, end + 1))
    help = _guess(at) or _HELP_BY_SPELLING.get(at.text)
    if at.text == "," and "COMMA" not in at.accepted:
        help = _HELP_BY_SPELLING[";"]
    words = sorted(text for text, terminal in tables().words.items() if terminal in at.accepted)
    meant = did_you_mean(at.text, words) if not help and at.text.isidentifier() else ""
    message = f"{wanted}, found {_quoted(at.text)}{meant}"
    notes: tuple[str, ...] = ()
    if at.text in ("push", "pull", *DECLARATIONS) and at.opened:  # a brace is missing before them, as a rule
        notes = (f"the '{at.opened[-1].text}' of line {at.source.line_of(at.opened[-1].start)} is still open here",)
    return Diagnostic("syntax", message, at.span(), notes, help)


def _guess(at: Situation) -> str | None:
    follows = at.source.text[at.offset + len(at.text) :].lstrip()
    if "SEND" in at.accepted and re.match(r"=(?!=)", follows) and at.text.isidentifier():
        return f"write 'let {at.text} = ...'"
    if "SEND" in at.accepted and at.text.lower() in ("recv", "receive", "irecv"):
        return "did you mean 'send PARTS to RANK'? Each send brings its receive with it"
    if at.text == "if" and "INTEGER" in at.accepted:
        return _HELP_BY_SPELLING["?"]
    if (at.text == "from" and "COLON" in at.accepted) or (at.text == "[" and "FROM" in at.accepted):
        return "write 'choose from [balanced, dense_ring]'"
    if at.text in ("[", "(") and at.last() == "groups":
        return "write 'groups [0, 1] [2, 3]'"
    if at.text == ".." and "TO" in at.accepted:
        return "write 'parts A .. B' for several parts"
    if at.text in STATEMENTS and "PUSH" in at.accepted:
        return "statements stand in push { ... } and in pull { ... }; neither sees those of the other"
    return None


def expectations(accepted: frozenset[str]) -> list[str]:
    """Return a set of terminals in words; after a whole expression its operators go unsaid."""
    left = set(accepted)
    words: list[str] = []

    def group(sign: set[str], members: set[str], *phrases: str) -> None:
        if sign <= left:
            words.extend(phrases)
            left.difference_update(members)

    group({"INTEGER", "LPAR"}, _ATOM, "an expression")
    group({"PLUS", "WORD"}, {"WORD"}, "a unit such as 'GB/s'")
    if left & {"PLUS", "BY", "ON"}:
        left -= {"LPAR", "BY", "THEN", "AS"}
    left -= _OPERATORS
    group({"LINK"}, {word.upper() for word in DECLARED}, f"what a topology declares ({_either(list(DECLARED))})")
    group({"SEND"}, {word.upper() for word in STATEMENTS}, f"a statement ({_either(list(STATEMENTS))})")
    left -= {"TREES"}  # beside 'push' and 'pull', and after them: one who knows of trees writes them
    group({"PUSH"}, {"PUSH", "PULL", "STRING"}, "'push'", "'pull'")
    group({"ALL"}, {"ALL", "PART", "PARTS"}, "'part'", "'parts'", "'all'")
    group({"SCHEME"}, {*(word.upper() for word in DECLARATIONS), "$END"}, *(f"'{word}'" for word in DECLARATIONS))
    group({"SCHEDULE", "WORD"}, {"SCHEDULE", "WORD"}, "a value")
    rule = {"TENSORS", "OTHERS"}
    group(rule, {*rule, "WORD", "STRING"}, "a rule such as 'others: dense_ring'")
    group({"ACROSS", "WORD"}, {"WORD", "ACROSS", "INSIDE", "GROUPS"}, "a division of ranks such as 'rows(4)'")
    alternation = {"ALTERNATE"}
    group(alternation, {*alternation, "WORD", "STRING"}, "'alternate'", "a key such as 'sums'")
    group({"WORD", "RBRACE"}, {"WORD", "STRING", "TIER", "CHOOSE"}, "a key such as 'communication'")
    group({"WORD"}, {"WORD"}, "a word")
    group({"IF", "LBRACE"}, {"IF"}, "'if'")
    group({"STRING"}, {"STRING"}, "a string in double quotes")
    end = ["the end of the text"] if "$END" in left else []
    return words + sorted(_LITERALS.get(terminal, f"'{terminal.lower()}'") for terminal in left - {"$END"}) + end


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
