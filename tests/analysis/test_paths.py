"""Routes of moves over a topology, and the error for a move that has none."""

from __future__ import annotations

import numpy as np
import pytest

import zenc
from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.plans import DIRECT_PULL, plan_of, plan_with
from tests.support.router import Router
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.analysis.link_load import Routes, routes
from zenc.analysis.plan_warnings import gain_warnings
from zenc.errors import Diagnostic, TopologyError
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.topology.builder import TopologyBuilder
from zenc.topology.model import Topology
from zenc.topology.shapes import fat_tree, nodes, ring, torus

RING = plan_of(scheme_text("ring", "incremental", COMBINATIONS[1][2]))
DIRECT = plan_of(scheme_text("point_to_point", "incremental", COMBINATIONS[1][2]))


def routed(plan: Plan, topology: Topology) -> Routes:
    return routes(expand(plan, topology.size), topology)


def refused(plan: Plan, topology: Topology) -> tuple[Diagnostic, ...]:
    with pytest.raises(TopologyError) as caught:
        routed(plan, topology)
    return caught.value.diagnostics


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
    with pytest.raises(TopologyError) as caught:
        routes(expand(RING, 5), ring(4))
    (found,) = caught.value.diagnostics
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
