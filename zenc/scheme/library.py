"""The schemes that come with zenc."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from zenc.common.resources import directory
from zenc.language.files import load_file, shipped_names
from zenc.scheme.compression_words import key_of, selection_text, words_of
from zenc.scheme.model import (
    Choice,
    Encoded,
    HierarchicalHash,
    Holders,
    Partition,
    Permutation,
    Scheme,
    TierDeclaration,
)
from zenc.scheme.resolve import DIMENSIONS, resolve_any


class TierEntry(TypedDict):
    """A tier of a shipped scheme; ``size`` is None for the outermost, which takes the rest of the ranks."""

    name: str
    size: int | None
    communication: str
    aggregation: str
    partition: str
    push: str
    pull: str


class ShippedScheme(TypedDict):
    """A line of the list of schemes; ``balance`` is None under centralization, where there is nothing to balance.

    ``push`` and ``pull`` are wire formats, ``compression`` has the scheme's selections, codes and keepers, empty where
    its sums are those of the gradients; ``parameters`` are those of the scheme with their defaults. ``tiers`` is
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
    compression: str
    parameters: dict[str, int | float]
    tiers: list[TierEntry]
    candidates: list[str]
    summary: str


def shipped() -> list[ShippedScheme]:
    """Return the shipped schemes by name, with their default parameters."""
    paths = [directory("schemes") / f"{name}.zen" for name in shipped_names()]
    return [_entry(path, scheme.name.text) for path in paths for scheme in load_file(path).main.schemes]


def _entry(path: Path, name: str) -> ShippedScheme:
    scheme, _ = resolve_any(load_file(path), name)
    tiers = () if isinstance(scheme, Choice) else scheme.tiers
    entries = [_tier_entry(tier) for tier in tiers]
    communication, aggregation, partition, push, pull = (
        " + ".join(dict.fromkeys(str(dict(entry)[key]) for entry in entries)) for key in DIMENSIONS
    )
    return ShippedScheme(
        name=scheme.name,
        path=str(path),
        communication=communication,
        aggregation=aggregation,
        partition=partition,
        balance=None if isinstance(scheme, Choice) else balance_text(scheme),
        push=push,
        pull=pull,
        compression="" if isinstance(scheme, Choice) else compression_text(scheme),
        parameters=dict(scheme.parameters),
        tiers=[entry for entry in entries if entry["name"]],
        candidates=[candidate.name for candidate in scheme.candidates] if isinstance(scheme, Choice) else [],
        summary=scheme.doc,
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


def compression_text(scheme: Scheme) -> str:
    """Return ``select top(0.01), push as f16, feedback residual``: the words of compression, or an empty text."""
    told: dict[str, None] = {f"transform {words_of(scheme.transform)}": None} if scheme.transform else {}
    for tier in scheme.tiers:
        selected = {key_of(tier.select): tier.select, "merge": tier.merge, "reselect": tier.reselect}
        told |= {f"{key} {selection_text(value)}": None for key, value in selected.items() if value}
        codes = {"push": tier.push_code, "pull": tier.pull_code}
        told |= {f"{key} as {words_of(code)}": None for key, code in codes.items() if code}
    kept = {"feedback": scheme.feedback, "warmup": scheme.warmup}
    return ", ".join([*told, *(f"{key} {words_of(value)}" for key, value in kept.items() if value)])


def balance_text(scheme: Scheme) -> str | None:
    """Return the balance of ``scheme`` as its author writes it, without arguments; None under centralization."""
    if all(tier.partition is Partition.CENTRALIZATION for tier in scheme.tiers):
        return None
    if scheme.across is not None:
        inside = balance_text(replace(scheme, tiers=scheme.tiers[:-1], across=None))
        return f"{inside} + balanced by holders" if inside else "balanced by holders"
    match scheme.mapping:
        case Permutation():
            return "balanced by permutation"
        case HierarchicalHash():
            return "balanced by hierarchical_hash"
        case Holders():
            return "balanced by holders"
        case Encoded():
            return "balanced by encoded"
    return "imbalanced"
