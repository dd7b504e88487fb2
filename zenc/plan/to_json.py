"""Parts of plans as JSON: ``Plan.to_json`` writes the whole, ``zenc.plan.from_json`` reads it.

Moves and compression are in the language, for people to play.

{"zenc_plan": 3, "scheme": "balanced", "size": 4, ..., "tiers": [{"name": "", "partition": "parallelism", ...}],
 "pushes": [{"tier": 0, "format": "auto", "moves":
    [{"step": [{"for": "d", "from": "1", "to": "size - 1",
                "do": [{"send": "part rank", "to": "(rank + d) mod size", "at": "patterns.zen:21:52"}]}]}]}]}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from zenc.common.json_codec import Codec
from zenc.common.versioned import PLAN
from zenc.errors import Span
from zenc.language import schedule as s
from zenc.language.formatter import expression_text, parts_text
from zenc.scheme.compression import Code, Feedback, Selection, Transform, Warmup
from zenc.scheme.compression_words import key_of, selection_text, words_of
from zenc.scheme.model import Contiguous, Encoded, HierarchicalHash, Holders, Mapping, Permutation

Json = dict[str, Any]
HEAD = PLAN.head
"""The keys that a plan's JSON begins with."""
KEYS: dict[type, tuple[str, ...]] = {
    s.Step: ("step",),
    s.For: ("for", "from", "to", "do"),
    s.If: ("if", "then", "else"),
    s.Let: ("let", "be"),
    s.Trees: ("trees", "do"),
    s.SpanningTree: ("tree", "branches"),
    s.Branch: ("from", "to"),
    s.Require: ("require", "message"),
    s.Send: ("send", "to", "of", "where"),
    Contiguous: ("kind=contiguous",),
    Permutation: ("kind=permutation", "seed", "block"),
    HierarchicalHash: ("kind=hierarchical_hash", "k", "r1", "r2", "seed"),
    Holders: ("kind=holders", "directory"),
    Encoded: ("kind=encoded",),
}
"""The keys of statements and mappings in JSON, for their fields."""
TEXTS: dict[Any, Callable[[Any], str]] = {
    **dict.fromkeys(get_args(s.Expression), expression_text),
    **dict.fromkeys(get_args(s.Parts), parts_text),
    Span: lambda span: span.name,
}
CODECS = {places: Codec(KEYS, TEXTS, brief=True, places=places) for places in (False, True)}
"""Codecs that write nodes of a plan, with their places in the text or without them."""


def words_to_json(**parts: Code | Feedback | Transform | Warmup | None) -> Json:
    """Return those of ``parts`` that are there, in the words of the language."""
    return {key: words_of(part, whole=True) for key, part in parts.items() if part is not None}


def select_to_json(select: tuple[Selection, ...], merge: tuple[Selection, ...]) -> Json:
    """Return the selections of a phase, and of its merges; nothing where they take all."""
    return {key: selection_text(each, whole=True) for key, each in ((key_of(select), select), ("merge", merge)) if each}


def mapping_to_json(mapping: Mapping) -> Json:
    """Return the kind of ``mapping``, and its numbers."""
    told: Json = CODECS[False].encode(mapping)
    return {**told, "block": mapping.block or "auto"} if isinstance(mapping, Permutation) else told
