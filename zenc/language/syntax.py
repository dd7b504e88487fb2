"""The syntax tree: names and values as they were written, before they have a meaning.

    File         = Import* Schedule* SchemeSyntax* TopologySyntax* CompressSyntax* StrategySyntax*   # in any order
    SchemeSyntax = name Parameter* doc? EntrySyntax* TierSyntax* ChoiceSyntax*
    CompressSyntax = name Parameter* doc? EntrySyntax*         # a compressor: compress dgc(m = 0.9) { ... }
    StrategySyntax = name Parameter* doc? OptionSyntax* RuleSyntax*
    OptionSyntax = key ":" name Setting*                       # groups: fused(4 MB)
    RuleSyntax   = TensorsSyntax (Word | ChoiceSyntax) device? # tensors "wte.*": one_bit on gpu
    TensorsSyntax = NamedLikeSyntax | LargerThanSyntax | AllOthersSyntax
    Schedule     = name Parameter* doc? push: Block pull: Block
    EntrySyntax  = key ":" Value
    TierSyntax   = name size? ":" Word                         # tier node(8): dense_ring
    ChoiceSyntax = Argument* Word+                             # choose(every = 50) from [balanced, zen(k = 3)]
    Value        = Phrase                                      # balanced by permutation(seed); point_to_point then ring
                 | Schedule                                    # schedule { push { ... } pull { ... } }, without a name
    Phrase       = Word (("by" | "then" | "as") Word)*
    Word         = name (Argument*)
    Literal      = int | float

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

Dimension names and values are kept as the names that were written, and so are places and units of topologies.
``zenc.scheme.resolve`` and ``zenc.topology.load`` give them meaning, so that a typo gets an error about its meaning and
never one about tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from zenc.errors import Source, Span, Spanned
from zenc.language.schedule import Block, Expression, Let, Require


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
class CompressSyntax(Spanned):
    """``compress NAME(PARAMETERS) { "DOC" ... }``: entries that schemes have in common, under a name."""

    name: Name
    parameters: tuple[Parameter, ...]
    doc: str | None
    entries: tuple[EntrySyntax, ...]


@dataclass(frozen=True, slots=True)
class OptionSyntax(Spanned):
    """``KEY: NAME(SETTINGS)`` in a strategy."""

    key: Name
    name: Name
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedLikeSyntax(Spanned):
    """``tensors "PATTERN"``."""

    pattern: str


@dataclass(frozen=True, slots=True)
class LargerThanSyntax(Spanned):
    """``tensors above SIZE``."""

    size: Quantity


@dataclass(frozen=True, slots=True)
class AllOthersSyntax(Spanned):
    """``others``."""


TensorsSyntax: TypeAlias = NamedLikeSyntax | LargerThanSyntax | AllOthersSyntax


@dataclass(frozen=True, slots=True)
class RuleSyntax(Spanned):
    """``TENSORS: SCHEME on DEVICE``, or a choice of schemes."""

    tensors: TensorsSyntax
    sums: Word | ChoiceSyntax
    device: Name | None = None

    @property
    def words(self) -> tuple[Word, ...]:
        """The schemes that it names."""
        return self.sums.candidates if isinstance(self.sums, ChoiceSyntax) else (self.sums,)


@dataclass(frozen=True, slots=True)
class StrategySyntax(Spanned):
    """``strategy NAME(PARAMETERS) { "DOC" ... }``, with options and rules each in the order of the text."""

    name: Name
    parameters: tuple[Parameter, ...]
    doc: str | None
    options: tuple[OptionSyntax, ...]
    rules: tuple[RuleSyntax, ...]

    @property
    def words(self) -> tuple[Word, ...]:
        """The schemes that the rules name."""
        return tuple(word for rule in self.rules for word in rule.words)


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
    compressors: tuple[CompressSyntax, ...] = ()
    strategies: tuple[StrategySyntax, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantity(Spanned):
    """``300 GB/s``, ``2 us``, ``80 GB``: a number with a unit, which has no meaning yet."""

    value: Expression | Number
    unit: Name


@dataclass(frozen=True, slots=True)
class PlaceSyntax(Spanned):
    """``gpu(n, g)``, ``network``: a rank, a switch or another node by the name of its level and its indices."""

    name: Name
    indices: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting(Spanned):
    """``NAME = VALUE`` or ``VALUE`` in the parentheses of ``like``."""

    value: Expression | Number | Quantity
    name: Name | None = None


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
