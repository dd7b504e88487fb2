"""One way to synchronise gradients: a model under DDP, its optimisers, and what each of its steps cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from examples.language_model.batches import Batch

LOOPBACK = Path("/proc/net/dev")


@dataclass
class Lane:
    """The measurements are lists with one entry a step; times are seconds of this rank."""

    name: str
    ddp: DistributedDataParallel
    optimisers: tuple[torch.optim.Optimizer, ...]
    losses: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    backwards: list[float] = field(default_factory=list)
    loopback: list[float] = field(default_factory=list)
    held_out: dict[int, float] = field(default_factory=dict)
    counted: list[float] = field(default_factory=list)
    """Bytes that the synchronisation itself counted as sent by this rank; empty where it does not count."""
    inside: list[float] = field(default_factory=list)
    """Seconds that the synchronisation itself says it took; the backward pass goes on meanwhile."""
    reports: Callable[[], Iterable[Mapping[str, Any]]] | None = None

    def step(self, batch: Batch) -> float:
        """One training step between two barriers, so that neither lane pays for the other's late ranks."""
        dist.barrier()
        sent, start = loopback_bytes(), time.perf_counter()
        loss = self.ddp(batch.before, batch.target, batch.negatives)
        middle = time.perf_counter()
        loss.backward()
        self.backwards.append(time.perf_counter() - middle)
        self.update()
        self.steps.append(time.perf_counter() - start)
        dist.barrier()
        self.loopback.append((loopback_bytes() - sent) / dist.get_world_size())
        self.count()
        self.losses.append(float(loss.detach()))
        return self.losses[-1]

    def count(self) -> None:
        """Keep what the synchronisation of this step says of itself."""
        if self.reports is not None:
            reports = list(self.reports())
            self.counted.append(float(sum(report["bytes_sent"] for report in reports)))
            self.inside.append(float(sum(report["seconds"] for report in reports)))

    def backward_alone(self, batch: Batch) -> float:
        """Seconds of a backward pass that synchronises nothing."""
        dist.barrier()
        with self.ddp.no_sync():
            loss = self.ddp(batch.before, batch.target, batch.negatives)
            start = time.perf_counter()
            loss.backward()
        took = time.perf_counter() - start
        self.ddp.zero_grad()
        return took

    def update(self) -> None:
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad()

    def evaluate(self, step: int, before: Tensor, target: Tensor) -> None:
        """The held-out loss of the whole group; each rank brings its own share of the text."""
        loss = torch.tensor(self.ddp.module.full_loss(before, target), dtype=torch.float64)
        dist.all_reduce(loss)
        self.held_out[step] = float(loss) / dist.get_world_size()


def loopback_bytes() -> float:
    """All that the kernel has sent over loopback so far, by anyone; not a number where it does not say."""
    if not LOOPBACK.exists():
        return float("nan")
    for line in LOOPBACK.read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return float(numbers.split()[8])
    return float("nan")
