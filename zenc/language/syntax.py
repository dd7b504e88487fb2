"""The syntax tree: names and values as they were written, before they have a meaning.

    File         = Import* Schedule* SchemeSyntax* TopologySyntax* CompressSyntax* StrategySyntax* AveragingSyntax*
    SchemeSyntax = name Parameter* doc? EntrySyntax* TierSyntax* ChoiceSyntax*
    CompressSyntax = name Parameter* doc? EntrySyntax*         # a compressor: compress dgc(m = 0.9) { ... }
    StrategySyntax = name Parameter* doc? OptionSyntax* RuleSyntax*
    OptionSyntax = key ":" name Setting*                       # groups: fused(4 MB)
    RuleSyntax   = TensorsSyntax (Word | ChoiceSyntax) device? # tensors "wte.*": one_bit on gpu
    TensorsSyntax = NamedLikeSyntax | LargerThanSyntax | AllOthersSyntax
    AveragingSyntax   = name Parameter* doc? EntrySyntax* AlternationSyntax*
    AlternationSyntax = DivisionSyntax+                        # alternate [rows(4), columns(4)]
    DivisionSyntax    = NamedDivisionSyntax(Word) | LevelDivisionSyntax(across?, inside?) | ListedDivisionSyntax
    Schedule     = name Parameter* doc? push: Block pull: Block
    EntrySyntax  = key ":" Value
    TierSyntax   = name size? ":" Word                         # tier node(8): dense_ring
    ChoiceSyntax = Argument* Word+                             # choose(every = 50) from [balanced, zen(k = 3)]
    Value        = Phrase                                      # balanced by permutation(seed); point_to_point then ring
                 | Schedule                                    # schedule { push { ... } pull { ... } }, without a name

Dimension names and values are kept as the names that were written. ``zenc.scheme.resolve`` gives them meaning, so that
a typo gets an error about its meaning and never one about tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from zenc.errors import Source, Span, Spanned
from zenc.language.schedule import Block, Expression, Require
from zenc.language.terms import Name, Parameter, Phrase, Quantity, Setting, Word
from zenc.language.topology_syntax import TopologySyntax


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
class NamedDivisionSyntax(Spanned):
    """``rows(4)``: a division of the ranks into groups by its name."""

    word: Word


@dataclass(frozen=True, slots=True)
class LevelDivisionSyntax(Spanned):
    """``inside node``, ``across node(8)``, ``across node inside rack``: groups by levels of a cluster."""

    across: Word | None
    inside: Word | None


@dataclass(frozen=True, slots=True)
class ListedDivisionSyntax(Spanned):
    """``groups [0, 1] [2, 3]``: groups whose ranks are written down."""

    groups: tuple[tuple[Expression, ...], ...]


DivisionSyntax: TypeAlias = NamedDivisionSyntax | LevelDivisionSyntax | ListedDivisionSyntax


@dataclass(frozen=True, slots=True)
class AlternationSyntax(Spanned):
    """``alternate [DIVISIONS]``: a period, of a step for each of them."""

    divisions: tuple[DivisionSyntax, ...]


@dataclass(frozen=True, slots=True)
class AveragingSyntax(Spanned):
    """``averaging NAME(PARAMETERS) { "DOC" ... }``; more than one alternation in it is told as an error later."""

    name: Name
    parameters: tuple[Parameter, ...]
    doc: str | None
    entries: tuple[EntrySyntax, ...]
    alternations: tuple[AlternationSyntax, ...]
    requirements: tuple[Require, ...] = ()

    @property
    def words(self) -> tuple[Word, ...]:
        """The schemes that it names."""
        phrases = [entry.value for entry in self.entries if entry.key.text == "sums"]
        return tuple(word for phrase in phrases if isinstance(phrase, Phrase) for word in phrase.words)


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
    averagings: tuple[AveragingSyntax, ...] = ()
