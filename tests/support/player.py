"""A player of the programs of all ranks together, with trees of additions for values."""

from typing import Any

from zenc.plan.ir import PhaseKind
from zenc.rank_ir.ir import (
    Decode,
    Encode,
    Exchange,
    Fill,
    Merge,
    RankPhase,
    RankProgram,
    Select,
    Sparsify,
    Split,
    Statement,
)
from zenc.scheme.model import Format
from zenc.wire.formats import FILLING

Tree = Any
"""A rank, or the tuple of added trees, in order; an operation on a tree comes last."""


class Player:
    """A rank: the trees of its live segments."""

    def __init__(self, what: RankProgram) -> None:
        self.what = what
        push = next(phase.name for phase in what.phases if phase.kind is PhaseKind.PUSH)
        own = ("selected", push, what.rank) if what.select else what.rank
        self.trees: dict[int, Tree] = {segment: own for segment in what.pack.results}
        self.kept: list[tuple[int, Tree]] = []
        self.free(what.pack.frees)

    def make(self, result: int, tree: Tree, *inputs: int) -> None:
        part = self.what.segments[result].part
        assert result not in self.trees and all(self.what.segments[segment].part == part for segment in inputs)
        self.trees[result] = tree

    def free(self, segments: tuple[int, ...]) -> None:
        for segment in segments:
            del self.trees[segment]

    def exchanges(self):
        """Play the statements between exchanges, and stop at each: (phase, exchange)."""
        for phase in self.what.phases:
            for statement in phase.statements:
                if isinstance(statement, Exchange):
                    yield phase, statement
                self.do(phase, statement)
                self.free(statement.frees)

    def do(self, phase: RankPhase, statement: Statement) -> None:
        match statement:
            case Merge(result, segments):
                self.make(result, tuple(self.trees[segment] for segment in segments), *segments)
            case Fill(result, segment, format):
                self.make(result, ("filled", format, self.trees[segment]), segment)
            case Sparsify(result, segment):
                self.make(result, ("sparse", self.trees[segment]), segment)
            case Select(result, segment):
                following = self.what.phases[(self.what.phases.index(phase) + 1) % len(self.what.phases)]
                name = f"merges of {phase.name}" if statement.merged else following.name
                self.make(result, ("selected", name, self.trees[segment]), segment)
            case Encode(result, segment):
                self.make(result, ("encoded", phase.name, self.trees[segment]), segment)
            case Split(results):
                self.trees |= dict.fromkeys(results, self.what.rank)
            case Decode(result, segment):
                assert self.what.segments[segment].code is not None
                self.make(result, ("decoded", self.trees[segment]), segment)
        if isinstance(statement, Select | Encode) and statement.keeps:
            self.kept.append((self.what.segments[statement.result].part, self.trees[statement.result]))


def play(programs: tuple[RankProgram, ...]) -> list[Player]:
    """Play all ranks, step by step; sends of a step have to match its receives, part by part."""
    players = [Player(what) for what in programs]
    under_way: dict[tuple[int, int, int], tuple[Any, ...]] = {}
    waiting = [(player, player.exchanges()) for player in players]
    now = [(player, steps, *next(steps, (None, None))) for player, steps in waiting]
    while any(exchange for *_, exchange in now):
        number = min(exchange.number for *_, exchange in now if exchange)
        current = [entry for entry in now if entry[3] and entry[3].number == number]
        for player, _, phase, exchange in current:
            for message in exchange.sends:
                assert_sendable(player, phase, message.segments)
                specs = [player.what.segments[s] for s in message.segments]
                carried = [(s.part, s.ranks, player.trees[n]) for n, s in zip(message.segments, specs, strict=True)]
                assert (player.what.rank, message.peer, number) not in under_way
                under_way[player.what.rank, message.peer, number] = phase.format, phase.one_shot, carried
        for player, _, phase, exchange in current:
            for message in exchange.receives:
                format, one_shot, carried = under_way.pop((message.peer, player.what.rank, number))
                assert (format, one_shot) == (phase.format, phase.one_shot)
                expected = [player.what.segments[s] for s in message.segments]
                assert [(part, ranks) for part, ranks, _ in carried] == [(s.part, s.ranks) for s in expected]
                for segment, (*_, tree) in zip(message.segments, carried, strict=True):
                    player.make(segment, tree)
        now = [(p, s, *(next(s, (None, None)) if t and t.number == number else (f, t))) for p, s, f, t in now]
    assert not under_way
    return players


def assert_sendable(player: Player, phase: RankPhase, segments: tuple[int, ...]) -> None:
    """Check that segments in filling formats have been filled up since the last addition, or encoded under a code."""
    for segment in segments:
        tree = player.trees[segment]
        assert player.what.segments[segment].code == phase.code
        assert (isinstance(tree, tuple) and tree[0] == "encoded") == (phase.code is not None)
        if phase.format in FILLING:
            assert is_filled(tree, phase.format), (player.what.rank, segment)


def is_filled(tree: Tree, format: Format) -> bool:
    match tree:
        case int() | ("sparse", _) | ("selected", _, _):
            return False
        case ("encoded", _, inner) | ("decoded", inner):
            return is_filled(inner, format)
        case ("filled", Format() as done, inner):
            return done is Format.DENSE or 0 < format.block <= done.block or is_filled(inner, format)
    if format is Format.DENSE:
        return any(is_filled(branch, format) for branch in tree)
    return all(is_filled(branch, format) for branch in tree) or any(is_filled(b, Format.DENSE) for b in tree)


def sum_of(tree: Tree) -> Tree:
    """Return ``tree`` without operations that only change its units."""
    match tree:
        case int():
            return tree
        case ("encoded" | "selected" as loss, phase, inner):
            return loss, phase, sum_of(inner)
        case (str(), *_, inner):
            return sum_of(inner)
    return tuple(sum_of(branch) for branch in tree)
