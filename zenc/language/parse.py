"""Text -> syntax tree, by ``grammar/zen.lark``; or all of its syntax errors in words."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_analysis import Shift
from lark.parsers.lalr_interactive_parser import InteractiveParser

from zenc.errors import Diagnostic, SchemeSyntaxError, Source, Span, raise_if_any
from zenc.language.build import Builder
from zenc.language.complain import Situation, complain
from zenc.language.nesting import too_deep
from zenc.language.scan import DECLARED, STATEMENTS, Body, resume
from zenc.language.schedule import Block, Expression
from zenc.language.syntax import File
from zenc.resources import directory

_MOST_PROBLEMS = 10
_DEEPEST_STACK = 2000
"""States of the parser. Far beyond what a text that nests within reason needs."""

_Start = Literal["start_file", "start_block", "start_expression"]


def parse(source: Source) -> File:
    """The syntax tree of a file.

    Raises:
        SchemeSyntaxError: with all errors that can be told apart.
    """
    file = cast(File, _read(source, "start_file"))
    if not (file.imports or file.schedules or file.schemes or file.topologies):
        message = f"{source.name} {'holds nothing but comments' if source.text.strip() else 'is empty'}"
        start = Span(source, 0, 0)
        raise SchemeSyntaxError(
            Diagnostic("empty-file", message, start, help="write a scheme, a schedule or a topology")
        )
    return file


def parse_expression(text: str, name: str = "<expression>") -> Expression:
    """The expression that ``text`` is, as ``zenc.language.text.expression_text`` writes it."""
    return cast(Expression, _read(Source(name, text), "start_expression"))


def parse_block(text: str, name: str = "<block>") -> Block:
    """The statements that ``text`` is, as ``zenc.language.text.block_text`` writes them."""
    return cast(Block, _read(Source(name, text), "start_block"))


def _read(source: Source, start: _Start) -> Any:
    if "\0" in source.text:
        where = Span(source, source.text.index("\0"), source.text.index("\0") + 1)
        raise SchemeSyntaxError(Diagnostic("not-text", "this is no text: it holds a NUL character", where))
    reader = _Reader(source, start)
    tree = reader.read()
    raise_if_any(SchemeSyntaxError, reader.problems)
    assert tree is not None
    builder = Builder(source)
    built = builder.transform(tree)
    raise_if_any(SchemeSyntaxError, builder.problems or too_deep(built))
    return built


class _WholeWords:
    """Makes the lexer read any word to its end in every state, so that ``total`` is never ``to`` and ``tal``."""

    always_accept = ("WORD",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    return Lark(
        (directory("grammar") / "zen.lark").read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        start=["start_file", "start_block", "start_expression"],
        postlex=_WholeWords(),
        propagate_positions=True,
        maybe_placeholders=True,
    )


class _Reader:
    """Drives lark's parser, and puts it back on its feet after an error so that the next one can be told too."""

    def __init__(self, source: Source, start: _Start) -> None:
        self.source = source
        self.problems: list[Diagnostic] = []
        self._parser: InteractiveParser = _grammar().parse_interactive(source.text, start=start)
        self._lexer: Any = self._parser.lexer_thread
        self._state = self._parser.parser_state
        self._before: deque[Token] = deque(maxlen=4)
        self._opened: list[Token] = []
        self._heights: list[int] = []
        """The height of the parser's stack just after each of ``_opened``."""
        self._stack = list(self._state.state_stack)
        """The parser's stack after the last good token: a bad one may already have reduced the parser's own."""

    def read(self) -> Tree[Token] | None:
        """The tree; None where there are problems."""
        while True:
            try:
                return self._feed()
            except (UnexpectedToken, _RefusedError) as error:
                token = error.token
                at = self._situation(len(self.source.text) if token.type == "$END" else token.start_pos or 0, token)
            except UnexpectedCharacters as error:
                at = self._situation(error.pos_in_stream or 0, None)
            except _TooDeepError as error:
                self.problems.append(error.diagnostic)
                return None
            self.problems.append(complain(at))
            if len(self.problems) >= _MOST_PROBLEMS or not self._go_on(at):
                return None

    def _feed(self) -> Tree[Token] | None:
        for token in self._lexer.lex(self._state):
            self._shift(token)
            self._stack = list(self._state.state_stack)
            if len(self._stack) > _DEEPEST_STACK:
                raise _TooDeepError(self.source, token)
            self._remember(token)
        tree = self._state.feed_token(Token("$END", "", start_pos=len(self.source.text)), is_end=True)
        return None if self.problems else cast("Tree[Token]", tree)

    def _shift(self, token: Token) -> None:
        """Lark's ``feed_token``, but for the many rules of one symbol, such as sum -> product, that make no node."""
        states, callbacks = self._state.parse_conf.states, self._state.parse_conf.callbacks
        stack, values = self._state.state_stack, self._state.value_stack
        kind = token.type
        while True:
            action, argument = states[stack[-1]].get(kind, (None, None))
            if action is Shift:
                stack.append(argument)
                values.append(token)
                return
            if action is None:
                raise _RefusedError(token)
            size = len(argument.expansion)
            if size == 1 and argument.options.expand1 and argument.alias is None:
                stack.pop()
            else:
                children = values[len(values) - size :]
                del stack[len(stack) - size :], values[len(values) - size :]
                values.append(callbacks[argument](children))
            stack.append(states[stack[-1]][argument.origin.name][1])

    def _remember(self, token: Token) -> None:
        self._before.append(token)
        if token.type in ("LBRACE", "LPAR"):
            self._opened.append(token)
            self._heights.append(len(self._state.state_stack))
        elif token.type in ("RBRACE", "RPAR"):
            self._opened.pop()
            self._heights.pop()

    def _situation(self, offset: int, token: Token | None) -> Situation:
        found = None if token is None or token.type == "$END" else token
        return Situation(self.source, offset, found, tuple(self._before), tuple(self._opened), self._accepted())

    def _accepted(self) -> frozenset[str]:
        """The terminals that could have come next."""
        states = self._state.parse_conf.states
        return frozenset(name for name in states[self._stack[-1]] if name.upper() == name and self._takes(name))

    def _takes(self, terminal: str) -> bool:
        """Whether ``terminal`` can follow: what stands on the stack is reduced until it is shifted, or is refused."""
        states = self._state.parse_conf.states
        stack = list(self._stack)
        while terminal in states[stack[-1]]:
            action, argument = states[stack[-1]][terminal]
            if action is Shift:
                return True
            if argument.expansion:
                del stack[-len(argument.expansion) :]
            goto = states[stack[-1]][argument.origin.name][1]
            if terminal == "$END" and goto == self._state.parse_conf.end_state:
                return True
            stack.append(goto)
        return False

    def _go_on(self, at: Situation) -> bool:
        """Panic mode: forget the block that was open but for its brace, and read on where its next item starts."""
        while self._opened and self._opened[-1] != "{":
            self._opened.pop()
            self._heights.pop()
        body = None if _braces_are_wrong(at) else self._body()
        target = resume(self.source.text, at.offset, body)
        if target is None:
            return False
        height = 1 if target.top else self._heights[-1]
        if target.top:
            self._opened, self._heights = [], []
        del self._state.state_stack[height:]
        del self._state.value_stack[height - 1 :]
        self._stack = list(self._state.state_stack)
        self._lexer.state.line_ctr.char_pos = target.offset
        self._before.clear()
        return True

    def _body(self) -> Body | None:
        if not self._opened:
            return None
        after_brace = self._state.parse_conf.states[self._state.state_stack[self._heights[-1] - 1]]
        if "LINK" in after_brace:
            return "topology"
        return "block" if "SEND" in after_brace else "schedule" if "PUSH" in after_brace else "scheme"


def _braces_are_wrong(at: Situation) -> bool:
    """Whether blocks can't be told apart any more after this error."""
    if "LBRACE" in at.accepted:
        return at.text in ("}", "push", "pull", *STATEMENTS, *DECLARED)
    return at.text in ("push", "pull") or (at.text == "}" and not at.opened)


class _RefusedError(Exception):
    """The grammar has no place for this token here."""

    def __init__(self, token: Token) -> None:
        super().__init__()
        self.token = token


class _TooDeepError(Exception):
    def __init__(self, source: Source, token: Token) -> None:
        super().__init__()
        start = token.start_pos or 0
        where = Span(source, start, start + len(token))
        self.diagnostic = Diagnostic("nesting", "this nests too deep to be read", where)
