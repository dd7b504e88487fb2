"""Formats chosen by seconds: whatever they cost, sums keep their bits, and all that counts bytes agrees."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.both_targets import differences
from tests.support.cases import COMBINATIONS, DTYPES, dense_tensor, same_bits, scheme_text, sparse_tensor
from tests.support.exact import miscounted, positive
from tests.support.fuzz import tried
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact
from zenc.errors import CostError
from zenc.gradients.profile_generators import uniform
from zenc.simulator.calibration import ESTIMATES
from zenc.simulator.predict import predict
from zenc.wire.formats import FormatCosts

KINDS = ("random", "empty_on_one", "many_times", "one_part")
LINKS = (None, "100 Mbit/s", "100 Gbit/s")
NUMBERS = (4, 11, 13)
CHEAP, DEAR = st.just(0) | st.just(1), st.integers(0, 1 << 20)
COSTS = st.builds(FormatCosts, *[CHEAP | DEAR] * 5)


@cache
def compiled(number: int, size: int) -> Artifact:
    """Compile the combination of this ``number``, all of whose formats are free."""
    return zenc.compile_text(scheme_text(*COMBINATIONS[number], "auto", "auto"), ranks=size)


def over(artifact: Artifact, costs: FormatCosts) -> Artifact:
    return replace(artifact, plan=replace(artifact.plan, link=max(1, costs.byte)))


def these(costs: FormatCosts) -> mock._patch_dict:
    """Make formats cost this much on any device."""
    return mock.patch.multiple("zenc.wire.formats", CPU_COSTS=costs, GPU_COSTS=costs)


@settings(max_examples=tried(4), deadline=None)
@given(number=st.sampled_from(NUMBERS), size=st.integers(2, 3), costs=COSTS, turn=st.integers(0, 11))
def test_both_targets_choose_alike_and_sum_alike(number, size, costs, turn):
    with these(costs):
        assert differences(over(compiled(number, size), costs), size, KINDS[turn % 4 :][:1], turn) == []


@settings(max_examples=tried(20), deadline=None)
@given(
    plan=st.sampled_from([*NUMBERS, "holders"]),
    size=st.integers(1, 4),
    costs=COSTS,
    kind=st.sampled_from(KINDS),
    width=st.sampled_from([1, 3]),
    dense=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sums_are_those_of_the_fewest_bytes_and_bytes_are_as_explained(plan, size, costs, kind, width, dense, seed):
    artifact = compiled(plan, size) if isinstance(plan, int) else zenc.compile(plan, ranks=size)
    make = dense_tensor if dense else sparse_tensor
    inputs = [positive(make(kind, rank, size, 300, width, DTYPES[seed % 4], seed)) for rank in range(size)]
    expected = run_all(collectives(artifact, size), [tensor.clone() for tensor in inputs])
    with these(costs):
        ranks = collectives(over(artifact, costs), size)
        found = run_all(ranks, [tensor.clone() for tensor in inputs])
        assert miscounted(ranks[0].artifact.plan, inputs, [rank.stats for rank in ranks]) == []
    assert all(same_bits([wanted, got]) for wanted, got in zip(expected, found, strict=True))


def test_a_link_is_part_of_the_plan():
    plain, fast = zenc.compile("balanced", target="plan"), zenc.compile("balanced", target="plan", link="400 Gbit/s")
    assert (plain.plan.link, fast.plan.link) == (0, 20) and "link" not in plain.plan.to_json()
    assert replace(fast.plan, link=0) == plain.plan and fast.digest != plain.digest
    assert zenc.compile("balanced", target="plan", link=1.0).plan.link == 1 << 20, "slower than any that is told"
    with pytest.raises(CostError, match="link: "):
        zenc.compile("balanced", target="plan", link="fast")


def test_explain_and_simulate_predict_the_choice():
    shape = {"ranks": 4, "units": 100_000, "width": 1, "density": 0.05}
    of_links = {link: zenc.explain("balanced", **shape, link=link) for link in LINKS}
    formats = {link: set(found.traffic["push"].formats) for link, found in of_links.items()}
    assert formats == {None: {"elias_fano"}, "100 Mbit/s": {"elias_fano"}, "100 Gbit/s": {"bitmap"}}
    profile = uniform(0.05, 1_000_000, 1)
    plain, fast = (
        predict(zenc.compile("balanced", target="plan", link=link).plan, 8, profile, calibration=ESTIMATES)
        for link in (None, "3600 Gbit/s")
    )
    assert fast.sent > plain.sent, "bitmaps have more bytes"
    assert fast.kernels < plain.kernels, "and are made faster"
