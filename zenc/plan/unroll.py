"""Unrolling: a plan and a number of ranks to rounds of moves.

    Rounds = size parts Unrolled+ sends               # one for each phase of the plan, in their order
    Unrolled = Phase Round*                           # one round for every step that moves anything
    Round  = (src dst first last origin line)*        # arrays, one entry a move

``first .. last`` are the parts of a move (inclusive, never empty); ``origin`` is the rank whose contribution alone
is forwarded, or EVERYONE; ``sends[line]`` is the statement that made the move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from zenc.errors import Diagnostic, Span, VerificationError
from zenc.language.schedule import (
    All,
    Block,
    Branch,
    Expression,
    For,
    If,
    Let,
    Part,
    PartRange,
    Parts,
    Require,
    Send,
    SpanningTree,
    Step,
    Trees,
)
from zenc.plan.expressions import (
    LIMIT,
    EvaluationError,
    Ints,
    Mask,
    Scope,
    Value,
    condition,
    evaluate,
    scope_of,
    spread,
)
from zenc.plan.ir import SET_KINDS, Phase, PhaseKind, Plan
from zenc.plan.requirements import ensure, ensure_all, format_ranks
from zenc.plan.tier_layout import TierLayout, first_part, levels_of

MOST_ITERATIONS = 200_000
"""Most iterations of all loops of one phase; a schedule with more is taken for a mistake."""
MOST_MOVES = 40_000_000
MOST_CHUNKS = 4096
EVERYONE = -LIMIT
"""The origin of a move of all contributions: no expression of a schedule has this value."""


@dataclass(frozen=True, slots=True)
class Round:
    """Moves that run together, as int64 arrays [moves]: ``src`` sends parts ``first`` .. ``last`` to ``dst``.

    ``origin`` is the rank whose contributions alone are sent, or EVERYONE; ``line`` the place of the statement in
    ``Rounds.sends``.
    """

    src: Ints
    dst: Ints
    first: Ints
    last: Ints
    origin: Ints
    line: Ints

    def __len__(self) -> int:
        return len(self.src)

    def take(self, chosen: Mask) -> Round:
        """Return the moves at which ``chosen`` [moves] holds."""
        return Round(*(getattr(self, name)[chosen] for name in self.__slots__))


class Unrolled(NamedTuple):
    """The moves of one phase, among some number of ranks."""

    phase: Phase
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True)
class Rounds:
    """The moves of a plan among ``size`` ranks, by phase and round."""

    size: int
    parts: int
    phases: tuple[Unrolled, ...]
    sends: tuple[Send | Branch, ...]

    def of(self, *kinds: PhaseKind) -> tuple[tuple[Round, ...], ...]:
        """Return the rounds of each phase of ``kinds``, in their order."""
        return tuple(rounds for phase, rounds in self.phases if phase.kind in kinds)

    def __iter__(self) -> Iterator[tuple[Phase, int, Round]]:
        """Yield all rounds in order, with their phases and their numbers in these, from 1."""
        for phase, rounds in self.phases:
            yield from ((phase, number, round_) for number, round_ in enumerate(rounds, 1))


def expand(plan: Plan, size: int) -> Rounds:
    """Return the moves of ``plan`` among ``size`` ranks; raises VerificationError with all moves that make no sense.

    Where the plan requires another number of ranks, the error is about that alone.
    """
    ensure_all(plan, size)
    parts = plan.parts(size)
    unroller = _Unroller(size, parts, _whole(size))
    played = (phase for phase in plan.phases if plan.plays(phase, size))
    phases = tuple(Unrolled(phase, tuple(unroller.phase(plan, phase))) for phase in played)
    if unroller.found:
        raise VerificationError(unroller.found)
    return Rounds(size, parts, phases, tuple(unroller.sends))


def stream(plan: Plan, size: int) -> Iterator[tuple[Phase, Iterator[Iterator[Round]]]]:
    """Yield the moves of ``plan`` among ``size`` ranks without keeping them: each phase with its steps.

    A step is an iterator over the moves of one statement after another, to be used up before the next step; some
    steps move nothing. Raises as ``expand`` does, at the end of the phase that is wrong.
    """
    ensure_all(plan, size)
    unroller = _Unroller(size, plan.parts(size), _whole(size))
    for phase in plan.phases:
        if plan.plays(phase, size):
            yield phase, unroller.stream(plan, phase)


def _whole(size: int, parts: int = 1) -> TierLayout:
    """Return all ranks as one group that moves ``parts`` parts."""
    return TierLayout("", 1, size, parts, 1)


@dataclass(slots=True)
class _Unroller:
    """An interpreter of a plan's statements for all ranks at once, which collects problems of the moves."""

    size: int
    parts: int
    level: TierLayout
    inside: tuple[TierLayout, ...] = ()
    found: list[Diagnostic] = field(default_factory=list)
    sends: list[Send | Branch] = field(default_factory=list)
    phase_name: str = ""
    completes: bool = False
    iterations: int = 0
    moves: int = 0
    most: int = MOST_MOVES
    lines: dict[int, int] = field(default_factory=dict)
    blamed: set[tuple[int, str]] = field(default_factory=set)

    def _enter(self, plan: Plan, phase: Phase) -> Scope:
        levels, announcing = levels_of(plan, self.size), phase.kind in SET_KINDS
        self.phase_name, self.iterations, self.parts = phase.name, 0, plan.parts_in(phase, self.size)
        self.completes = phase.completes
        self.inside = () if announcing else levels[: phase.tier.depth]
        level = levels[phase.tier.depth]
        self.level = replace(level, parts=self.parts, width=1) if announcing else level
        return scope_of(self.size, self.parts, phase.one_shot)

    def phase(self, plan: Plan, phase: Phase) -> Iterator[Round]:
        """Yield the moves of ``phase``, a step at a time."""
        scope = self._enter(plan, phase)
        try:
            yield from (joined(moves) for step in self._lazily(phase.block, scope) if (moves := list(step)))
        except EvaluationError as error:
            self.found.append(self._noted(error.diagnostic))

    def stream(self, plan: Plan, phase: Phase) -> Iterator[Iterator[Round]]:
        """Yield the moves of ``phase`` a statement at a time, in any number; raises VerificationError."""
        scope, self.most = self._enter(plan, phase), 1 << 62
        try:
            yield from self._lazily(phase.block, scope)
        except EvaluationError as error:
            self.found.append(self._noted(error.diagnostic))
        if self.found:
            raise VerificationError(self.found)

    def _lazily(self, block: Block, scope: Scope) -> Iterator[Iterator[Round]]:
        """Yield every step of ``block``, as the moves of its statements that make any."""
        for statement, inner in self._walk(block, scope):
            if isinstance(statement, Trees):
                yield from (iter((step,)) for step in self._grown(statement, inner))
                continue
            assert isinstance(statement, Step)
            every = (self._moves(send, at) for send, at in self._walk(statement.body, inner))
            yield (moves for moves in every if len(moves))

    def _walk(self, block: Block, scope: Scope) -> Iterator[tuple[_Moving, Scope]]:
        """Yield every statement of ``block`` that moves something, with the scope in which it runs."""
        for statement in block:
            match statement:
                case Let(name, value):
                    scope = scope.bind(name, evaluate(value, scope))
                case If(test, then, otherwise):
                    holds = condition(test, scope)
                    for mask, branch in ((holds, then), (~holds, otherwise)):
                        if branch and mask.any():
                            yield from self._walk(branch, scope.where(mask))
                case For():
                    yield from self._loop(statement, scope)
                case Require():
                    ensure(statement, scope)
                case _:  # _Moving, as mypy knows: it complains of a statement that stands nowhere above
                    yield statement, scope

    def _loop(self, loop: For, scope: Scope) -> Iterator[tuple[_Moving, Scope]]:
        if not scope.ranks.size:
            return
        first, last = spread(evaluate(loop.first, scope), scope), spread(evaluate(loop.last, scope), scope)
        lowest, highest = int(first.min()), int(last.max())
        self.iterations += max(0, highest - lowest + 1)
        if self.iterations > MOST_ITERATIONS:
            message = f"the {self.phase_name} loops more than {MOST_ITERATIONS:,} times"
            help = "check the bounds of this loop"
            raise EvaluationError(Diagnostic("schedule-too-long", message, loop.span, help=help))
        same = bool((first == lowest).all() and (last == highest).all())
        for value in range(lowest, highest + 1):
            inner = scope if same else scope.where((first <= value) & (value <= last))
            yield from self._walk(loop.body, inner.bind(loop.variable, value))

    def _grown(self, trees: Trees, scope: Scope) -> Iterator[Round]:
        """Yield the steps of ``trees``: down from their roots in a pull, and in a push up to them.

        A chunk leaves a rank in the step after it has come from all below it, or from the one above it.
        """
        if not scope.ranks.size:
            return
        chunks = evaluate(trees.chunks, scope)
        if not isinstance(chunks, int) or not 1 <= chunks <= MOST_CHUNKS:
            message = f"trees carry their parts in 1 to {MOST_CHUNKS:,} chunks, the same on all ranks"
            raise EvaluationError(Diagnostic("wrong-chunks", message, trees.chunks.span))
        every = [(tree, at) for tree, at in self._walk(trees.body, scope) if isinstance(tree, SpanningTree)]
        grown = [moves for tree, at in every for moves in self._branches(tree, at)]
        if not grown:
            return
        whole, delay = joined([moves for moves, _ in grown]), np.concatenate([late for _, late in grown])
        count = whole.last - whole.first + 1
        self._count_moves(len(whole) * chunks, trees.span)
        for step in range(chunks + int(delay.max(initial=0))):
            chunk = step - delay
            first = whole.first + chunk * count // chunks
            last = whole.first + (chunk + 1) * count // chunks - 1
            step_of = replace(whole, first=first, last=last)
            yield step_of.take((chunk >= 0) & (chunk < chunks) & (first <= last))

    def _branches(self, tree: SpanningTree, scope: Scope) -> Iterator[tuple[Round, Ints]]:
        """Yield the moves of each branch of ``tree`` with all of its parts, and the steps before its first chunk."""
        try:
            scope = scope.where(spread(evaluate(tree.root, scope), scope) == scope.ranks)
            if not scope.ranks.size:
                return
            first, last = self._range(tree.parts, scope)
            delays = _delays(tree, upwards=not self.completes)
            for branch in tree.branches:
                line, source = self._line(branch), evaluate(branch.source, scope)
                for to in branch.to:
                    ends = source, evaluate(to, scope)
                    src, dst = ends if self.completes else ends[::-1]
                    columns = (src, dst, first, last, EVERYONE, line)
                    moves = Round(*(spread(column, scope) for column in columns))
                    moves = self._sound(branch, moves.take(moves.first <= moves.last))
                    yield moves, np.full(len(moves), delays[to], dtype=np.int64)
        except EvaluationError as error:
            self._blame(tree, error.diagnostic)

    def _line(self, send: Send | Branch) -> int:
        line = self.lines.setdefault(id(send), len(self.sends))
        if line == len(self.sends):
            self.sends.append(send)
        return line

    def _count_moves(self, moves: int, place: Span | None) -> None:
        self.moves += moves
        if self.moves > self.most:
            message = f"the {self.phase_name} makes more than {self.most:,} moves"
            raise EvaluationError(Diagnostic("schedule-too-long", message, place))

    def _moves(self, send: _Moving, scope: Scope) -> Round:
        assert isinstance(send, Send)
        try:
            moves = self._evaluated(send, scope)
        except EvaluationError as error:
            self._blame(send, error.diagnostic)
            return _NO_MOVES
        self._count_moves(len(moves), send.span)
        return self._sound(send, moves)

    def _evaluated(self, send: Send, scope: Scope) -> Round:
        if send.where is not None:
            scope = scope.where(condition(send.where, scope))
        if not scope.ranks.size:
            return _NO_MOVES
        first, last = self._range(send.parts, scope)
        origin = EVERYONE if send.origin is None else evaluate(send.origin, scope)
        columns = (scope.ranks, evaluate(send.to, scope), first, last, origin, self._line(send))
        moves = Round(*(spread(column, scope) for column in columns))
        return moves.take(moves.first <= moves.last)

    def _range(self, parts: Parts, scope: Scope) -> tuple[Value, Value]:
        match parts:
            case All():
                return 0, self.parts - 1
            case Part(index):
                only = evaluate(index, scope)
                return only, only
            case PartRange(first, last):
                return evaluate(first, scope), evaluate(last, scope)

    def _sound(self, send: Send | Branch, moves: Round) -> Round:
        """Return the moves that make sense; report one diagnostic for each problem of a statement's moves."""
        first = first_part(self.inside, moves.src)
        last = first + self.level.parts * self.level.width - 1
        strange, stray = self._strangers(moves.src, moves.dst), (moves.first < first) | (moves.last > last)
        checks: tuple[tuple[str, Mask, Callable[[int, int], str]], ...] = (
            ("no-such-rank", strange, lambda at, src: f"sends to rank {moves.dst[at]}, but {self.ranks(src)}"),
            ("send-to-self", moves.dst == moves.src, lambda at, src: "sends to itself"),
            ("no-such-part", stray, lambda at, src: f"sends part {self._stray(moves, at)}, but {self.owned(src)}"),
            (
                "no-such-rank",
                (moves.origin != EVERYONE) & self._strangers(moves.src, moves.origin),
                lambda at, src: f"sends what rank {moves.origin[at]} gave, but {self.ranks(src)}",
            ),
        )
        wrong = np.zeros(len(moves), dtype=bool)
        for number, (identifier, fails, message) in enumerate(checks):
            if fails.any():
                at = int(np.argmax(fails))
                help = "leave such ranks out: send ... where CONDITION" if number < 2 else None
                words = f"rank {moves.src[at]} {message(at, int(moves.src[at]))}"
                self._blame(send, Diagnostic(identifier, words, send.span, help=help))
                wrong |= fails
        return moves.take(~wrong) if wrong.any() else moves

    def _strangers(self, ranks: Ints, others: Ints) -> Mask:
        """Return where an ``others`` rank does not exist, or is in another group of the tier."""
        missing = (others < 0) | (others >= self.size)
        return np.asarray(missing | (self.level.group(ranks) != self.level.group(others)))

    def ranks(self, rank: int) -> str:
        """Return the ranks that ``rank`` can send to, in words."""
        peers = self.level.peers(rank)
        if not self.level.name:
            return f"the ranks are 0 to {self.size - 1}"
        listed = f"{peers[0]} to {peers[-1]}" if peers.step == 1 else ", ".join(map(str, peers))
        return f"its ranks of tier {self.level.name} are {listed}"

    def owned(self, rank: int) -> str:
        """Return the parts that ``rank`` can send, in words."""
        first = int(first_part(self.inside, np.array([rank]))[0])
        whose = f"its parts in tier {self.level.name}" if self.level.name else "the parts"
        return f"{whose} are {first} to {first + self.level.parts * self.level.width - 1}"

    def _stray(self, moves: Round, at: int) -> int:
        """Return the part of move ``at`` that its sender does not own: below its parts, or above."""
        below = moves.first[at] < first_part(self.inside, moves.src[at : at + 1])[0]
        return int(moves.first[at] if below else moves.last[at])

    def _blame(self, send: Send | Branch | SpanningTree, diagnostic: Diagnostic) -> None:
        if (id(send), diagnostic.id) not in self.blamed:
            self.blamed.add((id(send), diagnostic.id))
            span = diagnostic.span or send.span
            self.found.append(self._noted(replace(diagnostic, span=span)))

    def _noted(self, diagnostic: Diagnostic) -> Diagnostic:
        return replace(diagnostic, notes=(*diagnostic.notes, f"in the {self.phase_name}, {format_ranks(self.size)}"))


_Moving: TypeAlias = Step | Send | Trees | SpanningTree


def _delays(tree: SpanningTree, upwards: bool) -> dict[Expression, int]:
    """Return the delay of each end of a branch, in steps: its height upwards, the depth of its source downwards."""
    above = {to: branch.source for branch in tree.branches for to in branch.to}
    delay = {**dict.fromkeys(above, 0), tree.root: 0 if upwards else -1}
    for to, source in reversed(above.items()) if upwards else above.items():
        if upwards:
            delay[source] = max(delay[source], delay[to] + 1)
        elif to != tree.root:
            delay[to] = delay[source] + 1
    return delay


def joined(moves: list[Round]) -> Round:
    """Return all ``moves``, one after another."""
    return Round(*(np.concatenate([getattr(m, name) for m in moves]) for name in Round.__slots__))


_EMPTY = np.zeros(0, dtype=np.int64)
_NO_MOVES = Round(_EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY)
