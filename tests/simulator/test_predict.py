"""Predictions of calls: bytes against those of gradients, and classes of like ranks against all ranks."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.shipped import SHIPPED, plan_of
from zenc.analysis.exact_traffic import weigh
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.errors import CostError, TopologyError
from zenc.gradients.index_sets import Gradients, drawn, gradients
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform, zipf
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.scheme.model import Unit
from zenc.simulator.calibration import Calibration, bandwidth_only
from zenc.simulator.contributor_counts import play
from zenc.simulator.predict import Prediction, in_turn, network, predict
from zenc.simulator.symmetry import messages
from zenc.topology.load import load_topology
from zenc.topology.shapes import nodes, ring

SIZES = (2, 4, 8, 16)
FREE = bandwidth_only("free")


@cache
def rows() -> Profile:
    return zipf(0.02, 1.05, 100_000, 16)


@cache
def elements() -> Profile:
    return uniform(0.01, 400_000)


def loads(of: Profile, size: int) -> GradientSpec:
    return GradientSpec(of.units, of.width, "f32", of.density, 1.05 if of.width > 1 else None, None, size)


def units_of(plan: Plan, of: Gradients) -> Gradients:
    """Return the units of rows as the run time sees them: elements, where the plan is for elements."""
    if plan.unit is not Unit.ELEMENT or of.width == 1:
        return of
    held = [(ids[:, None] * of.width + np.arange(of.width)).reshape(-1) for ids in of.held]
    return gradients(of.units * of.width, 1, of.dtype, held)


def expected(scheme: str, size: int, of: Profile) -> np.ndarray[Any, Any]:
    plan = plan_of(scheme, size)
    model, sent = ExpectedBytes(plan, size, of), np.zeros(size)
    for step in play(plan, size):
        for src, _, bytes in messages(model, step):
            np.add.at(sent, src, bytes)
    return sent


@pytest.mark.one_in(1)
@pytest.mark.parametrize("profile", [rows, elements])
@pytest.mark.parametrize("scheme", SHIPPED)
def test_bytes_are_those_of_gradients_that_are_drawn(scheme: str, profile: Any) -> None:
    """Total bytes are equal, and the busiest rank's up to what chance adds to the fullest of few parts."""
    of = profile()
    for size in SIZES if scheme != "kylix" else SIZES[1:]:
        plan = plan_of(scheme, size)
        exact = weigh(plan, expand(plan, size), units_of(plan, drawn(loads(of, size), size))).total.sent
        found = expected(scheme, size, of)
        assert found.sum() == pytest.approx(exact.sum(), rel=0.02), size
        assert found.max() == pytest.approx(exact.max(), rel=0.09), size


@pytest.mark.parametrize("scheme", SHIPPED)
def test_one_of_each_kind_of_ranks_stands_for_all(scheme: str) -> None:
    calibration = Calibration(fan_in=7e4, burst=5e4, buffer=2e4, cores=3)
    for size in (4, 12, 16):
        one = predict(plan_of(scheme, size), size, rows(), None, calibration)
        every = predict(plan_of(scheme, size), size, rows(), None, calibration, apart=True)
        assert every.classes == size >= one.classes
        assert said(one) == pytest.approx(said(every), rel=1e-9)


@pytest.mark.parametrize("scheme", SHIPPED)
def test_on_a_topology_one_of_each_kind_of_links_stands_for_all(scheme: str) -> None:
    topology = nodes(4, gpus=4, nics=2)
    one = predict(plan_of(scheme, 16), 16, rows(), topology)
    every = predict(plan_of(scheme, 16), 16, rows(), topology, apart=True)
    assert said(one) == pytest.approx(said(every), rel=1e-9)


def said(of: Prediction) -> dict[str, float]:
    """Return the numbers of a prediction, with the seconds of its phases."""
    names = ("seconds", "sent", "received", "messages", "busy", "carried", "kernels")
    return {name: getattr(of, name) for name in names} | {name: each.seconds for name, each in of.phases.items()}


def test_a_switch_that_holds_nobody_up_is_like_no_topology() -> None:
    topology = load_topology("nodes(1, gpus = 8, bandwidth = 1 GB/s, latency = 0 us)")
    for scheme in ("balanced", "sparse_ps", "dense_ring"):
        plan = plan_of(scheme, 8)
        without = predict(plan, 8, rows(), None, FREE)
        assert predict(plan, 8, rows(), topology, FREE).seconds == pytest.approx(without.seconds, rel=1e-12)


def test_a_balanced_call_takes_its_bytes_over_the_bandwidth() -> None:
    found = predict(plan_of("balanced", 8), 8, rows(), None, FREE)
    assert found.seconds == pytest.approx(found.sent / 1e9, rel=1e-9)
    assert found.steps == 2


def test_the_narrow_way_out_of_a_machine_is_the_bottleneck() -> None:
    topology = nodes(2, gpus=4, network_bandwidth=1e9)
    found = predict(plan_of("agsparse", 8), 8, rows(), topology, FREE)
    assert "nic" in found.bottleneck
    assert found.seconds == pytest.approx(found.busy, rel=0.01)


def test_ranks_of_another_number_and_ways_that_are_missing() -> None:
    with pytest.raises(CostError, match="wrong-topology-size"):
        predict(plan_of("balanced", 4), 4, rows(), nodes(2, gpus=4))
    with pytest.raises(TopologyError, match="no-route"):
        predict(plan_of("balanced", 4), 4, rows(), ring(4))


def test_alpha_is_paid_by_step_and_by_message() -> None:
    slow = replace(FREE, step=1.0, message=0.01)
    found = predict(plan_of("balanced", 8), 8, rows(), None, slow)
    assert found.seconds == pytest.approx(2 * (1.0 + 7 * 0.01), abs=0.01)


def test_collectives_wait_for_gradients_and_for_each_other() -> None:
    assert in_turn([3.0, 1.0, 1.0], [5.0, 0.0, 0.5]) == [8.0, 1.0, 2.0]


def test_a_network_is_made_once_for_many_plans() -> None:
    assert network(nodes(1, gpus=4), 4, FREE).flat
    assert not network(nodes(2, gpus=4), 8, FREE).flat
