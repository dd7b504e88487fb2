"""Numbers at both ends of their ranges, and one step beyond, in each place that takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from math import inf, nan, nextafter
from types import SimpleNamespace

import pytest
import torch.distributed as dist
import typer

import zenc
from zenc.cli import given
from zenc.common.limits import LIMITS
from zenc.errors import ZencError
from zenc.forecast import simulate
from zenc.gradients.profile_generators import uniform
from zenc.runtime import load
from zenc.simulator.calibration import DEFAULTS, LIMITED, Kernel
from zenc.simulator.predict import network, predict
from zenc.topology.shapes import ring

PLAN = zenc.compile("dense_ring", target="plan").plan


def predicted(**changes: object) -> None:
    """Predict with a calibration: a number that it takes leads to seconds, and to no infinity."""
    found = predict(PLAN, 4, uniform(0.5, 1000, 4, "f32"), calibration=replace(DEFAULTS, **changes))
    assert 0 <= found.seconds < inf


def in_a_profile(limit: str, name: str) -> tuple[str, str, Callable[[float], object]]:
    return limit, f"calibration: {name}", lambda value: predicted(**{name: int(value) if name == "cores" else value})


READERS: list[tuple[str, str, Callable[[float], object]]] = [
    *(in_a_profile(limit, name) for name, limit in LIMITED.items()),
    ("speed", "calibration: speed of a kernel", lambda value: predicted(pack=Kernel(((0.0, 0.0), (1.0, 0.0)), value))),
    ("seconds", "calibration: curve", lambda value: predicted(pack=Kernel(((0.0, 0.0), (1.0, value)), 1e9))),
    ("bandwidth", "topology", lambda value: ring(3, bandwidth=value)),
    ("latency", "topology", lambda value: ring(3, latency=value)),
    ("bandwidth", "forecast", lambda value: simulate("dense_ring", uniform(0.5, 9, 4), ranks=2, bandwidth=value)),
    ("bandwidth", "--bandwidth", lambda value: given.bandwidths(f"{value!r} B/s", None)),
    ("seconds", "--computing", lambda value: given.amount("latency", "--computing", f"{value!r} s")),
    ("memory", "--rest", lambda value: given.amount("memory", "--rest", f"{value!r} B")),
    ("deadline", "deadline", lambda value: load.deadline_of(value, None)),
]


@pytest.mark.parametrize(("limit", "place", "read"), READERS, ids=[f"{place}: {limit}" for limit, place, _ in READERS])
def test_both_ends_are_taken_and_nothing_beyond(limit: str, place: str, read: Callable[[float], object]) -> None:
    least, most = LIMITS[limit].least, LIMITS[limit].most
    step = (lambda value, to: value + (1 if to > 0 else -1)) if "cores" in place else nextafter
    for value in (least, most):
        read(value)
    beyond = [step(most, inf), step(least, -inf)]
    written = place.startswith("--") or "cores" in place
    for value in (*beyond, *([] if written else [nan, inf, -inf])):
        with pytest.raises((ZencError, typer.BadParameter)):
            read(value)


def test_every_limit_is_tried() -> None:
    assert {limit for limit, _, _ in READERS} == set(LIMITS) - {"simulated ranks"}


@pytest.mark.parametrize("value", ["-5 Gbit/s", "0 Gbit/s", "1e69 Gbit/s"])
def test_a_bandwidth_is_blamed_on_itself(value: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"--bandwidth: '{value}'"):
        given.bandwidths(value, None)
    with pytest.raises(ZencError, match="bad-bandwidth"):
        simulate("dense_ring", uniform(0.5, 9, 4), ranks=2, bandwidth=value)


def test_more_ranks_than_are_simulated_take_no_memory() -> None:
    most = int(LIMITS["simulated ranks"].most)
    network(None, most, DEFAULTS)
    for attempt in (
        lambda: network(None, most + 1, DEFAULTS),
        lambda: simulate("dense_ring", uniform(0.5, 9, 4), ranks=most + 1),
    ):
        with pytest.raises(ZencError, match="4096"):
            attempt()


def test_a_group_that_waits_for_ever_has_the_longest_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SimpleNamespace(options=SimpleNamespace(_timeout=timedelta.max))
    group = dist.ProcessGroup(0, 1)
    monkeypatch.setattr(dist.ProcessGroup, "_device_types", ["cpu"], raising=False)
    monkeypatch.setattr(dist.ProcessGroup, "_get_backend", lambda *_: backend)
    assert load.deadline_of(None, group) == LIMITS["deadline"].most
