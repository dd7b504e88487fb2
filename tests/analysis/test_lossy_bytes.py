"""Predicted bytes of lossy schemes, exact where sizes are fixed, else approximate and marked so; and of holders."""

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch

import zenc
from tests.plan.test_announce import holders
from tests.support.holder_bytes import weigh_by_holders
from tests.support.local import collectives, run_all
from tests.support.plans import lossy, plan_of
from tests.support.shipped import LOSSY, plan_of_shipped
from zenc.analysis.contribution import contributed, contributed_sets, guesses
from zenc.analysis.exact_traffic import CallTraffic, weigh
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.analysis.volume import volumes
from zenc.api import explain
from zenc.gradients.index_sets import drawn, gradients
from zenc.gradients.profile_generators import uniform
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.scheme.compression import Integers, Top
from zenc.simulator.contributor_counts import play
from zenc.simulator.predict import predict
from zenc.simulator.symmetry import messages
from zenc.verify.proof import verify

RANKS, UNITS = 4, 20_011
STATIC = ("one_bit", "signum", "fp8", "loco", "qsgd", "terngrad", "sketch_sgd", "oscar_sw", "gtop_k", "topk_a2a",
          "power_sgd")  # fmt: skip
"""Schemes whose messages have one size, whatever the values."""


def counted(plan: Plan, units: int = UNITS) -> CallTraffic:
    return weigh(plan, expand(plan, RANKS), drawn(GradientSpec(units, 1, "f32", 1.0), RANKS))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("dgc", "oscar_hw"))) for name in LOSSY]
)
def test_what_is_predicted_is_sent(name: str) -> None:
    """The gradient is dense and warm-up is over; a threshold from a sample lets the number of units vary."""
    plan, of_ranks = plan_of_shipped(name), collectives(zenc.compile(name, ranks=RANKS), RANKS)
    units, rel = (20 * UNITS, 0.2) if name == "dgc" else (UNITS, 0.02)
    if plan.warmup:
        kept = {"shape": [units], "step": plan.warmup.steps, **{name: torch.zeros(units) for name in plan.kept}}
        tensors = {"w": kept}
        for of in of_ranks:
            of.load_state_dict({**of.state_dict(), "tensors": tensors})
    run_all(of_ranks, [torch.randn(units, generator=torch.Generator().manual_seed(r)) for r in range(RANKS)], name="w")
    for kind, traffic in counted(plan, units).traffic.items():
        sent = [of.stats["phases"][kind]["bytes_sent"] for of in of_ranks]
        if name in STATIC:
            assert traffic.sent.tolist() == sent
        elif name == "oscar_hw":  # the most that a range coder may send
            assert all(0.5 * most < each <= most for each, most in zip(sent, traffic.sent.tolist(), strict=True))
        else:
            assert sum(sent) == pytest.approx(int(traffic.sent.sum()), rel=rel)
    assert bool(guesses(plan)) == (name not in (*STATIC, "sketch_topk") or name in ("gtop_k", "topk_a2a", "power_sgd"))


@pytest.mark.parametrize("name", LOSSY)
def test_the_mean_is_what_is_counted(name: str) -> None:
    plan = plan_of_shipped(name)
    busiest = predict(plan, RANKS, uniform(1.0, UNITS)).sent
    assert busiest == pytest.approx(float(counted(plan).total.sent.mean()), rel=0.03)


def test_a_share_is_taken_of_what_is_there() -> None:
    plan = plan_of_shipped("topk_a2a", density=0.01)
    thin, full = uniform(0.002, UNITS), uniform(0.5, UNITS)
    assert contributed(plan, thin) is thin and contributed(plan, full).density == pytest.approx(0.01)
    sets = contributed_sets(plan, drawn(GradientSpec(UNITS, 1, "f32", 0.5), RANKS))
    owned = np.arange(UNITS) * RANKS // UNITS
    parts = [np.bincount(owned[ids], minlength=RANKS) for ids in sets.held]
    assert {int(count) for counts in parts for count in counts} == {50} and sets.size == RANKS


def test_sums_that_are_selected_of_again() -> None:
    """In two tiers a node contributes 1 % of its sum, so owners have at most 2 %, and pass on 1 %."""
    text = """
    scheme moves {
        communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced
        push: coo pull: coo
    }
    scheme both { tier node(2): moves tier top: moves }"""
    plan = lossy(plan_of(text, scheme="both"), None, Integers(8), None, select=(Top(0.01),))
    of = ExpectedBytes(plan, RANKS, uniform(1.0, UNITS))
    density = [
        float(of.piece(phase, ranks)[0][0] / of.slots) for phase, ranks in zip(plan.phases, (1, 2, 4, 4), strict=True)
    ]
    assert density == pytest.approx([0.01, 0.01, 0.01, 0.01])
    exact, expected = counted(plan).total.sent, predict(plan, RANKS, uniform(1.0, UNITS)).sent
    assert float(exact.mean()) == pytest.approx(expected, rel=0.05)


def test_what_is_estimated_is_said() -> None:
    told = explain("ok_topk", ranks=RANKS, units=UNITS, width=1, density=1.0)
    assert "bytes are estimated: which units are selected is drawn at random, " in told.text()
    assert "  push: d is the density of top(0.01) by reused(32)" in told.text()
    assert [what.split()[0] for what in told.to_json()["estimated"]] == ["which", "what", "bytes"]
    assert "estimated" not in explain("one_bit", ranks=RANKS, units=UNITS, width=1, density=1.0).text()
    assert told.busiest_bytes < 0.05 * told.figures.dense_ring_bytes


ROWS, ROW_BYTES = 50_000, 64


@pytest.mark.parametrize("density", [0.01, 0.2, 0.9])
@pytest.mark.parametrize("size", [2, 5, 8])
@pytest.mark.parametrize("communication", ["point_to_point", "ring", "hierarchy"])
@pytest.mark.parametrize("aggregation, announce", [("incremental", ""), ("one_shot", ""), ("one_shot", "directory")])
def test_expected_bytes(communication, aggregation, announce, size, density):
    plan, rng = holders(communication, aggregation, announce and f"announce: {announce}"), np.random.default_rng(size)
    model = ExpectedBytes(plan, size, uniform(density, ROWS, ROW_BYTES // 4))
    expected: dict[str, float] = defaultdict(float)

    def observe(phase, number, moved):
        pairs, message = np.unique(moved.src * size + moved.dst, return_inverse=True)
        expected[phase.name] += model.delivered(phase, moved, message.reshape(-1), len(pairs)).sum()

    verify(plan, size, observe)
    held = [np.flatnonzero(rng.random(ROWS) < density) for _ in range(size)]
    counted: dict[str, float] = defaultdict(float)
    for round_ in weigh_by_holders(plan, ROWS, ROW_BYTES, held):
        counted[round_.kind] += int(round_.bytes.sum())
    assert set(counted) == {"announce", "push", "pull", *([announce] if announce else [])}
    noise = 0.005 * sum(counted.values())  # few units are held twice where gradients are sparse
    for kind in counted:
        assert expected[kind] == pytest.approx(counted[kind], rel=0.05, abs=noise), kind


OWN = "scheme own { communication: point_to_point aggregation: incremental partition: parallelism balance: balanced by"
TIERS = [
    "tier a(2): balanced tier b: own",
    "tier a(4): dense_ring tier b: own",
    "tier a(2): hierarchical_centralization tier b: own",
    "tier a(2): balanced tier b(2): dense_ring tier c: own",
]


@pytest.mark.parametrize("density", [0.01, 0.2])
@pytest.mark.parametrize("announce", ["point_to_point", "directory(from = 2)"])
@pytest.mark.parametrize("tiers", TIERS)
def test_bytes_of_an_outermost_tier(tiers, announce, density):
    size, plan = 8, plan_of(f"{OWN} holders announce: {announce} }} scheme two {{ {tiers} }}", scheme="two")
    model, expected = ExpectedBytes(plan, size, uniform(density, ROWS, 16)), defaultdict[str, float](float)

    def observe(phase, number, moved):
        pairs, message = np.unique(moved.src * size + moved.dst, return_inverse=True)
        expected[phase.name] += model.delivered(phase, moved, message.reshape(-1), len(pairs)).sum()

    verify(plan, size, observe)
    simulated = defaultdict[str, float](float)
    for step in play(plan, size):
        for _, _, each in messages(model, step):
            simulated[step.phase.name] += each.sum()
    assert simulated == pytest.approx(expected, rel=1e-6)
    rng = np.random.default_rng(1)
    held = [np.flatnonzero(rng.random(ROWS) < density) for _ in range(size)]
    counted = defaultdict[str, float](float)
    for each in weigh(plan, expand(plan, size), gradients(ROWS, 16, "f32", held)).messages:
        counted[each.phase] += each.bytes.sum()
    noise = 0.005 * sum(counted.values())
    assert dict(expected) == {name: pytest.approx(bytes, rel=0.05, abs=noise) for name, bytes in counted.items()}


def test_volumes_of_an_outermost_tier():
    """A half of a machine pushes d_2 less the part of it that the machine owns."""
    plan = plan_of(f"{OWN} holders }} scheme two {{ {TIERS[0]} }}", scheme="two")
    for n in (4, 6, 8):
        push, pull = (volumes(plan, n, 0.1)[f"{kind} of b"].sent for kind in ("push", "pull"))
        assert push == {2: Fraction(1, 2), n: Fraction(-1, n)} and pull == {n: Fraction(n - 2, 2 * n)}
    whole = plan_of(f"{OWN} holders }} scheme two {{ {TIERS[2]} }}", scheme="two")
    assert volumes(whole, 8, 0.1)["push of b"].sent == {2: Fraction(1), 8: Fraction(-1, 4)}, "each rank has all of it"


@pytest.mark.parametrize("size", [2, 4, 7])
def test_the_volume_of_the_push(size):
    """A rank pushes d - d_n / n of the tensor, and pulls all that it does not own."""
    found = volumes(holders("point_to_point then ring"), size, 0.1)
    assert found["push"].sent == found["push"].received == {1: Fraction(1), size: Fraction(-1, size)}
    assert found["pull"].sent == {size: Fraction(size - 1, size)}
