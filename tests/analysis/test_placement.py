"""Plans on topologies: memory, tiers and levels, and the time of a whole check."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.fuzz import tried
from tests.support.plans import plan_of
from tests.support.refusals import refusals
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.fit import tier_problems, units_of
from zenc.analysis.memory_model import BUFFERS, INDEX_BYTES, MemoryModel
from zenc.analysis.placement import Placement, place
from zenc.errors import TopologyError, VerificationError
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Phase, Plan
from zenc.plan.unroll import expand
from zenc.topology.builder import TopologyBuilder
from zenc.topology.model import Topology
from zenc.topology.shapes import dgx, fat_tree, nodes, ring
from zenc.verify.proof import prove
from zenc.verify.provenance import Deliveries

DIRECT = plan_of(scheme_text("point_to_point", "incremental", COMBINATIONS[1][2]))
RING = plan_of(scheme_text("ring", "incremental", COMBINATIONS[1][2]))


def placed(plan: Plan, topology: Topology, units: int = 10_000, density: float = 0.1) -> Placement:
    return place(plan, topology, expected_bytes(plan, topology.size, GradientSpec(units, 4, "f32", density)))


def with_memory(device: int | None, host: int | None) -> Topology:
    draft = TopologyBuilder("small")
    draft.set_levels(("node", 2), ("gpu", 2), memory=device)
    draft.add_hosts(0, host)
    draft.add_switch("hub")
    for rank in range(4):
        draft.connect(rank, "hub", 1e9, 1e-6)
    return draft.finish()


@given(combination=st.sampled_from(COMBINATIONS), size=st.integers(1, 8))
@settings(max_examples=tried(40), deadline=None)
def test_what_is_held_is_what_the_contributors_make(combination: tuple[str, str, str], size: int) -> None:
    plan = plan_of(scheme_text(*combination))
    expected = expected_bytes(plan, size, GradientSpec(640, 2, "f32", 0.25))
    rounds = expand(plan, size)
    ledger = MemoryModel(plan, rounds, expected)
    prove(plan, rounds, ledger.observe)
    assert (ledger.count == size).all()
    ledger.capacity(ring(size))
    assert (ledger.held == plan.parts(size) * ledger.table[size]).all()
    assert (ledger.held == ledger.bytes.sum(axis=1)).all()


def test_pieces_that_are_kept_apart_are_there_until_the_push_ends() -> None:
    apart = plan_of(
        "scheme s { communication: schedule { push { step { send all to 0 where rank > 0 } } pull { step { for r in "
        "1 .. size - 1 { send all to r where rank == 0 } } } } aggregation: one_shot partition: centralization }"
    )
    rounds = expand(apart, 4)
    ledger = MemoryModel(apart, rounds, expected_bytes(apart, 4, GradientSpec(640, 2, "f32", 0.25)))
    held = {}

    def observe(phase: Phase, number: int, moved: Deliveries) -> None:
        ledger.observe(phase, number, moved)
        held[phase.name] = ledger.held.tolist()

    prove(apart, rounds, observe)
    one, whole = int(ledger.table[1]), int(ledger.table[4])
    assert held == {"push": [4 * one, 0, 0, 0], "pull": [whole] * 4}


def test_the_least_that_a_rank_needs() -> None:
    found = placed(RING, ring(4), units=4096, density=1.0).capacity
    gradient, segments = 4096 * (16 + INDEX_BYTES), 4096 * 16 + 4096 // 8
    assert all(need.bytes >= gradient + segments for need in found.needs)
    assert found.greatest.phase == "after the last step"
    assert found.greatest.buffers == (gradient, 0, segments, 0, 0, 0, gradient)
    pushed = placed(DIRECT, nodes(1, gpus=4), units=4096, density=0.1).capacity.greatest
    assert pushed.when == "pull, step 1" and pushed.buffers[BUFFERS.index("messages")] > 0
    assert sum(pushed.buffers) == pushed.bytes


def test_devices_that_are_too_small() -> None:
    (found,) = refusals(TopologyError, placed, DIRECT, with_memory(20_000, None))
    assert found.id == "memory-exceeded" and "and has 20 kB" in found.message
    assert found.notes[0].startswith("gradient 24 kB, segments ")
    assert found.notes[1] == "so do 3 other ranks"


def test_machines_that_are_too_small() -> None:
    need = placed(DIRECT, with_memory(None, None)).capacity.greatest.bytes
    assert placed(DIRECT, with_memory(need, 2 * need)).warnings == ()
    (found,) = refusals(TopologyError, placed, DIRECT, with_memory(need, 2 * need - 1))
    assert found.id == "memory-exceeded" and found.message.startswith("the ranks of node(0) need ")


def tiers(*sizes: tuple[str, int | None]) -> Plan:
    """Return a plan whose tiers have these names and sizes."""
    if len(sizes) == 1:
        return DIRECT
    lines = [f"tier {name}({size}): dense_ring" if size else f"tier {name}: dense_ring" for name, size in sizes]
    return plan_of(f"scheme tiered {{ {' '.join(lines)} }}")


def test_tiers_match_the_levels() -> None:
    assert units_of(fat_tree(4)) == {"pod": 4, "edge": 2, "gpu": 1}
    assert list(tier_problems(tiers(("node", 8), ("cluster", None)), dgx(2))) == []
    assert list(tier_problems(tiers(("edge", 2), ("pod", 2), ("top", None)), fat_tree(4))) == []
    assert list(tier_problems(tiers(("", None)), dgx(2))) == []


def test_tiers_of_another_size_than_their_level() -> None:
    (found,) = tier_problems(tiers(("node", 4), ("cluster", None)), dgx(2))
    assert (found.id, found.severity) == ("tier-mismatch", "error")
    assert found.message == "a group of tier node has 4 ranks, and a node of dgx has 8"
    with pytest.raises(TopologyError):
        placed(tiers(("node", 4), ("cluster", None)), dgx(2))


def test_tiers_that_are_no_level() -> None:
    (found,) = tier_problems(tiers(("nodes", 4), ("cluster", None)), dgx(2))
    assert (found.id, found.severity, found.help) == ("tier-without-level", "warning", "did you mean 'node'?")
    assert list(tier_problems(tiers(("machine", 8), ("cluster", None)), dgx(2))) == [], "a level by another name"


def test_a_wrong_scheme_is_told_first() -> None:
    wrong = plan_of(
        "scheme s { communication: schedule { push { } pull { } } aggregation: incremental partition: centralization }"
    )
    with pytest.raises(VerificationError):
        placed(wrong, ring(2))


def test_text_and_json() -> None:
    found = placed(DIRECT, nodes(2, gpus=2))
    lines = found.text()
    assert lines[0] == "on nodes, of 4 ranks: every move has a way"
    assert lines[1].startswith("  bottleneck  network -> nic(0, 0): ")
    assert lines[2].startswith("              at least ") and lines[2].endswith("the sum of ranks 2 and 3")
    assert lines[3].startswith("  memory      rank 0 needs ")
    data = json.loads(json.dumps(found.to_json()))
    assert {"topology", "bottleneck", "bottleneck_least_bytes", "links", "steps", "memory"} == set(data)
    assert [host["host"] for host in data["memory"]["hosts"]] == ["node(0)", "node(1)"]


@pytest.mark.slow
@pytest.mark.parametrize("plan", [DIRECT, pytest.param(RING, marks=pytest.mark.slow)], ids=["point_to_point", "ring"])
def test_a_thousand_ranks_take_seconds(plan: Plan) -> None:
    topology = nodes(128, gpus=8)
    started = time.process_time()
    found = placed(plan, topology, units=1_000_000, density=0.01)
    assert time.process_time() - started < 10
    assert found.proof.size == 1024


@pytest.mark.parametrize(("cluster", "share"), [(ring(6), 1 / 2), (nodes(2, gpus=4), 4 / 7), (dgx(1), 1.0)])
def test_a_ring_has_its_share_of_the_bound(cluster: Topology, share: float) -> None:
    """Rings use one way of links that have two, one network card of four, and all of a switch."""
    explained = zenc.explain("dense_ring", topology=cluster, units=100_000)
    placement = explained.placement
    assert placement and placement.reach and placement.reach.share == pytest.approx(share, rel=0.02)
    assert f"at most {share:.0%} by this scheme" in explained.text()
    assert explained.to_json()["placement"]["bound"]["cut"] == placement.reach.cut


def test_a_lossy_scheme_has_no_share_of_the_bound() -> None:
    placement = zenc.explain("one_bit", topology=dgx(1), units=10_000).placement
    assert placement and placement.reach is None, "its bytes are not those of the tensor"
