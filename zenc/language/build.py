"""lark's tree -> the syntax tree. One method a rule of ``grammar/zen.lark``; numbers are the only thing checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

from lark import Token
from lark.tree import Meta
from lark.visitors import v_args

from zenc.errors import Diagnostic, Span
from zenc.language import schedule as s
from zenc.language import syntax
from zenc.language.build_cluster import ClusterRules
from zenc.language.cluster import Topology
from zenc.language.scan import DECLARED

Children: TypeAlias = list[Any]
T = TypeVar("T")

GREATEST_INTEGER = 2**64 - 1
_LONGEST_LITERAL = 100
"""Characters. No number in range is longer, and reading digits takes quadratic time."""


def _present(children: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(child for child in children if child is not None)


def _one_line(string: Token) -> str:
    """What stands between the quotes; each run of white space counts as one space."""
    return " ".join(string[1:-1].split())


@v_args(meta=True)
class Builder(ClusterRules):
    """Builds the syntax tree of one source; ``problems`` holds what is wrong with its numbers."""

    # Tokens

    def NAME(self, token: Token) -> syntax.Name:
        if token in DECLARED:
            self.declaring_words.append(token)
        return syntax.Name(str(token), self._token_span(token))

    WORD = NAME

    def INTEGER(self, token: Token) -> int:
        digits = token.replace("_", "")
        value = int(digits, 16 if digits[:2] in ("0x", "0X") else 10) if len(digits) <= _LONGEST_LITERAL else None
        if value is None or value > GREATEST_INTEGER:
            self._too_great(token, "integers go up to 2^64 - 1")
            return 0
        return value

    def FLOAT(self, token: Token) -> float:
        value = float(token.replace("_", "")) if len(token) <= _LONGEST_LITERAL else float("inf")
        if value == float("inf"):
            self._too_great(token, "numbers go up to 1.8e308 and have at most 100 characters")
            return 0.0
        return value

    def _too_great(self, token: Token, limit: str) -> None:
        self.problems.append(
            Diagnostic("number-range", "this number is too great", self._token_span(token), help=limit)
        )

    # Files

    def start_file(self, meta: Meta, children: Children) -> syntax.File:
        (file,) = children
        assert isinstance(file, syntax.File)
        return file

    def file(self, meta: Meta, children: Children) -> syntax.File:
        return syntax.File(
            self.source,
            tuple(c for c in children if isinstance(c, syntax.Import)),
            tuple(c for c in children if isinstance(c, syntax.Schedule)),
            tuple(c for c in children if isinstance(c, syntax.Scheme)),
            tuple(c for c in children if isinstance(c, Topology)),
        )

    def import_(self, meta: Meta, children: Children) -> syntax.Import:
        (path,) = children
        return syntax.Import(str(path)[1:-1], self._token_span(path))

    def scheme(self, meta: Meta, children: Children) -> syntax.Scheme:
        name, parameters, doc, *items = children
        entries = tuple(item for item in items if isinstance(item, syntax.Entry))
        tiers = tuple(item for item in items if isinstance(item, syntax.Tier))
        return syntax.Scheme(name, parameters or (), doc, entries, self._span(meta), tiers)

    def schedule(self, meta: Meta, children: Children) -> syntax.Schedule:
        name, parameters, doc, *phases = children
        return self._schedule(meta, name, parameters or (), doc, phases)

    def schedule_value(self, meta: Meta, children: Children) -> syntax.Schedule:
        doc, *phases = children
        return self._schedule(meta, None, (), doc, phases)

    def _schedule(
        self,
        meta: Meta,
        name: syntax.Name | None,
        parameters: tuple[syntax.Parameter, ...],
        doc: str | None,
        phases: list[tuple[str, s.Block, Span]],
    ) -> syntax.Schedule:
        """Of a phase that is there twice the first counts; that it is there twice is told later, from the spans."""
        push = [(block, span) for phase, block, span in phases if phase == "push"]
        pull = [(block, span) for phase, block, span in phases if phase == "pull"]
        return syntax.Schedule(
            name,
            parameters,
            doc,
            push[0][0] if push else (),
            pull[0][0] if pull else (),
            tuple(span for _, span in push),
            tuple(span for _, span in pull),
            self._span(meta),
        )

    def push(self, meta: Meta, children: Children) -> tuple[str, s.Block, Span]:
        return "push", children[0], self._span(meta)

    def pull(self, meta: Meta, children: Children) -> tuple[str, s.Block, Span]:
        return "pull", children[0], self._span(meta)

    def parameters(self, meta: Meta, children: Children) -> tuple[syntax.Parameter, ...]:
        return _present(children)

    def parameter(self, meta: Meta, children: Children) -> syntax.Parameter:
        name, default = children
        return syntax.Parameter(name, default, self._span(meta))

    def doc(self, meta: Meta, children: Children) -> str:
        return _one_line(children[0])

    # Entries

    def entry(self, meta: Meta, children: Children) -> syntax.Entry:
        key, value = children
        return syntax.Entry(key, value, self._span(meta))

    def tier(self, meta: Meta, children: Children) -> syntax.Tier:
        name, size, scheme = children
        return syntax.Tier(name, size, scheme, self._span(meta))

    def key(self, meta: Meta, children: Children) -> syntax.Name:
        name: syntax.Name = children[0]
        return name

    def phrase(self, meta: Meta, children: Children) -> syntax.Phrase:
        return syntax.Phrase(tuple(children[::2]), tuple(str(c) for c in children[1::2]), self._span(meta))

    def word(self, meta: Meta, children: Children) -> syntax.Word:
        name, arguments = children
        return syntax.Word(name, arguments or (), self._span(meta))

    def arguments(self, meta: Meta, children: Children) -> tuple[syntax.Argument, ...]:
        return _present(children)

    def argument(self, meta: Meta, children: Children) -> syntax.Argument:
        name, value = children
        return syntax.Argument(value, name, self._span(meta))

    def number(self, meta: Meta, children: Children) -> syntax.Number:
        *sign, value = children
        return syntax.Number(-value if sign else value, self._span(meta))

    # Statements

    def start_block(self, meta: Meta, children: Children) -> s.Block:
        return tuple(children)

    def block(self, meta: Meta, children: Children) -> s.Block:
        return tuple(children)

    def step(self, meta: Meta, children: Children) -> s.Step:
        return s.Step(children[0], self._span(meta))

    def for_(self, meta: Meta, children: Children) -> s.For:
        variable, first, last, body = children
        return s.For(variable.text, first, last, body, self._span(meta))

    def if_(self, meta: Meta, children: Children) -> s.If:
        condition, then, otherwise = children
        if isinstance(otherwise, s.If):
            otherwise = (otherwise,)
        return s.If(condition, then, otherwise or (), self._span(meta))

    def let(self, meta: Meta, children: Children) -> s.Let:
        name, value = children
        return s.Let(name.text, value, self._span(meta))

    def require(self, meta: Meta, children: Children) -> s.Require:
        condition, message = children
        return s.Require(condition, _one_line(message), self._span(meta))

    def send(self, meta: Meta, children: Children) -> s.Send:
        parts, origin, to, where = children
        return s.Send(parts, to, origin, where, self._span(meta))

    def all(self, meta: Meta, children: Children) -> s.All:
        return s.All(self._span(meta))

    def part(self, meta: Meta, children: Children) -> s.Part:
        return s.Part(children[0], self._span(meta))

    def part_range(self, meta: Meta, children: Children) -> s.PartRange:
        first, last = children
        return s.PartRange(first, last, self._span(meta))

    # Expressions

    def start_expression(self, meta: Meta, children: Children) -> s.Expression:
        expression: s.Expression = children[0]
        return expression

    def binary(self, meta: Meta, children: Children) -> s.Binary:
        left, operator, right = children
        return s.Binary(str(operator), left, right, self._span(meta))

    def unary(self, meta: Meta, children: Children) -> s.Unary:
        operator, operand = children
        return s.Unary(str(operator), operand, self._span(meta))

    def integer(self, meta: Meta, children: Children) -> s.Integer:
        return s.Integer(children[0], self._span(meta))

    def variable(self, meta: Meta, children: Children) -> s.Variable:
        return s.Variable(children[0].text, self._span(meta))

    def call(self, meta: Meta, children: Children) -> s.Apply:
        function, *arguments = children
        return s.Apply(function.text, _present(arguments), self._span(meta))


# The rules that are Python's own words.
setattr(Builder, "import", Builder.import_)
setattr(Builder, "for", Builder.for_)
setattr(Builder, "if", Builder.if_)
