"""Routes of moves over a topology, and the error for a move that has none."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

import zenc
from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.plans import DIRECT_PULL, plan_of, plan_with
from tests.support.refusals import refusals
from tests.support.shipped import SHIPPED, plan_of_shipped
from tests.topology.test_all_pairs import Router
from zenc.analysis.exact_traffic import CallTraffic, weigh
from zenc.analysis.link_load import Routes, routes
from zenc.analysis.plan_warnings import gain_warnings
from zenc.errors import Diagnostic, TopologyError
from zenc.gradients.index_sets import Gradients, drawn, figures, gradients
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.topology.builder import TopologyBuilder
from zenc.topology.model import Topology
from zenc.topology.shapes import fat_tree, nodes, ring, torus
from zenc.verify.proof import verify

RING = plan_of(scheme_text("ring", "incremental", COMBINATIONS[1][2]))
DIRECT = plan_of(scheme_text("point_to_point", "incremental", COMBINATIONS[1][2]))


def routed(plan: Plan, topology: Topology) -> Routes:
    return routes(expand(plan, topology.size), topology)


def refused(plan: Plan, topology: Topology) -> tuple[Diagnostic, ...]:
    return refusals(TopologyError, routed, plan, topology)


@pytest.mark.parametrize("topology", [nodes(2, gpus=4), fat_tree(4), nodes(1, gpus=3)], ids=lambda t: t.name)
def test_the_way_of_a_pair_is_that_of_the_topology(topology: Topology) -> None:
    found = routed(DIRECT, topology)
    src, dst = np.divmod(np.arange(topology.size**2), topology.size)
    src, dst = src[src != dst], dst[src != dst]
    pair, link = found.over(src, dst)
    router = Router(topology)
    for i, (one, other) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        assert tuple(topology.links[j] for j in link[pair == i]) == router.route(one, other)


def test_a_ring_fits_a_ring() -> None:
    found = routed(RING, ring(6))
    assert set(found.paths.counts.tolist()) == {1} and len(found.paths.counts) == 6


def test_a_move_without_a_way_is_told_at_its_line() -> None:
    first, second = refused(DIRECT, ring(5))
    assert (first.id, second.id) == ("no-route", "no-route")
    assert first.message == "rank 0 has no way to rank 2 on ring (push, step 1)"
    assert second.message == "rank 0 has no way to rank 2 on ring (pull, step 1)"
    assert str(first.span).rpartition("/")[2].startswith("patterns.zen:")
    assert first.notes[0] == "the nearest that rank 0 reaches: ranks 1 and 4"
    assert first.notes[1] == "9 other moves of this statement in this step have no way either"
    assert first.help == "ranks forward nothing by themselves: send to rank 1 first, which reaches rank 2"


def test_one_other_move_has_no_way() -> None:
    (found,) = refused(plan_with("step { send all to (rank + 2) mod size where rank < 2 }", ""), ring(4))
    assert found.notes[1] == "1 other move of this statement in this step has no way either"


def test_each_statement_is_told_once_with_its_own_line() -> None:
    push = "step { send part 0 to 0 where rank == 2 }\nstep { send part 1 to 1 where rank == 3 }"
    found = refused(plan_with(push, DIRECT_PULL), ring(4))
    assert [(d.span.line, d.message) for d in found if d.span] == [
        (3, "rank 2 has no way to rank 0 on ring (push, step 1)"),
        (4, "rank 3 has no way to rank 1 on ring (push, step 2)"),
        (6, "rank 0 has no way to rank 2 on ring (pull, step 1)"),
    ]


def test_where_nobody_can_pass_it_on() -> None:
    found = refused(DIRECT, torus(4, 4))
    far = [d for d in found if "patterns.zen" in str(d.span)]
    assert far and all(d.help and "ranks forward nothing" in d.help for d in far)


def test_one_way_links_count_one_way() -> None:
    draft = TopologyBuilder("loop")
    draft.set_levels(("gpu", 4))
    for rank in range(4):
        draft.connect(rank, (rank + 1) % 4, 1e9, 0.0, one_way=True)
    topology = draft.finish()
    assert set(routed(RING, topology).paths.counts.tolist()) == {1}
    push = (
        "step { for d in 1 .. size - 1 { send part (rank + d) mod size to (rank + d) mod size where d == size - 1 } }"
    )
    first = refused(plan_with(push, ""), topology)[0]
    assert first.message == "rank 0 has no way to rank 3 on loop (push, step 1)"
    assert first.notes[0] == "the nearest that rank 0 reaches: rank 1"
    assert first.help and first.help.endswith("let the schedule pass it on, one move after another")


def test_another_number_of_ranks() -> None:
    (found,) = refusals(TopologyError, routes, expand(RING, 5), ring(4))
    assert (found.id, found.message) == ("wrong-topology-size", "ring has 4 ranks, and the moves are among 5 ranks")


def test_rounds_come_in_order_with_their_names() -> None:
    names = [(phase.name, number) for phase, number, _ in expand(RING, 3)]
    assert names == [("push", 1), ("push", 2), ("pull", 1), ("pull", 2)]


@pytest.mark.parametrize(
    ("size", "density", "warned"), [(None, 0.01, False), (1, 0.01, False), (8, 0.07, True), (8, 0.08, False)]
)
def test_below_the_bound_a_dense_pull_is_warned_of(size: int | None, density: float, warned: bool) -> None:
    plan = plan_of_shipped("topk_a2a", size, density=density)
    assert [found.id for found in gain_warnings(plan, None)] == ["no-gain"] * warned


def test_it_is_told_at_the_scheme() -> None:
    (warning,) = zenc.check("topk_a2a", ranks=8).warnings
    assert warning.span is not None and warning.span.source.name == "schemes/topk_a2a.zen"
    assert "below 0.0714" in (warning.help or "")


def test_nothing_is_said_of_other_plans() -> None:
    assert not any(gain_warnings(plan_of_shipped(name, 8), None) for name in (*SHIPPED, "dgc", "sketch_sgd", "qsgd"))
    rest = "aggregation: incremental partition: parallelism balance: imbalanced feedback: residual"
    above = f"scheme a {{ communication: ring {rest} select: above(0.5) push: coo pull: dense }}"
    assert gain_warnings(plan_of(above, 8), None) == ()


UNITS, DENSITY, OVERLAP = 3_276_800, 0.02, 0.25
M = 4 * UNITS
SIZES = (2, 4, 8, 16)
HEADERS, PADDING = 48 + 16, 16
BLOCKS = 0.04
"""Excess of an owner over the mean: elements are drawn from ranges whose blocks have one owner each."""


def scheme(communication: str, aggregation: str, cut: str, push: str = "coo", pull: str = "coo") -> str:
    return (
        f"scheme s {{ communication: {communication} aggregation: {aggregation} {cut} "
        f"push: {push} pull: {pull} unit: element }}"
    )


WHOLE = "partition: centralization"
RANGES = "partition: parallelism balance: imbalanced"
BALANCED = "partition: parallelism balance: balanced by permutation"


def counted(text: str, of: Gradients) -> CallTraffic:
    plan = plan_of(text, of.size)
    return weigh(plan, verify(plan, of.size)[0], of)


def overlapping(size: int) -> Gradients:
    return drawn(GradientSpec(UNITS, 1, "f32", DENSITY, overlap=OVERLAP), size)


def gamma(ranks: int) -> float:
    return (1 - (1 - OVERLAP) ** ranks) / OVERLAP


def follows(bytes: np.ndarray, formula: float, messages: int, chance: float = 0.0) -> bool:
    """Return whether bytes lie between the formula and the formula with headers, padding and ``chance``."""
    assert messages * (HEADERS + PADDING) < 0.003 * formula, "what the formula leaves out is small"
    least, most = formula * (1 - chance) + messages * HEADERS - 1, formula * (1 + chance)
    return bool(((least <= bytes) & (bytes <= most + messages * (HEADERS + PADDING) + 1)).all())


@pytest.mark.parametrize("size", SIZES)
def test_agsparse(size):
    traffic = counted(scheme("point_to_point", "one_shot", WHOLE), overlapping(size)).traffic["push"]
    for bytes in (traffic.received, traffic.sent):
        assert follows(bytes, (size - 1) * 2 * DENSITY * M, size - 1)


@pytest.mark.parametrize("communication", ["ring", "hierarchy"])
def test_agsparse_costs_the_same_whatever_the_way(communication):
    """A ring forwards n - 1 messages of one segment; recursive doubling sends log2 n messages of growing size."""
    size = 8
    traffic = counted(scheme(communication, "one_shot", WHOLE), overlapping(size)).traffic["push"]
    headers = {"ring": 7 * 64, "hierarchy": 3 * 48 + 7 * 16}[communication]
    assert (traffic.received == round((size - 1) * 2 * DENSITY * M) + headers).all()


@pytest.mark.parametrize("size", SIZES)
def test_sparcml(size):
    """The formula is the sum over i = 1 .. log2 n of gamma^(2^(i - 1)) 2 d M (Hierarchical Centralization)."""
    traffic = counted(scheme("hierarchy", "incremental", WHOLE), overlapping(size)).traffic["push"]
    steps = int(log2(size))
    formula = sum(gamma(2**i) for i in range(steps)) * 2 * DENSITY * M
    assert follows(traffic.received, formula, steps, chance=0.01)


def skewed(size: int, skewness: float) -> Gradients:
    """Return index sets where each rank has ``skewness`` / n of its units in the first of n ranges."""
    width, count, held = UNITS // size, round(UNITS * DENSITY), []
    first = round(count * skewness / size)
    counts = [first] + [round((count - first) / (size - 1))] * (size - 1)
    for rank in range(size):
        random = np.random.default_rng(rank)
        ranges = [part * width + random.choice(int(c / OVERLAP), c, replace=False) for part, c in enumerate(counts)]
        held.append(np.concatenate(ranges))
    return gradients(UNITS, 1, "f32", held)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("skewness", [1.0, 1.9])
def test_sparse_ps(size, skewness):
    """Push 2 (n - 1) s d M / n, pull 2 (n - 1) s d^n M / n, at the server of the fullest range."""
    of = skewed(size, skewness)
    found = figures(of)
    assert found.skewness == pytest.approx(skewness, rel=0.001)
    assert found.density_out == pytest.approx(gamma(size) * DENSITY, rel=0.01)
    traffic = counted(scheme("point_to_point", "incremental", RANGES), of).traffic
    push = 2 * (size - 1) * skewness * DENSITY * M / size
    pull = 2 * (size - 1) * skewness * gamma(size) * DENSITY * M / size
    assert follows(traffic["push"].received.max(keepdims=True), push, size - 1, chance=0.001)
    assert follows(traffic["pull"].sent.max(keepdims=True), pull, size - 1, chance=0.02)


@pytest.mark.parametrize("size", SIZES)
def test_balanced_parallelism(size):
    """Each rank moves (n - 1) / n (gamma + 1) 2 d M, whatever the skew."""
    for of in (overlapping(size), skewed(size, 1.9)):
        traffic = counted(scheme("point_to_point", "incremental", BALANCED), of).traffic
        for bytes in (traffic["push"].received + traffic["pull"].received, traffic["push"].sent + traffic["pull"].sent):
            formula = (size - 1) / size * (gamma(size) + 1) * 2 * DENSITY * M
            assert follows(bytes, formula, 2 * (size - 1), chance=BLOCKS)
            assert bytes.mean() == pytest.approx(formula, rel=0.01)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cut", [BALANCED, "partition: parallelism balance: balanced by hierarchical_hash"])
def test_zen_with_its_bitmap(size, cut):
    """Each rank moves (n - 1) / n (2 d + gamma d + 1 / 32) M: COO in the push, a bit for each slot of an owner in the
    pull.
    """
    traffic = counted(scheme("point_to_point", "incremental", cut, "coo", "bitmap"), overlapping(size)).traffic
    received = traffic["push"].received + traffic["pull"].received
    formula = (size - 1) / size * (2 * DENSITY + gamma(size) * DENSITY + 1 / 32) * M
    assert follows(received, formula, 2 * (size - 1), chance=0.02)
    assert received.mean() == pytest.approx(formula, rel=0.01)
    assert traffic["pull"].formats_received["bitmap"].sum() == traffic["pull"].received.sum() - size * (size - 1) * 64


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("density", [0.001, 1.0])
def test_dense_ring(size, density):
    """Each rank moves 2 (n - 1) / n M, whatever the density."""
    of = drawn(GradientSpec(UNITS // 100, 1, "f32", density), size)
    weight = counted(scheme("ring", "incremental", RANGES, "dense", "dense"), of)
    for bytes in (
        sum(traffic.received for traffic in weight.traffic.values()),
        sum(traffic.sent for traffic in weight.traffic.values()),
    ):
        assert (bytes == 2 * (size - 1) / size * M / 100 + 2 * (size - 1) * HEADERS).all()
