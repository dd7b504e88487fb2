"""The terms of the language: names, numbers and their combinations, as they were written.

Phrase    = Word (("by" | "then" | "as") Word)*
Word      = name (Argument*)
Parameter = name default?
Quantity  = (Expression | Number) unit               # 300 GB/s
Literal   = int | float
"""

from __future__ import annotations

from dataclasses import dataclass

from zenc.errors import Spanned
from zenc.language.schedule import Expression


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
class Quantity(Spanned):
    """``300 GB/s``, ``2 us``, ``80 GB``: a number with a unit, which has no meaning yet."""

    value: Expression | Number
    unit: Name


@dataclass(frozen=True, slots=True)
class Setting(Spanned):
    """``NAME = VALUE`` or ``VALUE`` in the parentheses of ``like``."""

    value: Expression | Number | Quantity
    name: Name | None = None
