"""The syntax tree: names and values as they were written, before they have a meaning.

    File         = Import* Schedule* SchemeSyntax* TopologySyntax*  # in any order in the text
    SchemeSyntax = name Parameter* doc? EntrySyntax* TierSyntax* ChoiceSyntax*
    Schedule     = name Parameter* doc? push: Block pull: Block
    EntrySyntax  = key ":" Value
    TierSyntax   = name size? ":" Word                         # tier node(8): dense_ring
    ChoiceSyntax = Argument* Word+                             # choose(every = 50) from [balanced, zen(k = 3)]
    Value        = Phrase                                      # balanced by permutation(seed); point_to_point then ring
                 | Schedule                                    # schedule { push { ... } pull { ... } }, without a name
    Phrase       = Word (("by" | "then") Word)*
    Word         = name (Argument*)
    Literal      = int | float

Dimension names and values are kept as the names that were written; ``zenc.scheme.resolve`` gives them meaning,
so that a typo gets an error about its meaning and never one about tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from zenc.errors import Source, Span, Spanned
from zenc.language.schedule import Block, Expression

if TYPE_CHECKING:
    from zenc.language.topology_syntax import TopologySyntax


@dataclass(frozen=True, slots=True)
class Name(Spanned):
    """A word of the text, with the place where it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class Number(Spanned):
    """A literal that is no plain integer, such as ``2.0``."""

    value: float


@dataclass(frozen=True, slots=True)
class Argument(Spanned):
    """``value`` or ``name = value`` in the parentheses of a word."""

    value: Expression | Number
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Word(Spanned):
    """``NAME(ARGUMENTS)``: the name of a strategy, a format or a scheme."""

    name: Name
    arguments: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Phrase(Spanned):
    """``words[0] connectives[0] words[1] ...``; one connective fewer than words."""

    words: tuple[Word, ...]
    connectives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter(Spanned):
    """``NAME = DEFAULT`` in the head of a declaration; without a default the caller must give a value."""

    name: Name
    default: Expression | Number | None = None


@dataclass(frozen=True, slots=True)
class Schedule(Spanned):
    """A named ``schedule`` of a file, or the anonymous value of ``communication`` (``name`` is then None).

    ``push_spans`` and ``pull_spans`` hold one span for every block of that phase in the text, so that a missing
    or a double one can be told.
    """

    name: Name | None
    parameters: tuple[Parameter, ...]
    doc: str | None
    push: Block
    pull: Block
    push_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    pull_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)


Value: TypeAlias = Phrase | Schedule


@dataclass(frozen=True, slots=True)
class EntrySyntax(Spanned):
    """``KEY: VALUE`` in a scheme, a dimension or an option."""

    key: Name
    value: Value


@dataclass(frozen=True, slots=True)
class TierSyntax(Spanned):
    """``tier NAME(SIZE): SCHEME(...)``; ``size`` is the number of members of the tier, where it is written."""

    name: Name
    size: Expression | None
    scheme: Word


@dataclass(frozen=True, slots=True)
class ChoiceSyntax(Spanned):
    """``choose(ARGUMENTS) from [CANDIDATES]``; more than one in a scheme is told as an error later."""

    settings: Word
    """The word ``choose`` with its arguments."""
    candidates: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class SchemeSyntax(Spanned):
    """``scheme NAME(PARAMETERS) { "DOC" ... }``, with entries, tiers and choices each in the order of the text."""

    name: Name
    parameters: tuple[Parameter, ...]
    doc: str | None
    entries: tuple[EntrySyntax, ...]
    tiers: tuple[TierSyntax, ...] = ()
    choices: tuple[ChoiceSyntax, ...] = ()


@dataclass(frozen=True, slots=True)
class Import(Spanned):
    """``import "PATH"``; ``path`` is sought beside the importing file, then among the shipped schemes."""

    path: str


@dataclass(frozen=True, slots=True)
class File:
    """The declarations of one text, by kind, each kind in the order of the text."""

    source: Source
    imports: tuple[Import, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    schemes: tuple[SchemeSyntax, ...] = ()
    topologies: tuple[TopologySyntax, ...] = ()
