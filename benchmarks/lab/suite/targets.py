"""Targets of zenc, and whether it meets them: quantities of results, each beside a number.

    Target = what x at least or at most x number x quantity of results

*Best* is the fastest of zenc's own schemes at the point, by its median. Bytes are those that schemes count themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.lab.results import Row, Spread
from benchmarks.lab.suite.points import OURS, RANGE
from benchmarks.lab.suite.results import Result, Results

Quantity = Callable[[Results], float | Spread | None]
"""A function from results to a quantity; None where it has not been measured."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target for a quantity; ``least``: whether ``goal`` is the least that is allowed, or the most."""

    what: str
    least: bool
    goal: float
    quantity: Quantity

    def met(self, found: float | Spread) -> bool:
        value = found.median if isinstance(found, Spread) else found
        return value >= self.goal if self.least else value <= self.goal


def time_over_best(point: str, peer: str) -> Quantity:
    def quantity(results: Results) -> Spread | None:
        found = shaped(results, point)
        return found.over(peer, found.best()) if found and peer in found.rows else None

    return quantity


def bytes_over_least(point: str, peer: str) -> Quantity:
    """Return the bytes of those of ours that send least, which need not be the fastest."""

    def quantity(results: Results) -> float | None:
        found = results.get(point)
        if not found or peer not in found.rows:
            return None
        ours = [found.rows[name].counted_sent for name in OURS if name in found.rows]
        return quotient(found.rows[peer].counted_sent, min(sent for sent in ours if sent is not None))

    return quantity


def bytes_over_bound(point: str) -> Quantity:
    def quantity(results: Results) -> float | None:
        found = results.get(point)
        return quotient(best(found).counted_sent, found.bounds.bandwidth_bytes) if found and found.bounds else None

    return quantity


def time_over_bound(point: str) -> Quantity:
    def quantity(results: Results) -> float | None:
        found = shaped(results, point)
        return quotient(best(found).seconds.median, found.bounds.seconds) if found and found.bounds else None

    return quantity


def slowdown(point: str, usual: str) -> Quantity:
    """Return the slowdown of the scheme that is best at ``usual``, from two runs, so not paired."""

    def quantity(results: Results) -> float | None:
        found, base = shaped(results, point), shaped(results, usual)
        if not found or not base or base.best() not in found.rows:
            return None
        return quotient(found.rows[base.best()].seconds.median, best(base).seconds.median)

    return quantity


def shaped(results: Results, point: str) -> Result | None:
    """Return the result unless it is over loopback, where times say nothing about networks."""
    found = results.get(point)
    return found if found and found.settings.rate else None


def best(result: Result) -> Row:
    return result.rows[result.best()]


def quotient(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def rows_over_best(of: str, peer: str, goals: dict[int, float]) -> list[Target]:
    """Return targets of ``peer`` on rows at 2 %, for each number of ranks."""
    return [
        Target(f"{of} over best, N = {size}", True, goal, time_over_best(f"rows-{size}", peer))
        for size, goal in goals.items()
    ]


ZEN = {4: 1.22, 8: 1.14, 16: 1.08}
TARGETS = (
    *rows_over_best("PyTorch's sparse all-reduce", "torch-coo", {2: 1.85, 4: 1.38, 8: 1.68, 16: 2.25}),
    *rows_over_best("`sparcml`", "sparcml", {2: 1.00, 4: 1.12, 8: 1.22, 16: 1.35}),
    *rows_over_best("Balanced Parallelism as published, `zen`,", "zen", ZEN),
    *rows_over_best("Balanced Parallelism of ours, `balanced`,", "balanced", ZEN),
    Target("elements at 1 %: `zen` over best", True, 1.20, time_over_best("elements-8", "zen")),
    Target(
        "elements at 5 %, bytes: `zen` over ours that sends least",
        True,
        1.08,
        bytes_over_least("elements-8-5pct", "zen"),
    ),
    Target("ranges of sorted rows over best", True, 3.5, time_over_best("range-8", RANGE)),
    Target(
        "training: a step of DDP with sparse gradients over one with best",
        True,
        1.6,
        time_over_best("training-8", "ddp-sparse"),
    ),
    Target("Horovod over best", True, 1.5, time_over_best("horovod-8", "horovod-coo")),
    *(
        Target(f"bytes of best over B2, N = {size}", False, 1.02, bytes_over_bound(f"rows-{size}"))
        for size in (2, 4, 8, 16)
    ),
    Target("time of best over B2 / rate, N = 8", False, 1.12, time_over_bound("rows-8")),
    Target("best with queues of 256 kB over best with those of 2 MB", False, 1.05, slowdown("rows-8-queue", "rows-8")),
)
