"""Scheme -> Plan: evaluation of all that is known before any rank runs.

Conditions that only the scheme decides (``parts > 1`` under centralization, ``one_shot``) are settled and the blocks
that can't run are dropped, so that a plan shows the moves of this scheme and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from zenc.errors import Diagnostic, VerificationError
from zenc.language import schedule as s
from zenc.plan.expressions import EvaluationError, Scope, evaluate
from zenc.plan.ir import Phase, PhaseKind, Plan, Tier
from zenc.plan.tier_layout import ONE, PARTS, ZERO, places, rewritten
from zenc.scheme.model import Aggregation, Format, Holders, Partition, Scheme

LARGEST_SIZE = 1 << 16
MOST_PICOSECONDS = 1 << 20
"""The slowest link that is told, of 1 MB/s: beyond it only bytes count."""


def lower(scheme: Scheme, size: int | None = None) -> Plan:
    """Return the plan of ``scheme`` for ``size`` ranks, or for any number of them.

    Raises VerificationError (``bad-size``) for a size below 1 or above 65,536.
    """
    if size is not None and not 1 <= size <= LARGEST_SIZE:
        message = f"a plan is for 1 to {LARGEST_SIZE:,} ranks, not {size:,}"
        raise VerificationError(Diagnostic("bad-size", message))
    tiers = tuple(
        Tier(
            tier.name, tier.size, tier.communication.name, tier.partition, tier.aggregation, depth, tier.span, tier.cut
        )
        for depth, tier in enumerate(scheme.tiers)
    )
    pushes, pulls = zip(*(_push_and_pull(scheme, tier, size) for tier in tiers), strict=True)
    announced = _announce(scheme, tiers[-1], size)
    return Plan(
        scheme=scheme.name,
        doc=scheme.doc,
        parameters=scheme.parameters,
        size=size,
        mapping=scheme.mapping,
        unit=scheme.unit,
        tiers=tiers,
        phases=(*pushes[:-1], *announced, pushes[-1], *reversed(pulls)),
        feedback=scheme.feedback,
        warmup=scheme.warmup,
        transform=scheme.transform,
        across=scheme.across,
    )


def _announce(scheme: Scheme, tier: Tier, size: int | None) -> Iterator[Phase]:
    """Yield the announce: the push of a schedule in which ranks gather one part unmerged, their index sets.

    Most schemes have none. Where a directory is to name owners, sets have as many parts as there are ranks, and the
    pull follows.
    """
    if scheme.announce is None:
        return
    moves, mapping = scheme.announce, scheme.across or scheme.mapping
    directory = isinstance(mapping, Holders) and mapping.directory
    push, pull = moves.push, moves.pull
    if scheme.across is not None:
        place = places(scheme.tiers)[-1]
        place = replace(place, parts=PARTS if directory else ONE, one_shot=ONE, owned=ZERO, width=ONE)
        push, pull = rewritten(push, place), rewritten(pull, place)
    known = {"one_shot": 1, **({} if directory else {"parts": 1}), **({} if size is None else {"size": size})}
    scope = Scope(np.zeros(1, dtype=np.int64), known)
    yield Phase(PhaseKind.ANNOUNCE, _settled(push, scope), Format.AUTO, tier, span=moves.push_span)
    if directory:
        yield Phase(PhaseKind.DIRECTORY, _settled(pull, scope), Format.AUTO, tier, span=moves.pull_span)


def _push_and_pull(scheme: Scheme, tier: Tier, size: int | None) -> tuple[Phase, Phase]:
    of, known = scheme.tiers[tier.depth], _known(scheme, size)
    moves, (push_said, pull_said) = of.communication, of.code_spans
    push, pull = moves.push, moves.pull
    if len(scheme.tiers) > 1:
        place = places(scheme.tiers)[tier.depth]
        push, pull = rewritten(push, place), rewritten(pull, place)
    push, pull = _settled(push, known), _settled(pull, known)
    push_at, pull_at = (moves.push_span, push_said), (moves.pull_span, pull_said)
    return (
        Phase(PhaseKind.PUSH, push, of.push, tier, of.push_code, of.select, *push_at, of.merge),
        Phase(PhaseKind.PULL, pull, of.pull, tier, of.pull_code, of.reselect, *pull_at),
    )


def _known(scheme: Scheme, size: int | None) -> Scope:
    """Return the names that decide conditions; moves rewritten for a tier have no ``parts`` and ``one_shot``."""
    outermost = scheme.tiers[-1]
    values = {"one_shot": int(outermost.aggregation is Aggregation.ONE_SHOT)}
    if size is not None:
        values["size"] = size
    if outermost.partition is Partition.CENTRALIZATION:
        values["parts"] = 1
    elif size is not None:
        values["parts"] = size * outermost.cut
    return Scope(np.zeros(1, dtype=np.int64), values)


def _settled(block: s.Block, known: Scope) -> s.Block:
    return tuple(kept for statement in block for kept in _kept(statement, known))


def _kept(statement: s.Statement, known: Scope) -> Iterator[s.Statement]:
    """Yield ``statement`` without branches that can't run."""
    match statement:
        case s.If(condition, then, otherwise):
            truth = partial_eval(condition, known)
            if truth is not None:
                yield from _settled(then if truth else otherwise, known)
            else:
                yield s.If(condition, _settled(then, known), _settled(otherwise, known), span=statement.span)
        case s.For(body=body) | s.Step(body):
            inner = _settled(body, known)
            if inner:
                yield replace(statement, body=inner)
        case _:
            yield statement


def partial_eval(expression: s.Expression, known: Scope) -> int | None:
    """Return the value of ``expression`` if the names in ``known`` decide it; otherwise None.

    ``and`` and ``or`` are decided by one side alone where that side can.
    """
    match expression:
        case s.Binary("and" | "or" as operator, left, right):
            sides = [partial_eval(left, known), partial_eval(right, known)]
            deciding = operator == "or"
            if any(side is not None and bool(side) == deciding for side in sides):
                return int(deciding)
    if not known.values.keys() >= set(s.names_in(expression)):
        return None
    try:
        return int(evaluate(expression, known))
    except EvaluationError:
        return None  # reported with its rank when the moves are made
