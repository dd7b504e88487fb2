"""Warnings of a dense pull after a selection below the densities of TopKA2A's paper, at which it pays."""

from __future__ import annotations

import pytest

import zenc
from tests.support.plans import plan_of
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.analysis.plan_warnings import gain_warnings


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
