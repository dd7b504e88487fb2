"""Predictions of calls whose pulls begin while they push."""

import pytest

from tests.support.shipped import plan_of_shipped
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Plan
from zenc.simulator.calibration import DEFAULTS, ESTIMATES, bandwidth_only
from zenc.simulator.flowing import early_steps
from zenc.simulator.network import Cluster
from zenc.simulator.predict import predict, predict_on
from zenc.synthesize.sparse import plan_of
from zenc.synthesize.synthesis import packed
from zenc.synthesize.write import Form
from zenc.topology.load import load_topology

SLOW = """topology slow {
    levels: host(3)
    switch box
    for h in 0 .. 1 { link host(h) - box: 100 Mbit/s }
    link host(2) - box: 30 Mbit/s
}"""
PROFILE = uniform(0.3, 100_000, 64)


def plan(chunks: int, by_holders: bool) -> Plan:
    topology = load_topology(SLOW)
    _, _, down, up = packed(topology)
    return plan_of(topology, down, up, Form(chunks, by_holders))


@pytest.mark.parametrize(("by_holders", "most"), [(False, 0.97), (True, 0.99)])
def test_what_flows_is_faster_and_carries_as_much(by_holders: bool, most: float) -> None:
    of, topology, links = plan(16, by_holders), load_topology(SLOW), bandwidth_only("links")
    flows, steps = (predict(of, 3, PROFILE, topology, links, flows=each) for each in (True, False))
    assert flows.busy * 0.999 < flows.seconds < most * steps.seconds
    assert (flows.sent, flows.carried, flows.messages) == (steps.sent, steps.carried, steps.messages)
    assert flows.phases.keys() == steps.phases.keys() and flows.steps == steps.steps
    assert sum(phase.seconds for phase in flows.phases.values()) > flows.seconds, "phases run at once"


def test_a_trace_has_each_joined_step_once() -> None:
    of, topology = plan(4, True), load_topology(SLOW)
    found = predict_on(of, PROFILE, Cluster(topology), DEFAULTS, trace=True)
    assert found.of is not None and {span.stage for span in found.spans} < set(range(len(found.of.stages)))
    assert max(span.end for span in found.spans) <= found.seconds


def test_gpus_and_other_plans_go_step_by_step() -> None:
    of, topology = plan(4, False), load_topology(SLOW)
    on_gpus = [predict(of, 3, PROFILE, topology, ESTIMATES, flows=each).seconds for each in (True, False)]
    assert early_steps(of, 3) == 3 and on_gpus[0] == on_gpus[1]
    assert early_steps(plan_of_shipped("double_binary_tree", chunks=4), 3) == 0
