"""Crowded links earn a warning that says what to do; ports do not, nor does a link whose load no scheme can lower."""

import json
from collections import Counter, defaultdict
from itertools import product

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.fuzz import tried
from tests.support.plans import plan_of
from zenc.analysis.expected_bytes import ExpectedBytes, expected_bytes
from zenc.analysis.link_load import LinkLoadObserver, LinkLoads, routes
from zenc.analysis.placement import bound_on, contention, sides
from zenc.api import check
from zenc.errors import Diagnostic
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plan.unroll import Rounds, expand
from zenc.topology.load import load_topology
from zenc.topology.model import Topology
from zenc.topology.shapes import dgx, fat_tree, nodes, ring
from zenc.verify.proof import prove
from zenc.wire.structs import MESSAGE_HEADER_BYTES

DIRECT = plan_of(scheme_text("point_to_point", "incremental", COMBINATIONS[1][2]))
RING = plan_of(scheme_text("ring", "incremental", COMBINATIONS[1][2]))
CLUSTERS = {"nodes": nodes(2, gpus=3, nics=2), "one card": nodes(3, gpus=2), "fat": fat_tree(2), "big": dgx(1)}
BOX = """topology box {
    levels: gpu(6)
    for c in 0 .. 1 {
        switch cpu(c)
        for g in 0 .. 2 { link gpu(3 * c + g) - cpu(c): 100 GB/s }
    }
    link cpu(0) - cpu(1): 1 GB/s
}"""


def measured(
    plan: Plan, topology: Topology, density: float = 0.03
) -> tuple[LinkLoads, list[Diagnostic], ExpectedBytes]:
    rounds = expand(plan, topology.size)
    expected = expected_bytes(plan, topology.size, GradientSpec(5_000, 30, "f32", density))
    meter = LinkLoadObserver(routes(rounds, topology), expected)
    prove(plan, rounds, meter.observe)
    return meter.loads(), contention(meter.loads(), rounds, expected), expected


def test_a_crowd_on_the_network_is_a_warning() -> None:
    _, (push, pull), _ = measured(DIRECT, nodes(2, gpus=4))
    assert push.id == "contended-link" and push.severity == "warning"
    assert push.message.startswith("16 moves share the link network -> nic(0, 0), which is busy ")
    assert push.message.endswith("(push, step 1)") and pull.message.endswith("(pull, step 1)")
    assert push.span is not None and "patterns.zen" in push.span.source.name
    assert push.notes[0].startswith("ranks 4 to 7 can reach ranks 0 to 3 over this link alone: at least ")
    assert push.help == "move less between its two sides, or sum on each side first: tiers do that"


def test_a_ring_crowds_nothing() -> None:
    loads, found, _ = measured(RING, nodes(4, gpus=2))
    assert found == []
    assert loads.name(loads.bottleneck or 0) in ("network -> nic(0, 0)", "nic(0, 0) -> network")


def test_where_there_are_other_ways_nothing_must_cross() -> None:
    _, (push, _), _ = measured(DIRECT, nodes(2, gpus=4, nics=2, network_bandwidth=1e9))
    assert push.notes == ("among 8 ranks",)


TIERED = """scheme tiered {
    tier pair(2): balanced
    tier box: balanced
}"""


def test_advice_to_a_scheme_of_tiers_is_about_these(tmp_path) -> None:
    """Ranks 2 and 3 are in different halves of the box."""
    (tmp_path / "tiered.zen").write_text(TIERED)
    report = check(tmp_path / "tiered.zen", topology=load_topology(BOX))
    found = [warning.help for warning in report.warnings if warning.id == "contended-link"]
    assert found[0] == (
        "move less between its two sides, or sum on each side first: in a tier whose groups lie on one side each"
    )


SPREAD = """scheme spread {
    communication: schedule {
        push {
            step { for k in 1 .. 2 { send parts 2 * ((rank + k) mod 3) .. 2 * ((rank + k) mod 3) + 1 to
                rank / 3 * 3 + (rank + k) mod 3 } }
            step { send parts 2 * (rank mod 3) .. 2 * (rank mod 3) + 1 to rank - 3 where rank >= 3 }
        }
        pull {
            step { send parts 2 * rank .. 2 * rank + 1 to rank + 3 where rank < 3 }
            step { for k in 1 .. 2 { send parts 2 * (rank mod 3) .. 2 * (rank mod 3) + 1 to
                rank / 3 * 3 + (rank + k) mod 3 } }
        }
    }
    aggregation: incremental
    partition: parallelism
    balance: balanced by permutation
}"""


def test_what_carries_as_little_as_can_be_needs_a_wider_link() -> None:
    """A half that sends its sum and receives the total can't send less."""
    _, found, _ = measured(plan_of(SPREAD), load_topology(BOX))
    there, back = found
    assert there.message.startswith("3 moves share the link cpu(1) -> cpu(0)")
    assert there.help == "it carries little more than it must in any scheme: only a wider link would help"
    assert back.help == "move less between its two sides, or sum on each side first: tiers do that"


def test_sides_are_those_of_a_search_for_paths() -> None:
    for topology in (*CLUSTERS.values(), ring(4), load_topology(BOX)):
        for link in topology.links:
            graph = nx.DiGraph(topology.graph.edges)
            graph.add_nodes_from(topology.ranks)
            graph.remove_edge(link.source, link.target)
            cut = {pair for pair in product(topology.ranks, repeat=2) if not nx.has_path(graph, *pair)}
            behind, ahead = sides(topology, link)
            assert cut == set(product(behind, ahead))


ONE_WAY = """topology one_way {
    levels: gpu(3)
    link gpu(0) -> gpu(1): 1 GB/s
    link gpu(1) -> gpu(2): 1 GB/s
    link gpu(2) -> gpu(0): 1 GB/s
}"""


def test_sides_of_a_one_way_link() -> None:
    """Without the link 0 -> 1, rank 0 reaches nobody, so data for ranks 1 and 2 must come in by this link."""
    topology = load_topology(ONE_WAY)
    assert sides(topology, topology.link(0, 1)) == ((0,), (1, 2))


@given(combination=st.sampled_from(COMBINATIONS), name=st.sampled_from(sorted(CLUSTERS)), density=st.floats(0.01, 1))
@settings(max_examples=tried(60), deadline=None)
def test_no_scheme_sends_less_than_must_cross(combination: tuple[str, str, str], name: str, density: float) -> None:
    loads, _, expected = measured(plan_of(scheme_text(*combination)), CLUSTERS[name], density)
    found = [over for link in range(len(loads.links)) if (over := bound_on(loads, link, expected))]
    assert found
    rounding = CLUSTERS[name].size * expected.unit_bytes  # units of each part are rounded
    for over in found:
        assert over.bytes >= over.least - rounding


def test_the_least_is_the_sum_of_those_behind() -> None:
    loads, _, expected = measured(DIRECT, load_topology(BOX), density=0.5)
    link = next(i for i in range(len(loads.links)) if loads.name(i) == "cpu(0) -> cpu(1)")
    over = bound_on(loads, link, expected)
    assert over is not None and (over.behind, over.ahead) == ((0, 1, 2), (3, 4, 5))
    assert over.least == pytest.approx(5_000 * (1 - 0.5**3) * 30 * 4)


def test_the_bottleneck_tells_it_too() -> None:
    report = check("balanced", topology=load_topology(BOX), gradient=GradientSpec(1000, 10, "f32", 0.5))
    assert report.placement is not None
    lines = report.placement.text()
    assert lines[2].strip() == "at least 35 kB in any scheme: the sum of ranks 0 to 2"
    assert json.loads(json.dumps(report.placement.to_json()))["bottleneck_least_bytes"] == 35_000


OWNERS = plan_of(scheme_text("point_to_point", "incremental", COMBINATIONS[1][2]))
LOADED = {"nodes": nodes(2, gpus=3, nics=2), "fat": fat_tree(2), "pair": nodes(1, gpus=2), "big": dgx(1)}


def expectation(plan: Plan, size: int, density: float = 0.03) -> ExpectedBytes:
    return expected_bytes(plan, size, GradientSpec(5_000, 3, "f16", density))


def loads_of(plan: Plan, topology: Topology) -> tuple[LinkLoads, Rounds]:
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


@given(combination=st.sampled_from(COMBINATIONS), name=st.sampled_from(sorted(LOADED)))
@settings(max_examples=tried(60), deadline=None)
def test_loads_are_those_counted_by_hand(combination: tuple[str, str, str], name: str) -> None:
    plan, topology = plan_of(scheme_text(*combination)), LOADED[name]
    loads, _ = loads_of(plan, topology)
    total, steps = by_hand(plan, topology)
    for link, bytes in zip(loads.links, loads.total.tolist(), strict=True):
        assert bytes == total.get((link.source, link.target), 0)
    assert {(s.phase, s.number) for s in loads.steps} == set(steps)
    for step in loads.steps:
        assert step.seconds == pytest.approx(steps[step.phase, step.number])
    assert loads.bottleneck is not None
    assert loads.seconds[loads.bottleneck] == max(loads.seconds)


def test_every_byte_that_is_sent_passes_the_ranks_own_links() -> None:
    loads, _ = loads_of(OWNERS, LOADED["nodes"])
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
