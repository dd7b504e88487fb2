"""Strategies as data: which tensor of a training step goes through which scheme, on which device, with which others.

    Strategy     = name doc? parameters groups: Groups rule: StrategyRule+     # the last rule is about all tensors
    Groups       = Buckets                                # each bucket of DDP by itself
                 | Cuts(ends)                             # groups end before these tensors
                 | SearchedCuts(most)                     # as many groups as gain, and these at most
                 | Fused(bytes?)                          # buffers of one size; None: searched
    StrategyRule = tensors: NamedLike(pattern) | LargerThan(bytes) | AllOthers
                   sums: Candidate | Choice               # a scheme, or several of which the run time takes one
                   device: "" | "gpu" | "host"

A tensor's rule is the first that matches it. ``zenc.strategy.resolve`` makes them of syntax trees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from zenc.errors import Source, Spanned
from zenc.scheme.model import Candidate, Choice

Device: TypeAlias = Literal["", "gpu", "host"]
"""The device that a tensor is selected, encoded and summed on; empty: the one that its gradient is on."""

DEVICES: tuple[Device, ...] = ("gpu", "host")
"""The words that may follow ``on``."""


@dataclass(frozen=True, slots=True)
class Buckets(Spanned):
    """Each bucket of DDP is a group by itself."""


@dataclass(frozen=True, slots=True)
class Cuts(Spanned):
    """Groups that end before the tensors ``ends``, counted in the order in which the backward pass makes gradients.

    ``ends`` ascend from 1: with 12 and 40 the first group has 12 tensors, the second 28, and the last all the others.
    """

    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SearchedCuts(Spanned):
    """Cuts that are searched as MergeComp does (arXiv 2103.15195, Algorithm 2): ``most`` groups, or fewer."""

    most: int


@dataclass(frozen=True, slots=True)
class Fused(Spanned):
    """Buffers that are full at ``bytes``; where it is None, their size is searched, as TopKA2A does."""

    bytes: int | None = None


Groups: TypeAlias = Buckets | Cuts | SearchedCuts | Fused


@dataclass(frozen=True, slots=True)
class NamedLike:
    """Tensors whose names match ``pattern``, in which ``*`` stands for anything, nothing included."""

    pattern: str

    def matches(self, name: str, bytes: int) -> bool:
        """Return whether the tensor's name matches the pattern."""
        return is_like(name, self.pattern)


@dataclass(frozen=True, slots=True)
class LargerThan:
    """Tensors whose gradients have more than ``bytes`` bytes."""

    bytes: float

    def matches(self, name: str, bytes: int) -> bool:
        """Return whether the tensor's gradient is larger."""
        return bytes > self.bytes


@dataclass(frozen=True, slots=True)
class AllOthers:
    """Tensors that no rule before it matches."""

    def matches(self, name: str, bytes: int) -> bool:
        """Return True."""
        return True


TensorSet: TypeAlias = NamedLike | LargerThan | AllOthers


@dataclass(frozen=True, slots=True)
class StrategyRule(Spanned):
    """A set of tensors, the scheme that sums them or a choice among several, and the device."""

    tensors: TensorSet
    sums: Candidate | Choice
    device: Device = ""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The schemes that may run, one or several; the first runs until one is chosen."""
        return self.sums.candidates if isinstance(self.sums, Choice) else (self.sums,)


@dataclass(frozen=True, slots=True)
class Strategy(Spanned):
    """Rules, the last of which is about all remaining tensors, and groups of tensors that are summed together."""

    name: str
    doc: str
    parameters: tuple[tuple[str, int | float], ...]
    groups: Groups
    rules: tuple[StrategyRule, ...]
    sources: tuple[Source, ...] = field(default=(), compare=False, repr=False)

    def matching(self, name: str, bytes: int) -> StrategyRule:
        """Return the rule of the tensor ``name``, whose gradient has ``bytes`` bytes: the first that matches."""
        return next(rule for rule in self.rules if rule.tensors.matches(name, bytes))

    @property
    def candidates(self) -> dict[str, Candidate]:
        """The schemes of all rules by their names, each once, in the order of the rules."""
        found = {each.name: each for rule in reversed(self.rules) for each in reversed(rule.candidates)}
        return dict(reversed(found.items()))


def is_like(name: str, pattern: str) -> bool:
    """Return whether ``name`` matches ``pattern``, in which ``*`` stands for anything, the empty text included."""
    first, *others = pattern.split("*")
    if not others:
        return name == pattern
    *pieces, last = others
    at, end = len(first), len(name) - len(last)
    if not name.startswith(first) or not name.endswith(last) or end < at:
        return False
    for piece in pieces:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def covers(first: TensorSet, later: TensorSet) -> bool:
    """Return whether every tensor that ``later`` matches is matched by ``first``."""
    match first, later:
        case AllOthers(), _:
            return True
        case NamedLike(pattern), NamedLike(other):  # no name has a NUL: only a star of ``pattern`` can match it
            return is_like(other.replace("*", "\0"), pattern)
        case NamedLike(pattern), _:
            return not pattern.strip("*") and pattern != ""
        case LargerThan(bytes), LargerThan(other_bytes):
            return other_bytes >= bytes
    return False
