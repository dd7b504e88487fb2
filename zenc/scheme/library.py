"""The schemes that come with zenc."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from zenc.language.files import PRELUDE, load_file
from zenc.resources import directory
from zenc.scheme.model import Choice, HierarchicalHash, Holders, Partition, Permutation, Scheme, TierDeclaration
from zenc.scheme.resolve import resolve_any


class TierEntry(TypedDict):
    """One tier of a scheme; ``size`` is None for the outermost, which takes what is left of the ranks."""

    name: str
    size: int | None
    communication: str
    aggregation: str
    partition: str
    push: str
    pull: str


class ShippedScheme(TypedDict):
    """One line of the list. ``balance`` is None under centralization, where there is nothing to balance.

    ``push`` and ``pull`` are wire formats, ``parameters`` those of the scheme with their defaults. ``tiers`` is
    empty for a scheme without them; where they differ, a dimension has theirs with plus signs between. A scheme that
    chooses has ``candidates`` and no dimensions: these are empty strings.
    """

    name: str
    path: str
    communication: str
    aggregation: str
    partition: str
    balance: str | None
    push: str
    pull: str
    parameters: dict[str, int | float]
    tiers: list[TierEntry]
    candidates: list[str]
    summary: str


def shipped() -> list[ShippedScheme]:
    """The shipped schemes by name, with their default parameters."""
    paths = sorted(path for path in directory("schemes").glob("*.zen") if path.name != PRELUDE)
    return [_entry(path, scheme.name.text) for path in paths for scheme in load_file(path).main.schemes]


def _entry(path: Path, name: str) -> ShippedScheme:
    scheme, _ = resolve_any(load_file(path), name)
    if isinstance(scheme, Choice):
        return _entry_of_choice(path, scheme)
    return ShippedScheme(
        name=scheme.name,
        path=str(path),
        communication=_of_tiers(tier.communication.name for tier in scheme.tiers),
        aggregation=_of_tiers(tier.aggregation.value for tier in scheme.tiers),
        partition=_of_tiers(tier.partition.value for tier in scheme.tiers),
        balance=balance_text(scheme),
        push=_of_tiers(tier.push.value for tier in scheme.tiers),
        pull=_of_tiers(tier.pull.value for tier in scheme.tiers),
        parameters=dict(scheme.parameters),
        tiers=[_tier_entry(tier) for tier in scheme.tiers if tier.name],
        candidates=[],
        summary=scheme.doc,
    )


def _entry_of_choice(path: Path, choice: Choice) -> ShippedScheme:
    return ShippedScheme(
        name=choice.name,
        path=str(path),
        communication="",
        aggregation="",
        partition="",
        balance=None,
        push="",
        pull="",
        parameters=dict(choice.parameters),
        tiers=[],
        candidates=[candidate.name for candidate in choice.candidates],
        summary=choice.doc,
    )


def _tier_entry(tier: TierDeclaration) -> TierEntry:
    return TierEntry(
        name=tier.name,
        size=tier.size,
        communication=tier.communication.name,
        aggregation=tier.aggregation.value,
        partition=tier.partition.value,
        push=tier.push.value,
        pull=tier.pull.value,
    )


def _of_tiers(values: Iterable[str]) -> str:
    return " + ".join(dict.fromkeys(values))


def balance_text(scheme: Scheme) -> str | None:
    """The balance of ``scheme`` as its author writes it, without arguments; None under centralization."""
    if all(tier.partition is Partition.CENTRALIZATION for tier in scheme.tiers):
        return None
    match scheme.mapping:
        case Permutation():
            return "balanced by permutation"
        case HierarchicalHash():
            return "balanced by hierarchical_hash"
        case Holders():
            return "balanced by holders"
    return "imbalanced"
