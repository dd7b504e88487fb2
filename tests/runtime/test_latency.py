"""Latency from the times of empty calls."""

from __future__ import annotations

import pytest

from zenc.calibrate.latency_fit import RING, Latency, latency
from zenc.language.files import load_text
from zenc.plan.lower import lower
from zenc.plan.unroll import expand
from zenc.scheme.resolve import resolve


def times_of(size: int, of: Latency) -> tuple[float, float, float]:
    exchange = of.step + (size - 1) * of.message
    return of.call + exchange, of.call + 2 * exchange, of.call + 2 * (size - 1) * (of.step + of.message)


@pytest.mark.parametrize("size", [3, 4, 8, 64])
def test_what_calls_are_made_of_is_found(size: int) -> None:
    found = latency(size, *times_of(size, Latency(1e-3, 4e-4, 3e-5)))
    assert (found.call, found.step, found.message) == pytest.approx((1e-3, 4e-4, 3e-5))


def test_two_ranks_have_steps_alone() -> None:
    found = latency(2, *times_of(2, Latency(1e-3, 4e-4, 1e-4)))
    assert (found.call, found.step, found.message) == pytest.approx((1e-3, 5e-4, 0))


@pytest.mark.parametrize("times", [(2e-3, 1e-3, 1e-3), (1e-3, 1.1e-3, 5e-2), (1e-3, 4e-3, 2e-3), (0.0, 0.0, 0.0)])
def test_times_that_make_no_sense_give_nothing_below_zero(times: tuple[float, float, float]) -> None:
    found = latency(4, *times)
    assert min(found.call, found.step, found.message) >= 0


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_ring_has_as_many_steps(size: int) -> None:
    rounds = expand(lower(resolve(load_text(RING, "ring.zen"))[0], size), size)
    steps = [step for phase in (*rounds.pushes, *rounds.pulls) for step in phase]
    assert len(steps) == 2 * (size - 1)
    assert all(sorted(step.src) == list(range(size)) for step in steps)
