"""The load of links equals a count move by move."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.fuzz import tried
from tests.support.plans import plan_of
from zenc.analysis.expected_bytes import ExpectedBytes, expected_bytes
from zenc.analysis.link_load import LinkLoadObserver, LinkLoads, routes
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plan.unroll import Rounds, expand
from zenc.topology.model import Topology
from zenc.topology.shapes import dgx, fat_tree, nodes
from zenc.verify.proof import prove
from zenc.wire.structs import MESSAGE_HEADER_BYTES

DIRECT = plan_of(scheme_text("point_to_point", "incremental", COMBINATIONS[1][2]))
RING = plan_of(scheme_text("ring", "incremental", COMBINATIONS[1][2]))
CLUSTERS = {"nodes": nodes(2, gpus=3, nics=2), "fat": fat_tree(2), "pair": nodes(1, gpus=2), "big": dgx(1)}


def expectation(plan: Plan, size: int, density: float = 0.03) -> ExpectedBytes:
    return expected_bytes(plan, size, GradientSpec(5_000, 3, "f16", density))


def measured(plan: Plan, topology: Topology) -> tuple[LinkLoads, Rounds]:
    rounds = expand(plan, topology.size)
    meter = LinkLoadObserver(routes(rounds, topology), expectation(plan, topology.size))
    prove(plan, rounds, meter.observe)
    return meter.loads(), rounds


def by_hand(plan: Plan, topology: Topology) -> tuple[dict, dict]:
    """Return the bytes of every link, and those of the busiest one in every step, counted one move at a time."""
    size, expected = topology.size, expectation(plan, topology.size)
    rounds = expand(plan, size)
    held = [[{rank} for _ in range(rounds.parts)] for rank in range(size)]
    total: Counter = Counter()
    steps = {}
    for phase, number, round_ in rounds:
        before = [[set(part) for part in rank] for rank in held]
        messages: dict = defaultdict(lambda: MESSAGE_HEADER_BYTES)
        columns = zip(round_.src, round_.dst, round_.first, round_.last, round_.origin, strict=True)
        for src, dst, first, last, origin in (map(int, row) for row in columns):
            for part in range(first, last + 1):
                carried = before[src][part] if origin < 0 else {origin}
                held[dst][part] |= carried
                pieces = len(carried) if phase.keeps_apart else 1
                messages[src, dst] += pieces * float(expected.piece(phase, len(carried) // pieces)[1][0])
        here: Counter = Counter()
        for (src, dst), bytes in messages.items():
            for link in topology.route(src, dst) or ():
                here[link.source, link.target] += bytes
        total.update(here)
        steps[phase.name, number] = max(bytes / topology.graph.edges[ends]["bandwidth"] for ends, bytes in here.items())
    return total, steps


@given(combination=st.sampled_from(COMBINATIONS), name=st.sampled_from(sorted(CLUSTERS)))
@settings(max_examples=tried(60), deadline=None)
def test_loads_are_those_counted_by_hand(combination: tuple[str, str, str], name: str) -> None:
    plan, topology = plan_of(scheme_text(*combination)), CLUSTERS[name]
    loads, _ = measured(plan, topology)
    total, steps = by_hand(plan, topology)
    for link, bytes in zip(loads.links, loads.total.tolist(), strict=True):
        assert bytes == total.get((link.source, link.target), 0)
    assert {(s.phase, s.number) for s in loads.steps} == set(steps)
    for step in loads.steps:
        assert step.seconds == pytest.approx(steps[step.phase, step.number])
    assert loads.bottleneck is not None
    assert loads.seconds[loads.bottleneck] == max(loads.seconds)


def test_every_byte_that_is_sent_passes_the_ranks_own_links() -> None:
    loads, _ = measured(DIRECT, CLUSTERS["nodes"])
    leaving = sum(b for link, b in zip(loads.links, loads.total, strict=True) if isinstance(link.source, int))
    arriving = sum(b for link, b in zip(loads.links, loads.total, strict=True) if isinstance(link.target, int))
    assert leaving == arriving > 0


def test_blocks_weigh_whole() -> None:
    """Blocks travel whole, and at 3 % about two in five blocks of 16 hold something."""
    plan = plan_of(scheme_text(*COMBINATIONS[-1], "block(16)", "coo"))
    expected = expected_bytes(plan, 4, GradientSpec(1 << 16, 8, "f32", 0.03))
    values = expected.slots * 32
    share = expected.piece(plan.phases[0], 1)[1][0] / values
    assert share == pytest.approx(1 - 0.97**16, rel=0.02)
