"""The LALR(1) parser: text to syntax tree by the tables of ``grammar/zen.lark``, or all of its syntax errors."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any, Literal, cast

from zenc.errors import Diagnostic, SchemeSyntaxError, Source, Span, raise_if_any
from zenc.language.lexer import END, NONE, Lexer, Token, tables
from zenc.language.recovery import DECLARED, STATEMENTS, Body, resume
from zenc.language.rules import Step
from zenc.language.schedule import Block, Expression, children
from zenc.language.syntax import File
from zenc.language.syntax_errors import Situation, complain
from zenc.language.terms import Phrase
from zenc.language.tree_builder import Builder

DEEPEST = 100


def too_deep(tree: Any) -> list[Diagnostic]:
    """Return a diagnostic at the first node beyond ``DEEPEST`` levels; an empty list where the tree is shallow."""
    pending: list[tuple[Any, int]] = [(child, 1) for child in (tree if isinstance(tree, tuple) else children(tree))]
    while pending:
        node, depth = pending.pop()
        if depth > DEEPEST:
            help = f"expressions and blocks may nest {DEEPEST} levels; name a part of it with let"
            return [Diagnostic("nesting", "this nests too deep to be read", node.span, help=help)]
        pending += [(child, depth + 1) for child in children(node)]
    return []


_MOST_PROBLEMS = 10
_DEEPEST_STACK = 2000
"""Upper bound on the parser's stack of states, far beyond the need of a text that nests within reason."""

MOST_STEPS = 160_000
"""Most words and signs of a text, with the rules that they make; a plan of 64 ranks, written out, has 91,000."""
_SHORTER = "say by rules of a rank, loops and trees what ranks do alike"

_Start = Literal["start_file", "start_block", "start_expression", "start_phrase"]


def parse(source: Source) -> File:
    """Return the syntax tree of a file.

    Raises:
        SchemeSyntaxError: with all errors that can be told apart.
    """
    file = cast(File, _read(source, "start_file"))
    if file == File(source):
        message = f"{source.name} {'holds nothing but comments' if source.text.strip() else 'is empty'}"
        start = Span(source, 0, 0)
        raise SchemeSyntaxError(
            Diagnostic("empty-file", message, start, help="write a scheme, a strategy, a schedule or a topology")
        )
    return file


def parse_expression(text: str) -> Expression:
    """Parse an expression, as ``zenc.language.formatter.expression_text`` writes it."""
    return cast(Expression, _read(Source("<expression>", text), "start_expression"))


def parse_block(text: str) -> Block:
    """Parse the statements of a block of a schedule."""
    return cast(Block, _read(Source("<block>", text), "start_block"))


def parse_phrase(text: str) -> Phrase:
    """Parse a phrase, the value of an entry."""
    return cast(Phrase, _read(Source("<phrase>", text), "start_phrase"))


def _read(source: Source, start: _Start) -> Any:
    if "\0" in source.text:
        where = Span(source, source.text.index("\0"), source.text.index("\0") + 1)
        raise SchemeSyntaxError(Diagnostic("not-text", "this is no text: it holds a NUL character", where))
    reader = _TreeReader(source, start)
    steps = reader.read()
    raise_if_any(SchemeSyntaxError, reader.problems)
    builder = Builder(source)
    built = builder.build(steps)
    raise_if_any(SchemeSyntaxError, builder.problems or too_deep(built))
    return built


@lru_cache(maxsize=1)
def _lexer() -> Lexer:
    return Lexer(tables())


class _TreeReader:
    """Reader of the parser's steps of a text. It resumes after an error, to report the next one too."""

    def __init__(self, source: Source, start: _Start) -> None:
        self.source = source
        self.problems: list[Diagnostic] = []
        self._steps: list[Step] = []
        self._tables = tables()
        self._stack = [self._tables.starts[start]]
        """States of the parser."""
        self._before: deque[Token] = deque(maxlen=4)
        self._opened: list[Token] = []
        self._heights: list[int] = []
        """The height of the stack just after each of ``_opened``."""

    def read(self) -> list[Step]:
        """Return the parser's steps; they mean nothing where there are problems."""
        start: int | None = 0
        while start is not None:
            start = self._read_from(start)
        return self._steps

    def _read_from(self, start: int) -> int | None:
        """Read on, up to an error; return the offset to resume at."""
        for token in _lexer().tokens(self.source.text, start, self._stack):
            if not self._take(token):
                found = None if token.terminal in (NONE, END) else token
                accepted = frozenset(filter(self._takes, self._tables.actions[self._stack[-1]]))
                at = Situation(self.source, token.start, found, tuple(self._before), tuple(self._opened), accepted)
                self.problems.append(complain(at))
                return self._go_on(at) if len(self.problems) < _MOST_PROBLEMS else None
            if len(self._stack) > _DEEPEST_STACK or len(self._steps) > MOST_STEPS:
                where = Span(self.source, token.start, token.end)
                nests = Diagnostic("nesting", "this nests too deep to be read", where)
                long = Diagnostic("unreadable-file", "this text has too many words to be read", where, help=_SHORTER)
                self.problems.append(long if len(self._steps) > MOST_STEPS else nests)
                return None
            self._remember(token)
        return None

    def _take(self, token: Token) -> bool:
        """Reduce the rules that end before ``token`` and shift it; undo that and return False where it has no place."""
        actions, gotos, rules = self._tables.actions, self._tables.gotos, self._tables.rules
        stack, steps, terminal = self._stack, self._steps, token.terminal
        action = actions[stack[-1]].get(terminal)
        if action is not None and action >= 0:
            stack.append(action)
            steps.append(token)
            return True
        before, count = stack[:], len(steps)
        while action is not None and action < 0:
            rule = rules[~action]
            del stack[len(stack) - rule.size :]
            stack.append(gotos[stack[-1]][rule.name])
            if not rule.is_chain:
                steps.append(~action)
            action = actions[stack[-1]].get(terminal)
        if action is None:
            stack[:] = before
            del steps[count:]
            return False
        stack.append(action)
        steps.append(token)
        return True

    def _remember(self, token: Token) -> None:
        self._before.append(token)
        if token.terminal in ("LBRACE", "LPAR"):
            self._opened.append(token)
            self._heights.append(len(self._stack))
        elif token.terminal in ("RBRACE", "RPAR"):
            self._opened.pop()
            self._heights.pop()

    def _takes(self, terminal: str) -> bool:
        """Return whether ``terminal`` can follow: reducing may lead to a state that has no place for it after all."""
        stack = list(self._stack)
        while (action := self._tables.actions[stack[-1]].get(terminal)) is not None and action < 0:
            rule = self._tables.rules[~action]
            del stack[len(stack) - rule.size :]
            stack.append(self._tables.gotos[stack[-1]][rule.name])
        return action is not None

    def _go_on(self, at: Situation) -> int | None:
        """Recover by panic mode: forget the open block but for its brace, and read on where its next item starts."""
        while self._opened and self._opened[-1].text != "{":
            self._opened.pop()
            self._heights.pop()
        body = None if _braces_are_wrong(at) else self._body()
        target = resume(self.source.text, at.offset, body)
        if target is None:
            return None
        if target.top:
            self._opened, self._heights = [], []
        del self._stack[self._heights[-1] if self._heights else 1 :]
        self._before.clear()
        return target.offset

    def _body(self) -> Body | None:
        if not self._opened:
            return None
        after_brace = self._tables.actions[self._stack[self._heights[-1] - 1]]
        if "LINK" in after_brace:
            return "topology"
        if "TENSORS" in after_brace:
            return "strategy"
        if "ALTERNATE" in after_brace:
            return "averaging"
        if "TREE" in after_brace:
            return "trees"
        if "BRANCH" in after_brace:
            return "tree"
        return "block" if "SEND" in after_brace else "schedule" if "PUSH" in after_brace else "scheme"


def _braces_are_wrong(at: Situation) -> bool:
    if "LBRACE" in at.accepted:
        return at.text in ("}", "push", "pull", *STATEMENTS, *DECLARED)
    return at.text in ("push", "pull") or (at.text == "}" and not at.opened)
