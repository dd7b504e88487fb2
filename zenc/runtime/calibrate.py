"""What the cluster and the processors of a process group take: the numbers of ``zenc.cost.calibration``, measured.

    step, message   a small message to one peer, and to all of them at once
    bandwidth       messages of two sizes around a ring; the difference of the times is that of the bytes
    fan_in          as many bytes in messages to all peers at once: what that takes beyond the ring
    call            an empty call of a scheme, less its steps
    pack, merge,    this rank's own kernels, on rows and on single elements: seconds a unit and bytes a second. All
    expand          ranks run them at once, so processors that they share are in the numbers

Each time is the median of several rounds, of the slowest rank.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.distributed as dist

from zenc.cost.calibration import FAN_IN_SHARE, Calibration, Kernel
from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.collective import Collective
from zenc.runtime.layout import contribution_of, layout_of
from zenc.runtime.segments import Segment, Workshop
from zenc.scheme.model import Format, Unit
from zenc.targets.cpu.kernels import Kernels

SMALL = 8
FIRST, LONG_ENOUGH, MOST = 1 << 16, 0.05, 1 << 28
"""Bytes of the first message around the ring, which doubles until it takes so many seconds, or has so many bytes."""
ROUNDS, KERNEL_ROUNDS = 9, 7
SHAPES = ((50_000, 64, 1000), (2_000_000, 1, 50_000))
"""Units, width, and units that a rank holds: rows, and single elements."""
PARTS = 4
FASTEST = 1e-13
"""Seconds a byte: faster than any memory, where the clock says less."""

Report = Callable[[str], None]


def calibrate(
    group: dist.ProcessGroup | None,
    collective: Collective,
    kernels: Kernels,
    report: Report,
    link: float | None = None,
    name: str = "measured",
) -> Calibration:
    """Measure on ``group``, all ranks together; every rank gets the same result.

    ``collective`` is a scheme of two steps that is loaded on the group, ``kernels`` are its kernels. ``link``: what the
    links are said to carry, in bytes a second; the efficiency is to that, or else 1.

    Raises SynchronisationError (``too-few-ranks``) for a group of one rank, which has no network.
    """
    probe = _Probe(group)
    if probe.size < 2:
        help = "run it under torchrun with a rank a device, or with --nproc 2 or more"
        raise SynchronisationError(Diagnostic("too-few-ranks", "one rank alone has no network to measure", help=help))
    report("latency of a step and of a message")
    one, all_ = probe.seconds([probe.next], SMALL), probe.seconds(probe.others, SMALL)
    message = min(one, max(0.0, (all_ - one) / (probe.size - 2))) if probe.size > 2 else 0.0
    step = one - message
    report("bandwidth")
    size, took = probe.long()
    bandwidth = (size - size // 2) / max(1e-9, took - probe.seconds([probe.next], size // 2))
    report("fan-in")
    fan_in = _fan_in(probe, size, took, bandwidth, message)
    report("an empty call")
    call = max(0.0, probe.slowest(lambda: _empty(collective), ROUNDS) - 2 * (step + (probe.size - 1) * message))
    report("kernels")
    measured = [probe.agreed(list(_kernels(kernels, *shape))) for shape in SHAPES]
    pack, merge, expand = (_solved(*(found[i] for found in measured)) for i in range(3))
    said = max(link or bandwidth, bandwidth)
    network = said, bandwidth / said, step, message, fan_in, 0.0
    return Calibration(name, *network, call, pack, merge, expand)


class _Probe:
    """Exchanges of plain messages; times are of the slowest rank, and the same on all of them."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        on_gpu = dist.get_backend(group) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self.next = 1
        self.others = list(range(1, self.size))

    def seconds(self, distances: Sequence[int], size: int) -> float:
        """To the ranks at ``distances``, ``size`` bytes each, and as much from those at the other side."""
        sent = torch.zeros(size, dtype=torch.uint8, device=self.device)
        received = [torch.empty_like(sent) for _ in distances]

        def exchange() -> None:
            operations = []
            for distance, buffer in zip(distances, received, strict=True):
                to, source = (self.rank + distance) % self.size, (self.rank - distance) % self.size
                operations.append(dist.P2POp(dist.irecv, buffer, self._global(source), self.group))
                operations.append(dist.P2POp(dist.isend, sent, self._global(to), self.group))
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        return self.slowest(exchange, ROUNDS)

    def slowest(self, run: Callable[[], object], rounds: int) -> float:
        """The median time of ``run``, after one to warm up."""
        times = []
        for _ in range(rounds + 1):
            dist.barrier(self.group)
            started = time.perf_counter()
            run()
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            times.append(time.perf_counter() - started)
        return median(self.agreed(times)[1:])

    def agreed(self, times: list[float]) -> list[float]:
        """The greatest of all ranks of each time."""
        shared = torch.tensor(times, dtype=torch.float64, device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.group)
        found: list[float] = shared.tolist()
        return found

    def long(self) -> tuple[int, float]:
        """A size that takes long enough around the ring, and how long."""
        size = FIRST
        while True:
            took = self.seconds([self.next], size)
            if took >= LONG_ENOUGH or size >= MOST:
                return size, took
            size *= 2

    def _global(self, rank: int) -> int:
        return dist.get_global_rank(self.group, rank) if self.group is not None else rank


def _fan_in(probe: _Probe, size: int, took: float, bandwidth: float, message: float) -> float:
    """Bytes that each message after the first loses its receiver; no more than its share of a message."""
    if probe.size < 3:
        return 0.0
    each = max(1, size // (probe.size - 1))
    together = probe.seconds(probe.others, each) - (probe.size - 2) * message
    lost = max(0.0, (together - took) * bandwidth / (probe.size - 2))
    return float(min(lost, FAN_IN_SHARE * each))


def _empty(collective: Collective) -> None:
    indices = torch.zeros((1, 0), dtype=torch.int64)
    collective.all_reduce(torch.sparse_coo_tensor(indices, torch.zeros((0, 64)), (1000, 64), check_invariants=False))


def _kernels(kernels: Kernels, units: int, width: int, held: int) -> tuple[float, float, float]:
    """Seconds of pack, merge and expansion, of ``held`` units each."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randperm(units, generator=generator)[:held].sort().values
    shape = (units, width) if width > 1 else (units,)
    values = torch.ones((held, width) if width > 1 else held)
    tensor = torch.sparse_coo_tensor(ids[None], values, shape, is_coalesced=True, check_invariants=False)
    layout = layout_of(tensor, Unit.AUTO)
    workshop = Workshop(kernels, kernels.geometry(layout.units, layout.width, PARTS), layout)
    own = workshop.pack(contribution_of(tensor, layout), 1, 0, Format.AUTO)

    def merged() -> list[Segment]:
        return [workshop.merge([one, one.seen_from(1)], 0, Format.AUTO) for one in own]

    return (
        _least(lambda: workshop.pack(contribution_of(tensor, layout), 1, 0, Format.AUTO)),
        _least(merged) / 2,
        _least(lambda: workshop.expand_units(own)),
    )


def _least(run: Callable[[], object]) -> float:
    """The least time of several, after one to warm up."""
    times = []
    for _ in range(KERNEL_ROUNDS + 1):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def _solved(rows: float, elements: float) -> Kernel:
    """From the times of both shapes, held (unit + 4 width / speed), to seconds a unit and bytes a second."""
    (_, width, held), (_, _, single) = SHAPES
    byte = max(FASTEST, (rows / held - elements / single) / (4 * (width - 1)))
    return Kernel(max(0.0, elements / single - 4 * byte), 1 / byte)
