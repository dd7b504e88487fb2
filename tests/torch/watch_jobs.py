"""Jobs of ranks in the tests of a handle's views: summaries, timelines, metrics; each takes the group first."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist
from prometheus_client import CollectorRegistry
from torch.profiler import ProfilerActivity, profile

import zenc
from tests.torch.handle_jobs import step
from tests.torch.jobs import wrapped


def summaries(group: dist.ProcessGroup) -> tuple[dict[str, Any], dict[str, Any], str, list[Any]]:
    """Return summaries of this rank, and of all, as JSON; as a table; and the stats of each step."""
    ddp = wrapped(group)
    handle = zenc.attach(ddp, "balanced", deadline=30, join=0)
    assert "nothing was synchronised yet" in str(handle.summary())
    steps = []
    for number in range(3):
        step(ddp, group.rank(), number)
        steps.append(handle.stats)
    mine, every = handle.summary(), handle.summary(all_ranks=True)
    assert "\n" not in repr(mine)
    return json.loads(json.dumps(mine.to_json())), every.to_json(), str(every), steps


def traced(group: dist.ProcessGroup, path: str, beside: str, scheme: str) -> int:
    """Run two steps in a timeline, one before and one after; return the calls in it."""
    ddp = wrapped(group)
    handle = zenc.attach(ddp, scheme, deadline=30, join=0)
    step(ddp, group.rank(), 0)
    before = max(stats["call"] for stats in handle.stats.values())
    with handle.trace(path, beside=beside):
        for number in (1, 2):
            step(ddp, group.rank(), number)
    calls = max(stats["call"] for stats in handle.stats.values()) - before
    step(ddp, group.rank(), 3)
    return calls


def trace_beside_nothing(group: dist.ProcessGroup, path: str) -> None:
    with zenc.attach(wrapped(group), "balanced", deadline=30).trace(path, beside=path):
        pass


def profiled_ranges(group: dist.ProcessGroup) -> list[str]:
    """Return the names of zenc's ranges that torch's profiler sees, of a call that its own thread makes."""
    collective = zenc.load("balanced", group, deadline=30)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        collective.all_reduce(torch.ones(8), name="words")
    return sorted({event.name for event in seen.events() if event.name.startswith("zenc")})


class Scalars:
    """A SummaryWriter that keeps scalars."""

    def __init__(self) -> None:
        self.found: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, value: float, global_step: int) -> None:
        self.found.append((tag, value, global_step))


class Run:
    """A run of Weights & Biases that keeps its log."""

    def __init__(self) -> None:
        self.found: list[tuple[dict[str, float], int]] = []

    def log(self, data: dict[str, float], step: int) -> None:
        self.found.append((data, step))


class LightningLogger(Run):
    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.found.append((metrics, step))


def logged(group: dist.ProcessGroup) -> tuple[list[Any], list[Any], list[Any], dict[str, float | None], list[Any]]:
    ddp, scalars, run, lightning, registry = wrapped(group), Scalars(), Run(), LightningLogger(), CollectorRegistry()
    handle = zenc.attach(ddp, "balanced", deadline=30, join=0)
    handle.log_to(scalars)
    handle.log_to(run, every=2, step=lambda: 100 + len(steps), prefix="sync")
    handle.log_to(lightning)
    handle.log_to(registry)
    steps: list[Any] = []
    for number in range(4):
        step(ddp, group.rank(), number)
        steps.append(handle.stats)
    handle.detach()
    labels = {"parameter": "words.weight"}
    samples = {name: registry.get_sample_value(name, labels) for name in ("zenc_calls_total", "zenc_sent_bytes_total")}
    return scalars.found, run.found, lightning.found, samples, steps


def restarted(group: dist.ProcessGroup, path: str) -> tuple[list[Any], list[Any], list[str], int, int]:
    """Save a run and go on from it; return decisions, calls and samples before and after."""
    ddp, rank = wrapped(group), group.rank()
    first = zenc.attach(ddp, "auto", deadline=60, join=0, profiler=zenc.Profiler(every=4))
    for number in range(20):
        step(ddp, rank, number)
    if rank == 0:
        torch.save({"zenc": first.state_dict()}, path)
    dist.barrier(group)
    samples = first.state.profiler.profiles()["words.weight"].recorded.steps
    again = wrapped(group)
    second = zenc.attach(again, "auto", deadline=60, join=0, profiler=zenc.Profiler(every=4))
    second.load_state_dict(torch.load(path, weights_only=True)["zenc"])
    ran = []
    for number in range(2):
        step(again, rank, number)
        ran += [stats["choice"]["scheme"] for stats in second.stats.values()]
    decided = [[decision.to_json() for decision in handle.decisions] for handle in (first, second)]
    assert second.state_dict()["choices"].keys() == first.state_dict()["choices"].keys()
    return *decided, ran, samples, second.state.profiler.profiles()["words.weight"].recorded.steps


def states_that_differ(group: dist.ProcessGroup) -> str:
    handle = zenc.attach(wrapped(group), "balanced", deadline=30)
    try:
        handle.load_state_dict({**handle.state_dict(), "scheme": str(group.rank())})
    except zenc.SynchronisationError as error:
        return error.diagnostics[0].id
    return ""
