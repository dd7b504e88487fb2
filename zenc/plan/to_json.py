"""Parts of plans as JSON: ``Plan.to_json`` writes the whole, ``zenc.plan.from_json`` reads it.

Moves and compression are in the language, for people to play.

{"zenc_plan": 3, "scheme": "balanced", "size": 4, ..., "tiers": [{"name": "", "partition": "parallelism", ...}],
 "pushes": [{"tier": 0, "format": "auto", "moves":
    [{"step": [{"for": "d", "from": "1", "to": "size - 1",
                "do": [{"send": "part rank", "to": "(rank + d) mod size", "at": "patterns.zen:21:52"}]}]}]}]}
"""

from __future__ import annotations

from typing import Any

from zenc.common.versioned import PLAN
from zenc.errors import Span
from zenc.language import schedule as s
from zenc.language.formatter import expression_text, parts_text
from zenc.scheme.compression import Code, Feedback, Selection, Warmup
from zenc.scheme.compression_words import key_of, selection_text, words_of
from zenc.scheme.model import Contiguous, Encoded, HierarchicalHash, Holders, Mapping, Permutation

Json = dict[str, Any]
HEAD = PLAN.head
"""The keys that a plan's JSON begins with."""


def words_to_json(**parts: Code | Feedback | Warmup | None) -> Json:
    """Return those of ``parts`` that are there, in the words of the language."""
    return {key: words_of(part, whole=True) for key, part in parts.items() if part is not None}


def select_to_json(select: tuple[Selection, ...]) -> Json:
    """Return the selection of a phase; nothing where it takes all."""
    return {key_of(select): selection_text(select, whole=True)} if select else {}


def place_to_json(span: Span | None, places: bool) -> Json:
    """Return the place in the text that something is from, where it has one and ``places`` are told."""
    return {"at": span.name} if span is not None and places else {}


def mapping_to_json(mapping: Mapping) -> Json:
    """Return the kind of ``mapping``, and its numbers."""
    match mapping:
        case Contiguous():
            return {"kind": "contiguous"}
        case Permutation(seed, block):
            return {"kind": "permutation", "seed": seed, "block": block or "auto"}
        case HierarchicalHash(k, r1, r2, seed):
            return {"kind": "hierarchical_hash", "k": k, "r1": r1, "r2": r2, "seed": seed}
        case Holders(directory):
            return {"kind": "holders", **({} if directory is None else {"directory": directory})}
        case Encoded():
            return {"kind": "encoded"}


def moves_to_json(block: s.Block, places: bool) -> list[Json]:
    """Return the statements of ``block``, with their places in the text where ``places`` are told."""
    return [{**_statement(each, places), **place_to_json(each.span, places)} for each in block]


def _statement(statement: s.Statement, places: bool) -> Json:
    match statement:
        case s.Step(body):
            return {"step": moves_to_json(body, places)}
        case s.For(variable, first, last, body):
            bounds = {"from": expression_text(first), "to": expression_text(last)}
            return {"for": variable, **bounds, "do": moves_to_json(body, places)}
        case s.If(condition, then, otherwise):
            return {
                "if": expression_text(condition),
                "then": moves_to_json(then, places),
                "else": moves_to_json(otherwise, places),
            }
        case s.Let(name, value):
            return {"let": name, "be": expression_text(value)}
        case s.Trees(chunks, body):
            return {"trees": expression_text(chunks), "do": moves_to_json(body, places)}
        case s.SpanningTree(parts, branches):
            return {"tree": parts_text(parts), "branches": [_branch(each, places) for each in branches]}
        case s.Require(condition, message):
            return {"require": expression_text(condition), "message": message}
        case s.Send(parts, to, origin, where):
            rest = {"of": origin, "where": where}
            told = {key: expression_text(value) for key, value in rest.items() if value is not None}
            return {"send": parts_text(parts), "to": expression_text(to), **told}


def _branch(branch: s.Branch, places: bool) -> Json:
    ends = {"from": expression_text(branch.source), "to": [expression_text(each) for each in branch.to]}
    return {**ends, **place_to_json(branch.span, places)}
