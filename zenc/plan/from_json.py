"""Plans from the JSON that ``zenc.plan.to_json`` writes. The JSON is not trusted: it may be damaged, or forged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import accumulate
from types import UnionType
from typing import TypeVar

from zenc.common.json_codec import Codec, exactly
from zenc.common.versioned import PLAN
from zenc.errors import ArtifactError, Diagnostic, Source, Span, ZencError
from zenc.language import schedule as s
from zenc.language.parse import parse_expression, parse_phrase
from zenc.language.terms import Phrase
from zenc.plan.ir import SET_KINDS, Phase, PhaseKind, Plan, Tier
from zenc.plan.lower import LARGEST_SIZE, MOST_PICOSECONDS
from zenc.plan.to_json import KEYS, Json
from zenc.scheme.arguments import Environment
from zenc.scheme.collector import Collector
from zenc.scheme.compression import Fixed, Linear, LowRank, Momentum, Selection, Vote
from zenc.scheme.compression_words import OPTIONAL, read_code, read_optional, read_projection, read_selection
from zenc.scheme.model import (
    MOST_CUT,
    MOST_FUNCTIONS,
    PERMUTED_BLOCKS,
    Encoded,
    Format,
    Holders,
    Mapping,
    Partition,
    Unit,
)
from zenc.scheme.scope import Checker
from zenc.scheme.values import MOST_CELLS

MOST_LINES = 1 << 20
"""Greatest line and column of a place; greater ones are taken for damage."""
MOST_LETTERS = 100_000
"""Most characters of expressions, with ``LETTERS_BESIDE`` each but for numbers; 64 ranks, written out, have 34,000."""
LETTERS_BESIDE = 8
MOST_BLANKS = 1 << 28
"""Most characters that stand for missing texts."""
MOST_PHRASE = 1000
"""Most characters of a selection or a code."""
MOST_TIERS = 64
LIMITS = {
    "size": (1, LARGEST_SIZE),
    "cut": (1, MOST_CUT),
    "k": (1, MOST_FUNCTIONS),
    "r1": (0.0, MOST_CELLS),
    "r2": (0.0, MOST_CELLS),
    "seed": (0, 2**64 - 1),
    "directory": (1, LARGEST_SIZE),
    "link": (0, MOST_PICOSECONDS),
}
"""Field of a plan, tier or mapping -> its least and greatest value."""
Parameters = dict[str, int | float]
T = TypeVar("T")
N = TypeVar("N", int, float)
NodeT = TypeVar("NodeT", Plan, Tier, Mapping)


def plan_from_json(data: object, sources: Iterable[Source] = ()) -> Plan:
    """Return the plan that ``plan_to_json`` wrote; places point into ``sources`` where these hold their text.

    Raises ArtifactError (``bad-plan``) on anything else, and (``other-version``) on a plan of another zenc.
    """
    reader = _PlanReader({source.name: source for source in sources})
    try:
        return reader.plan(exactly(data, dict))
    except ArtifactError:
        raise
    except (ZencError, LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        message = f"this is no plan of zenc: {_reason(error)}"
        raise ArtifactError(Diagnostic("bad-plan", message, help="compile the scheme again")) from error


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return (str(error).splitlines() or [type(error).__name__])[0]


def _ensure_meaning(phases: Iterable[Phase]) -> None:
    """Check the guarantees of the scheme stage that the proof builds on: names, functions, moves in steps.

    Names may be declared twice: settling a condition leaves its branch in the block around it.
    """
    report = Collector()
    for phase in phases:
        Checker((), report).check(phase.block)
    found = [diagnostic for diagnostic in report.found if diagnostic.id in _MEANINGLESS]
    if found:
        raise ValueError(found[0].message)


_BESIDE_TREES = s.For | s.If | s.Step | s.Send | s.Trees
"""Statements that stand in no tree's block."""
_MEANINGLESS = {
    "loose-branch",
    "unknown-name",
    "unknown-function",
    "wrong-arguments",
    "send-outside-step",
    "nested-step",
}


def _ensure_trees(nodes: Iterable[object], strays: type | UnionType) -> None:
    for node in nodes:
        if isinstance(node, strays):
            raise ValueError("trees stand in a phase, and in them trees")
        if isinstance(node, s.SpanningTree) and not (node.branches and all(branch.to for branch in node.branches)):
            raise ValueError("a tree has branches, each to a rank")
        if isinstance(node, s.Statement):
            _ensure_trees(s.children(node), _BESIDE_TREES if isinstance(node, s.Trees) else s.SpanningTree)


def _in_range(value: N, least: N, most: N) -> N:
    if not least <= value <= most:
        raise ValueError(f"{value} is not {least} to {most}")
    return value


class _PlanReader:
    def __init__(self, sources: dict[str, Source]) -> None:
        self.sources, self.letters, self.blanks = sources, 0, 0
        self._starts: dict[str, list[int]] = {}
        """The places where lines start, and one beyond the text, for each source."""
        leaves = {s.Expression: self.expression, s.Parts: self.parts, Span: self.place}
        self.item = Codec(KEYS, leaves, places=True).item

    def plan(self, data: Json) -> Plan:
        PLAN.ensure(data, "this plan")
        tiers = self.item(data, "tiers", tuple[Tier, ...])
        tiers = tuple(replace(_in_limits(tier), depth=depth) for depth, tier in enumerate(tiers))
        _in_range(len(tiers), 1, MOST_TIERS)
        _ensure_nested(tiers)
        mapping, announces = self.mapping(data, "mapping"), "announce" in data
        across = self.mapping(data, "across") if "across" in data else None
        *inner, last = self.phases(data["pushes"], PhaseKind.PUSH, tiers)
        sets = (self.phase(data[kind.value], kind, tiers) for kind in SET_KINDS if kind.value in data)
        phases = (*inner, *sets, last, *self.phases(data["pulls"], PhaseKind.PULL, tiers[::-1]))
        holders = mapping if across is None else across
        if announces != isinstance(holders, Holders):
            raise ValueError("units are announced under the mapping 'holders', and under no other")
        if ("directory" in data) != (isinstance(holders, Holders) and holders.directory is not None):
            raise ValueError("a directory has moves, and a least number of ranks")
        whole = isinstance(holders, Holders) and not (across or holders.directory)
        if isinstance(holders, Holders | Encoded) and tiers[-1].cut > 1 and not whole:
            raise ValueError("parts by encoded sizes, of a directory or of a tier's owners are as many as ranks")
        if announces:
            _ensure_owners(tiers, phases, mapping, across)
        if across is not None and {"feedback", "warmup", "transform"} & data.keys():
            raise ValueError("nothing is lost where a tier has owners of its own")
        _ensure_meaning(phases)
        _ensure_summable(phases, announces, may_select=across is None)
        plan = Plan(
            scheme=self.item(data, "scheme", str),
            doc=self.item(data, "doc", str),
            parameters=tuple(self.item(data, "parameters", Parameters).items()),
            size=self.item(data, "size", int | None),
            mapping=mapping,
            unit=self.item(data, "unit", Unit),
            tiers=tiers,
            phases=phases,
            **{kind: _words(data, kind, partial(read_optional, kind), None) for kind in OPTIONAL},
            across=across if isinstance(across, Holders) else None,
            link=self.item({"link": 0, **data}, "link", int),
        )
        first = plan.of(PhaseKind.PUSH)[0].select
        if plan.transform and (isinstance(plan.feedback, Momentum) or not first or isinstance(first[0], Linear)):
            raise ValueError("units are selected of the coefficients of a transform, without momentum")
        if plan.votes and any(phase.selects or not isinstance(phase.code, Vote | None) for phase in plan.phases):
            raise ValueError("votes by momentum are of all values, and there are no other codes")
        return _in_limits(plan)

    def mapping(self, data: Json, key: str) -> Mapping:
        told = data[key]
        if told["kind"] == "permutation":
            told = {**told, "block": _block(told["block"])}
        found: Mapping = self.item({key: told}, key, Mapping)
        return _in_limits(found)

    def phases(self, value: object, kind: PhaseKind, tiers: tuple[Tier, ...]) -> tuple[Phase, ...]:
        """Read one phase for each of ``tiers``, in this order."""
        phases = tuple(self.phase(item, kind, tiers) for item in exactly(value, list))
        if tuple(phase.tier for phase in phases) != tiers:
            raise ValueError("its phases are not one a tier")
        return phases

    def phase(self, value: object, kind: PhaseKind, tiers: tuple[Tier, ...]) -> Phase:
        data = exactly(value, dict)
        depth = _in_range(self.item(data, "tier", int), 0, len(tiers) - 1)
        (tier,) = (tier for tier in tiers if tier.depth == depth)
        code = _words(data, "code", read_code, None)
        select: tuple[Selection, ...] = _words(data, "select", read_selection, ())
        select += _words(data, "project", read_projection, tuple[Selection, ...]())
        moves, format = self.item(data, "moves", s.Block), self.item(data, "format", Format)
        _ensure_trees(moves, s.SpanningTree)
        place = self.item(data, "at", Span) if "at" in data else None
        merge: tuple[Selection, ...] = _words(data, "merge", read_selection, ())
        return Phase(kind, moves, format, tier, code, select, place, merge=merge)

    def place(self, data: object) -> Span:
        name, *place = exactly(data, str).rsplit(":", 2)
        line, column = (_in_range(int(number), 1, MOST_LINES) for number in place)
        source = self.sources.get(name)
        if source is None or not source.text:
            return self._blank(name, line, column)
        if name not in self._starts:
            lengths = map(len, source.text.split("\n"))
            self._starts[name] = list(accumulate(lengths, lambda start, length: start + length + 1, initial=0))
        start = self._starts[name][min(line, len(self._starts[name])) - 1] + column - 1
        return Span(source, start, start + 1)

    def _blank(self, name: str, line: int, column: int) -> Span:
        """Return a place in a missing text: in a text of blanks, in which the offset gives the line and the column."""
        self.blanks = _in_range(self.blanks + line + column, 0, MOST_BLANKS)
        source = Source(name, "\n" * (line - 1) + " " * column)
        return Span(source, len(source.text) - 1, len(source.text))

    def expression(self, value: object) -> s.Expression:
        text = exactly(value, str)
        is_number = text.isascii() and text.isdecimal() and len(text) < 10
        self.letters = _in_range(self.letters + len(text) + LETTERS_BESIDE * (not is_number), 0, MOST_LETTERS)
        return s.Integer(int(text)) if is_number else parse_expression(text)

    def parts(self, data: object) -> s.Parts:
        text = exactly(data, str)
        if text == "all":
            return s.All()
        kind, _, rest = text.partition(" ")
        if kind == "part":
            return s.Part(self.expression(rest))
        if kind != "parts":
            raise ValueError(f"expected 'all', 'part' or 'parts', found {text!r:.40}")
        first, _, last = rest.partition(" .. ")
        return s.PartRange(self.expression(first), self.expression(last))


def _ensure_nested(tiers: tuple[Tier, ...]) -> None:
    if not tiers or tiers[-1].size is not None or any(tier.size is None for tier in tiers[:-1]):
        raise ValueError("the outermost tier, and it alone, has no size")
    if any(tier.cut > 1 and (len(tiers) > 1 or tier.partition is Partition.CENTRALIZATION) for tier in tiers):
        raise ValueError("ranks have several parts each where there is one tier, of parallelism")
    if math.prod(tier.size or 1 for tier in tiers) > LARGEST_SIZE:
        raise ValueError(f"its tiers take more than {LARGEST_SIZE} ranks")


def _ensure_owners(tiers: tuple[Tier, ...], phases: Iterable[Phase], mapping: Mapping, across: Mapping | None) -> None:
    """Check holders: a whole group, in the only or the last tier, shares the units, and values travel alone."""
    of_last = [phase for phase in phases if phase.tier == tiers[-1]]
    cut = tiers[-1].partition is Partition.PARALLELISM and (len(tiers) > 1) == (across is not None)
    if not cut or any(phase.format is not Format.AUTO for phase in of_last):
        raise ValueError("under the mapping 'holders' there is one tier, of parallelism, and every format is auto")
    if any(phase.kind in SET_KINDS and phase.tier != tiers[-1] for phase in phases):
        raise ValueError("units are announced in the outermost tier")
    if across is not None and isinstance(mapping, Holders | Encoded):
        raise ValueError("the parts of inner tiers are the same in every call")


def _ensure_summable(phases: tuple[Phase, ...], announces: bool, may_select: bool) -> None:
    """Check the scheme stage's guarantees: linear selections begin a plan, and so does a scale for all ranks.

    ``may_select``: the first phase may select units also where units are announced.
    """
    first, *later = (phase for phase in phases if phase.kind not in SET_KINDS)
    linear = [isinstance(one, Linear) for one in first.select]
    of_sums = (first.merge, *(phase.selects for phase in later))
    if any(isinstance(one, Linear) for select in of_sums for one in select) or (any(linear) and not all(linear)):
        raise ValueError("a linear selection stands alone, and before the first push")
    if len(first.select) > 1 and any(isinstance(one, LowRank) for one in first.select):
        raise ValueError("a projection is of whole tensors")
    if any(isinstance(phase.code, Fixed) and phase.code != first.code for phase in later):
        raise ValueError("the scale of 'fixed' is made before the first push")
    if any(phase.merge and (phase.kind is not PhaseKind.PUSH or phase.one_shot) for phase in phases):
        raise ValueError("sums are selected from in a push, where they are made in its steps")
    alone = any(phase.code or (phase.select and (phase is not first or not may_select)) for phase in phases)
    if announces and (alone or any(linear) or any(phase.merge for phase in phases)):
        raise ValueError("under the mapping 'holders' values travel as they are")


def _in_limits(node: NodeT) -> NodeT:
    for name, (least, most) in LIMITS.items():
        if (value := getattr(node, name, None)) is not None:
            _in_range(value, least, most)
    return node


def _block(value: object) -> int | None:
    if value != "auto" and value not in PERMUTED_BLOCKS:
        raise ValueError(f"a permutation has no blocks of {value!r:.40}")
    return None if value == "auto" else exactly(value, int)


def _words(data: Json, key: str, read: Callable[[Phrase, Environment, Collector], T], without: T) -> T:
    """Read the words of ``key``; ``without`` where the key is missing."""
    if key not in data:
        return without
    report, text = Collector(), exactly(data[key], str)
    _in_range(len(text), 0, MOST_PHRASE)
    found = read(parse_phrase(text), Environment(), report)
    if report.found or found == without:
        raise ValueError(report.found[0].message if report.found else f"{key!r} says nothing")
    return found
