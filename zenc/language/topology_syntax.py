"""Topologies as data: what the author of one says about ranks, switches and links.

    TopologySyntax = name Parameter* doc? Declaration*
    Declaration    = Like(what, Setting*)                     # start from a builder, another topology, or a file
                   | Levels(LevelOf*)                         # outermost first
                   | SwitchOf(PlaceSyntax)
                   | LinkOf(PlaceSyntax, PlaceSyntax, one_way, bandwidth, latency?)
                   | Unlink(PlaceSyntax, PlaceSyntax, one_way)
                   | MemoryOf(PlaceSyntax, bytes)                   # of a device, of a machine, or of all of a level
                   | ForEach(variable, first, last, Declaration*)
                   | When(condition, Declaration*, Declaration*)
                   | Let | Require
    PlaceSyntax    = name Expression*                         # gpu(n, g), network
    Quantity       = (Expression | Number) unit               # 300 GB/s
    Setting        = name? value                              # value: Expression | Number | Quantity

Places and units are kept as the names that were written; ``zenc.topology.resolve`` gives them meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from zenc.errors import Span
from zenc.language.schedule import Expression, Let, Require
from zenc.language.syntax import Name, Number, Parameter


@dataclass(frozen=True, slots=True)
class Quantity:
    value: Expression | Number
    unit: Name
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PlaceSyntax:
    name: Name
    indices: tuple[Expression, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Setting:
    value: Expression | Number | Quantity
    name: Name | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Like:
    """``what`` is the name of a builder or a topology, or the path of a file where ``is_file``; ``more`` are paths."""

    what: Name
    is_file: bool
    settings: tuple[Setting, ...] = ()
    more: tuple[Name, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LevelOf:
    name: Name
    count: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Levels:
    levels: tuple[LevelOf, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SwitchOf:
    place: PlaceSyntax
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LinkOf:
    source: PlaceSyntax
    target: PlaceSyntax
    one_way: bool
    bandwidth: Quantity
    latency: Quantity | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unlink:
    source: PlaceSyntax
    target: PlaceSyntax
    one_way: bool
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MemoryOf:
    place: PlaceSyntax
    size: Quantity
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ForEach:
    variable: str
    first: Expression
    last: Expression
    body: Declarations
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class When:
    condition: Expression
    then: Declarations
    otherwise: Declarations = ()
    span: Span | None = field(default=None, compare=False, repr=False)


Change: TypeAlias = Levels | SwitchOf | LinkOf | Unlink | MemoryOf
Declaration: TypeAlias = Like | Change | ForEach | When | Let | Require
Declarations: TypeAlias = tuple[Declaration, ...]


@dataclass(frozen=True, slots=True)
class TopologySyntax:
    name: Name
    parameters: tuple[Parameter, ...]
    doc: str | None
    body: Declarations
    span: Span | None = field(default=None, compare=False, repr=False)
