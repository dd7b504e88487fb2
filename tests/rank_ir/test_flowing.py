"""Flowing programs: whatever the ranks' speeds, all end, and with the sums of the programs that they are made of."""

import random
from collections import deque

import pytest

from tests.rank_ir.test_lower import assert_numbers_are_used
from tests.support.player import Player, Tree, play
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Plan
from zenc.rank_ir.flowing import flowing
from zenc.rank_ir.ir import Exchange, RankProgram, used_by
from zenc.rank_ir.lower import lower_all
from zenc.synthesize.synthesis import synthesize
from zenc.topology.load import load_topology

UNEQUAL = """topology unequal {
    levels: host(5)
    switch left
    switch right
    for h in 0 .. 1 { link host(h) - left: 100 Mbit/s }
    for h in 2 .. 4 { link host(h) - right: h * 20 Mbit/s }
    link left - right: 50 Mbit/s
}"""


class FlowingPlayer(Player):
    """A rank that takes messages when it uses what they bring, and stops where one is not there."""

    def __init__(self, what: RankProgram, wires: dict[tuple[int, int], deque[tuple[int, list[Tree]]]]) -> None:
        super().__init__(what)
        self.wires, self.coming = wires, list[tuple[int, int, tuple[int, ...]]]()
        self.steps = [(phase, statement) for phase in what.phases for statement in phase.statements]

    def take_until(self, segments: tuple[int, ...]) -> bool:
        """Take messages until ``segments`` are held, each in its sender's order; return whether they are."""
        for segment in segments:
            while segment not in self.trees:
                peer = next(peer for _, peer, brings in self.coming if segment in brings)
                first = next(each for each in self.coming if each[1] == peer)
                if not self.wires[peer, self.what.rank]:
                    return False
                number, trees = self.wires[peer, self.what.rank].popleft()
                assert number == first[0], "a message comes in the turn in which it is expected"
                self.coming.remove(first)
                self.trees.update(zip(first[2], trees, strict=True))
        return True

    def step(self) -> bool:
        """Play one statement; return whether it could be."""
        phase, statement = self.steps[0]
        if not self.take_until((*used_by(statement), *statement.frees) if not made(statement) else ()):
            return False
        if isinstance(statement, Exchange):
            self.coming += [(statement.number, each.peer, each.segments) for each in statement.receives]
            for message in statement.sends:
                trees = [self.trees[segment] for segment in message.segments]
                self.wires[self.what.rank, message.peer].append((statement.number, trees))
        self.do(phase, statement)
        self.free(statement.frees)
        self.steps.pop(0)
        return True


def made(statement: object) -> bool:
    return isinstance(statement, Exchange) and bool(statement.receives)


def assert_flows(plan: Plan, size: int) -> None:
    programs = lower_all(plan, size)
    assert {program.early for program in programs} != {0}
    wanted, chance = play(programs), random.Random(size)
    wires = {(a, b): deque[tuple[int, list[Tree]]]() for a in range(size) for b in range(size)}
    players = [FlowingPlayer(flowing(program), wires) for program in programs]
    while going := [player for player in players if player.steps]:
        chance.shuffle(going)
        slowest = going[0]  # for once it runs as far as it can
        assert any([player.step() for player in going]), "ranks wait for each other in a circle"
        while slowest.steps and slowest.step():
            pass
    for player, other in zip(players, wanted, strict=True):
        assert_numbers_are_used(player.what)
        assert player.take_until(player.what.expand.segments)
        assert player.trees == other.trees
    assert not any(wires.values())


@pytest.mark.parametrize("size", range(3, 9))
def test_two_trees_flow(size: int) -> None:
    assert_flows(plan_of_shipped("double_binary_tree", chunks=3), size)


def test_synthesized_trees_flow() -> None:
    assert_flows(synthesize(load_topology(UNEQUAL), chunks=3).plan, 5)


def test_trees_by_holders_flow_behind_the_announce() -> None:
    assert_flows(synthesize(load_topology(UNEQUAL), 1e6, 3, gradient=uniform(0.05, 1000, 64)).plan, 5)


def test_pulls_that_need_all_pushes_do_not_begin_early() -> None:
    early = {name for name in SHIPPED for program in lower_all(plan_of_shipped(name), 8, (0,)) if program.early}
    assert early == {"double_binary_tree"}
