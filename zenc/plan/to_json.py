"""Plans as JSON, which ``zenc.plan.from_json`` reads. Moves and compression are in the language, for people to play.

{"zenc_plan": 3, "scheme": "balanced", "size": 4, ..., "tiers": [{"name": "", "partition": "parallelism", ...}],
 "pushes": [{"tier": 0, "format": "auto", "moves":
    [{"step": [{"for": "d", "from": "1", "to": "size - 1",
                "do": [{"send": "part rank", "to": "(rank + d) mod size", "at": "patterns.zen:21:52"}]}]}]}]}
"""

from __future__ import annotations

import json
from typing import Any

from zenc.errors import Span
from zenc.language import schedule as s
from zenc.language.formatter import expression_text, parts_text
from zenc.plan.ir import SET_KINDS, Phase, PhaseKind, Plan, Tier
from zenc.scheme.compression_words import selection_text, words_of
from zenc.scheme.model import (
    Contiguous,
    Encoded,
    HierarchicalHash,
    Holders,
    Mapping,
    Permutation,
)
from zenc.versioned import PLAN

Json = dict[str, Any]
KEPT = ("feedback", "warmup")
"""Fields of a plan that its JSON has in the words of the language."""


def plan_to_json(plan: Plan, meaning_only: bool = False) -> Json:
    """Return ``plan`` as JSON data; with ``meaning_only`` without doc strings and places, for the digest."""
    written = _Writer(places=not meaning_only)
    data: Json = {
        **PLAN.head,
        "scheme": plan.scheme,
        "parameters": dict(plan.parameters),
        "size": plan.size,
        "mapping": _mapping_to_json(plan.mapping),
        **({} if plan.across is None else {"across": _mapping_to_json(plan.across)}),
        "unit": plan.unit.value,
        "tiers": [written.tier(tier) for tier in plan.tiers],
        "pushes": [written.phase(phase) for phase in plan.of(PhaseKind.PUSH)],
        "pulls": [written.phase(phase) for phase in plan.of(PhaseKind.PULL)],
        **{phase.kind.value: written.phase(phase) for phase in plan.of(*SET_KINDS)},
        **{key: words_of(kept, whole=True) for key in KEPT if (kept := getattr(plan, key)) is not None},
    }
    return data if meaning_only else {**data, "doc": plan.doc}


def plan_text(plan: Plan) -> str:
    """Return the JSON text of ``plan``, for people and for files."""
    return json.dumps(plan_to_json(plan), indent=2) + "\n"


def _mapping_to_json(mapping: Mapping) -> Json:
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


class _Writer:
    def __init__(self, places: bool) -> None:
        self.places = places

    def place(self, span: Span | None) -> Json:
        return {"at": span.name} if span is not None and self.places else {}

    def tier(self, tier: Tier) -> Json:
        return {
            "name": tier.name,
            "size": tier.size,
            "communication": tier.communication,
            "partition": tier.partition.value,
            "aggregation": tier.aggregation.value,
            **self.place(tier.span),
        }

    def phase(self, phase: Phase) -> Json:
        moves = {"tier": phase.tier.depth, "format": phase.format.value, "moves": self.block(phase.block)}
        code = {"code": words_of(phase.code, whole=True)} if phase.code else {}
        select = {"select": selection_text(phase.select, whole=True)} if phase.select else {}
        return {**moves, **code, **select, **self.place(phase.span)}

    def block(self, block: s.Block) -> list[Json]:
        return [{**self._statement(statement), **self.place(statement.span)} for statement in block]

    def _statement(self, statement: s.Statement) -> Json:
        match statement:
            case s.Step(body):
                return {"step": self.block(body)}
            case s.For(variable, first, last, body):
                bounds = {"from": expression_text(first), "to": expression_text(last)}
                return {"for": variable, **bounds, "do": self.block(body)}
            case s.If(condition, then, otherwise):
                return {"if": expression_text(condition), "then": self.block(then), "else": self.block(otherwise)}
            case s.Let(name, value):
                return {"let": name, "be": expression_text(value)}
            case s.Require(condition, message):
                return {"require": expression_text(condition), "message": message}
            case s.Send(parts, to, origin, where):
                rest = {"of": origin, "where": where}
                told = {key: expression_text(value) for key, value in rest.items() if value is not None}
                return {"send": parts_text(parts), "to": expression_text(to), **told}
