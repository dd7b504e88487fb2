"""Measurement of the network and the kernels of a process group: the numbers of ``zenc.simulator.calibration``.

    call, step,     empty calls of schemes with few steps and with many: ``latency`` fits an upper bound
    message
    bandwidth       messages of two sizes around a ring; the difference of the times is that of the bytes
    buffer the part of a message not there when its sender goes on: the time from then on, as bytes
    fan_in          as many bytes in long messages to all peers at once: the time of that beyond the ring
    fan_in_from     the same of short messages, which lose less
    kernels         this rank's own: see ``zenc.calibrate.kernel_benchmark``
    compression     this rank's CPU: see ``zenc.calibrate.compression_benchmark``

Plain messages of the process group would say little of latency: they go another way than a scheme's. Where ranks share
processors even empty calls are mostly work of theirs, which longer messages hide behind the wire.

Each time is the median of several rounds, that of an empty call or of a kernel the least, of the slowest rank. The
difference of rounds shows whether the machine did something else meanwhile: kernels are then timed again, and the least
of all rounds counts; the remaining difference is the ``spread`` of the calibration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from zenc.calibrate.compression_benchmark import timed_compression
from zenc.calibrate.kernel_benchmark import Watch, fit_kernels, timed
from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.call.collective import Collective
from zenc.runtime.cpu.kernels import Kernels
from zenc.simulator.calibration import BUSY, FAN_IN_SHARE, Calibration

RING = (
    "scheme ring { communication: ring aggregation: incremental partition: parallelism "
    "balance: balanced by permutation push: coo pull: coo }"
)
"""A scheme with 2 (n - 1) steps among n ranks, in each of which a rank sends one message."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of a call beside its steps, of a step, and of each message that a rank sends in it."""

    call: float
    step: float
    message: float


def latency(size: int, one: float, two: float, ring: float) -> Latency:
    """Return seconds of a call, a step and a message, from those of empty calls among ``size`` ranks, 2 or more.

    ``one`` is of one step in which each rank sends to all others, ``two`` of two such steps, ``ring`` of ``RING``.
    Among two ranks messages can't be told from steps, and count as them.
    """
    exchange = max(0.0, two - one)
    step = exchange if size == 2 else min(exchange, max(0.0, (ring - two) / (2 * (size - 2))))
    return Latency(max(0.0, one - exchange), step, (exchange - step) / (size - 1))


SMALL = 8
FIRST, LONG_ENOUGH, MOST = 1 << 16, 0.05, 1 << 28
"""The bytes of the first message around the ring, the seconds that a long one takes, and the most bytes of one; sizes
double."""
ROUNDS, EMPTY_ROUNDS, LONG_ROUNDS = 9, 25, 3
ATTEMPTS = 3
"""Attempts at a measurement that a busy machine spoils."""
FULL = 1 << 19
"""Bytes of a message with the full loss of its receiver: in the lab 0.4 of 128 kB, and 0.25 of this."""
SHORT = 1 << 17
"""Bytes of a message with less loss."""
COPIED = 1 << 26
"""Bytes of a copy between a GPU and its host."""
LEAST_GAIN = 0.125
"""The least share of a message's time for the second half of its bytes, to measure their speed."""

Report = Callable[[str], None]
Found = TypeVar("Found")


def calibrate(
    group: dist.ProcessGroup | None,
    calls: Sequence[Collective],
    kernels: Kernels,
    by_holders: Kernels,
    report: Report,
    link: float | None = None,
    name: str = "measured",
) -> Calibration:
    """Measure on ``group``, all ranks together; every rank gets the same result.

    ``calls``: the schemes of one step, of two and of many for ``latency``, loaded on the group. ``kernels`` are those
    of the second one, ``by_holders`` those of any scheme by holders. ``link``: the nominal bandwidth of the links, in
    bytes a second; the efficiency is relative to it, or 1 without it.

    Raises SynchronisationError (``too-few-ranks``) for a group of one rank, which has no network.
    """
    probe = _Probe(group)
    if probe.size < 2:
        help = "run it under torchrun with a rank a device, or with --nproc 2 or more"
        raise SynchronisationError(Diagnostic("too-few-ranks", "one rank alone has no network to measure", help=help))
    report("latency, by empty calls")
    of = latency(probe.size, *(probe.slowest(partial(_empty, one), EMPTY_ROUNDS, min) for one in calls))
    report("bandwidth")
    size = probe.long()
    bandwidth, network_spread = _bandwidth(probe, size)
    buffer = _buffer(probe, size, bandwidth)
    report("fan-in")
    fan_in, fan_in_from = _fan_in(probe, size, bandwidth)
    times, spread = _kernel_times(probe, kernels, by_holders, report)
    of_kernels: dict[str, Any] = {**fit_kernels(times)}
    report("selections and codes")
    speeds = timed_compression(Watch().least)
    slowest = probe.agreed([-speed for speed in speeds.values()])
    compression = {name: -speed for name, speed in zip(speeds, slowest, strict=True)}
    said = max(link or bandwidth, bandwidth)
    network = said, bandwidth / said, of.step, of.message, fan_in, 0.0, buffer
    return Calibration(
        name, *network, of.call, **of_kernels, compression=compression, spread=max(spread, network_spread),
        fan_in_from=fan_in_from, copies=_copies(probe),
    )  # fmt: skip


def _copies(probe: _Probe) -> float | None:
    """Return the bytes a second of a copy from the slowest rank's GPU to pinned memory and back; None on CPUs."""
    if probe.device.type == "cpu":
        return None
    there = torch.zeros(COPIED, dtype=torch.uint8, device=probe.device)
    here = torch.empty_like(there, device="cpu", pin_memory=True)
    return 2 * COPIED / probe.slowest(lambda: there.copy_(here.copy_(there, True), True), ROUNDS, min)


def _kernel_times(
    probe: _Probe, kernels: Kernels, by_holders: Kernels, report: Report
) -> tuple[list[dict[str, float]], float]:
    """Return times of kernels on the slowest rank, the least of some attempts, and their least spread."""
    best, spread, what = list[dict[str, float]](), float("inf"), "kernels"
    for _ in range(ATTEMPTS):
        report(what)
        watch = Watch()
        found = timed(kernels, by_holders, watch)
        agreed = [dict(zip(each, probe.agreed(list(each.values())), strict=True)) for each in found]
        best = [{k: min(v, old[k]) for k, v in new.items()} for old, new in zip(best or agreed, agreed, strict=True)]
        (now,) = probe.agreed([watch.spread])
        spread, what = min(spread, now), f"kernels again, since the machine is busy: rounds differ by {now:.0%},"
        if now <= BUSY:
            break
    return best, spread


class _Probe:
    """Exchanges of plain messages; times are of the slowest rank, and the same on all of them."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        on_gpu = dist.get_backend(group) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self.next = 1
        self.others = list(range(1, self.size))

    def seconds(self, distances: Sequence[int], size: int) -> float:
        """Return the median seconds to send ``size`` bytes to each rank at ``distances``, and receive as much."""
        return self.median_and_least(distances, size)[0]

    def median_and_least(self, distances: Sequence[int], size: int) -> tuple[float, float]:
        """Return the median seconds of such an exchange, and those of the quickest round."""
        sent = torch.zeros(size, dtype=torch.uint8, device=self.device)
        received = [torch.empty_like(sent) for _ in distances]

        def exchange() -> None:
            operations = []
            for distance, buffer in zip(distances, received, strict=True):
                operations.append(dist.P2POp(dist.irecv, buffer, self._peer(-distance), self.group))
                operations.append(dist.P2POp(dist.isend, sent, self._peer(distance), self.group))
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        return self.slowest(exchange, ROUNDS, lambda times: (median(times), max(1e-9, min(times))))

    def seconds_on_the_way(self, size: int) -> float:
        """Return seconds of a message of ``size`` bytes around the ring: from when its sender may go on to its arrival.

        They are 0 on GPUs, where a sender does not wait for messages.
        """
        if self.device.type == "cuda":
            return 0.0
        sent, received, times = (
            torch.zeros(size, dtype=torch.uint8, device="cpu"),
            torch.empty(size, dtype=torch.uint8, device="cpu"),
            [],
        )
        for _ in range(LONG_ROUNDS):
            dist.barrier(self.group)
            coming = dist.irecv(received, self._peer(-1), self.group)
            going = dist.isend(sent, self._peer(1), self.group)
            assert coming and going
            going.wait()
            left = time.perf_counter()
            coming.wait()
            times.append(time.perf_counter() - left)
        return self.agreed([median(times)])[0]

    def slowest(self, run: Callable[[], object], rounds: int, of: Callable[[Sequence[float]], Found]) -> Found:
        """Return ``of`` the times of ``run``, after one to warm up."""
        times = []
        for _ in range(rounds + 1):
            dist.barrier(self.group)
            started = time.perf_counter()
            run()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            times.append(time.perf_counter() - started)
        return of(self.agreed(times)[1:])

    def agreed(self, times: list[float]) -> list[float]:
        """Return the greatest of all ranks of each time."""
        shared = torch.tensor(times, dtype=torch.float64, device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.group)
        found: list[float] = shared.tolist()
        return found

    def long(self) -> int:
        """Return a size that takes long enough around the ring."""
        size = FIRST
        while size < MOST and self.seconds([self.next], size) < LONG_ENOUGH:
            size *= 2
        return size

    def _peer(self, distance: int) -> int:
        rank = (self.rank + distance) % self.size
        return dist.get_global_rank(self.group, rank) if self.group is not None else rank


def _bandwidth(probe: _Probe, size: int) -> tuple[float, float]:
    """Return the bytes a second around the ring, by the second half of ``size`` bytes, and the spread of the rounds.

    Where something else was in the way of the first half alone, all of the bytes in all of the time.
    """
    for _ in range(ATTEMPTS):
        (half, low), (whole, least) = (probe.median_and_least([probe.next], each) for each in (size // 2, size))
        if whole - half > LEAST_GAIN * whole:
            return (size - size // 2) / (whole - half), max(half / low, whole / least) - 1
    return size / whole, max(half / low, whole / least) - 1


def _buffer(probe: _Probe, size: int, bandwidth: float) -> float:
    """Return the bytes in the buffers of a connection, by a longer message, from ``size`` bytes up."""
    while (found := probe.seconds_on_the_way(size) * bandwidth) > size / 2 and size < MOST:
        size *= 2
    return min(found, float(size))


def _fan_in(probe: _Probe, size: int, bandwidth: float) -> tuple[float, float]:
    """Return bytes that each message after the first costs its receiver, and bytes of all messages without a cost.

    The first is measured by messages long enough for the full cost, at most their share; the second by short ones, of
    whose further bytes that share is lost. The extra time of small messages to all over one, which is latency, is taken
    off.
    """
    if probe.size < 3:
        return 0.0, 0.0
    small = max(0.0, probe.seconds(probe.others, SMALL) - probe.seconds([probe.next], SMALL))

    def lost(each: int) -> float:
        alone = probe.seconds([probe.next], each * (probe.size - 1))
        together = probe.seconds(probe.others, each) - small
        found = max(0.0, (together - alone) * bandwidth / (probe.size - 2))
        return float(min(found, FAN_IN_SHARE * each))

    most = lost(max(FULL, size // (probe.size - 1)))
    short = lost(SHORT)
    spared = SHORT - short / FAN_IN_SHARE if short < 0.9 * most else 0.0
    return most, (probe.size - 1) * max(0.0, spared)


def _empty(collective: Collective) -> None:
    indices = torch.zeros((1, 0), dtype=torch.int64, device="cpu")
    collective.all_reduce(
        torch.sparse_coo_tensor(
            indices,
            torch.zeros((0, 64), dtype=torch.float32, device="cpu"),
            (1000, 64),
            check_invariants=False,
            device="cpu",
        )
    )
