"""The syntax tree of topologies: declarations, before places and units have a meaning.

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

``zenc.topology.load`` gives them meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from zenc.errors import Spanned
from zenc.language.schedule import Expression, Let, Require
from zenc.language.terms import Name, Parameter, Quantity, Setting


@dataclass(frozen=True, slots=True)
class PlaceSyntax(Spanned):
    """``gpu(n, g)``, ``network``: a rank, a switch or another node by the name of its level and its indices."""

    name: Name
    indices: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Like(Spanned):
    """``what`` is the name of a builder or a topology, or the path of a file where ``is_file``; ``more`` are paths."""

    what: Name
    is_file: bool
    settings: tuple[Setting, ...] = ()
    more: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class LevelOf(Spanned):
    """``node(4)``: each member of the level outside of it has ``count`` of them."""

    name: Name
    count: Expression


@dataclass(frozen=True, slots=True)
class Levels(Spanned):
    """``levels: node(4), gpu(8)``: outermost first; members of the innermost level are the ranks."""

    levels: tuple[LevelOf, ...]


@dataclass(frozen=True, slots=True)
class SwitchOf(Spanned):
    """``switch PLACE``: a node that forwards and is no rank."""

    place: PlaceSyntax


@dataclass(frozen=True, slots=True)
class LinkOf(Spanned):
    """``link SOURCE - TARGET: BANDWIDTH[, LATENCY]``: one link each way; ``->`` (``one_way``) is one link alone."""

    source: PlaceSyntax
    target: PlaceSyntax
    one_way: bool
    bandwidth: Quantity
    latency: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Unlink(Spanned):
    """``unlink SOURCE - TARGET``: removes what ``like`` or an earlier line has linked."""

    source: PlaceSyntax
    target: PlaceSyntax
    one_way: bool


@dataclass(frozen=True, slots=True)
class MemoryOf(Spanned):
    """``memory PLACE: SIZE``: of a device, of a machine, or of each member of a level."""

    place: PlaceSyntax
    size: Quantity


@dataclass(frozen=True, slots=True)
class ForEach(Spanned):
    """``for VARIABLE in FIRST .. LAST { ... }`` over declarations; both ends included."""

    variable: str
    first: Expression
    last: Expression
    body: Declarations


@dataclass(frozen=True, slots=True)
class When(Spanned):
    """``if CONDITION { ... } else { ... }`` over declarations."""

    condition: Expression
    then: Declarations
    otherwise: Declarations = ()


Change: TypeAlias = Levels | SwitchOf | LinkOf | Unlink | MemoryOf
Declaration: TypeAlias = Like | Change | ForEach | When | Let | Require
Declarations: TypeAlias = tuple[Declaration, ...]


@dataclass(frozen=True, slots=True)
class TopologySyntax(Spanned):
    """``topology NAME(PARAMETERS) { "DOC" ... }``."""

    name: Name
    parameters: tuple[Parameter, ...]
    doc: str | None
    body: Declarations
