"""Timeline of one training step on a GPU: the kernels of the model, of DDP's messages, and of zenc's calls.

    torchrun --nproc-per-node 2 -m benchmarks.gpu_timeline [--batch 8192]

The model is a small DLRM: a bottom of dense layers, tables with sparse gradients, and a top. Its backward pass has the
tables' gradients before the bottom's, so that their sums can go on beside it. ``beside`` is the share of the time of
zenc's kernels and messages in which kernels of the model, or DDP's messages, run as well. Steps are timed with zenc and
without any message (``zenc.noop_hook``), medians. Ranks share the GPU where NCCL lets them: 2.30.3 or later, with
NCCL_MULTI_RANK_GPU_ENABLE=1. It prints one JSON object, and "not measured" without a GPU.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.gpu_call import MS
from benchmarks.pages import new_parser, rounded
from tests.gpu.train import open_group

TABLES, ROWS, WIDTH, FEATURES, HIDDEN = 4, 200_000, 128, 1024, 2048
COLUMNS = 100
"""Characters of a line of the timeline."""
LANES = ("model", "DDP", "zenc")
Span = tuple[float, float]
"""The beginning and the end of a kernel, in microseconds."""


class Dlrm(nn.Module):
    """Dense features and ids of ``TABLES`` tables, to one number."""

    def __init__(self) -> None:
        super().__init__()
        widths = (FEATURES, HIDDEN, HIDDEN, HIDDEN, WIDTH)
        layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.bottom = nn.Sequential(*layers)
        self.tables = nn.ModuleList(nn.Embedding(ROWS, WIDTH, sparse=True) for _ in range(TABLES))
        self.top = nn.Sequential(nn.Linear(WIDTH * (TABLES + 1), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        below = self.bottom(dense)
        rows = [table(column) for table, column in zip(self.tables, ids.unbind(1), strict=True)]
        scores: torch.Tensor = self.top(torch.cat([below, *rows], dim=1))
        return scores


def stepping(device: torch.device, batch: int, scheme: str | None) -> Callable[[], None]:
    """Return a function that makes a step, of DDP with ``scheme``, or without messages (None)."""
    torch.manual_seed(dist.get_rank())
    model = Dlrm().to(device)
    ddp = DistributedDataParallel(model, device_ids=[device.index])
    if scheme is None:
        ddp.register_comm_hook(None, zenc.noop_hook)
    else:
        zenc.attach(ddp, scheme)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dense = torch.randn(batch, FEATURES, device=device)
    ids = torch.randint(0, ROWS, (batch, TABLES), device=device)

    def step() -> None:
        optimizer.zero_grad()
        ddp(dense, ids).square().mean().backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None], repeat: int) -> float:
    took = []
    for _ in range(repeat + 3):
        torch.cuda.synchronize()
        started = time.perf_counter()
        step()
        torch.cuda.synchronize()
        took.append(MS * (time.perf_counter() - started))
    return statistics.median(took[3:])


def spans(step: Callable[[], None]) -> dict[str, list[Span]]:
    """Return by lane when each kernel of one step ran; all work on a stream with kernels of zenc is zenc's."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    ran = [event for event in profiler.profiler.kineto_results.events() if event.device_type().name == "CUDA"]
    own = {event.device_resource_id() for event in ran if event.name().startswith("zenc_")}
    found: dict[str, list[Span]] = {lane: [] for lane in LANES}
    for event in ran:
        lane = "zenc" if event.device_resource_id() in own else "DDP" if "nccl" in event.name() else "model"
        found[lane].append((event.start_ns() / 1e3, (event.start_ns() + event.duration_ns()) / 1e3))
    begin = min(first for lane in found.values() for first, _ in lane)
    return {lane: sorted((first - begin, end - begin) for first, end in each) for lane, each in found.items()}


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return ``spans`` as ranges that do not overlap, ascending."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found


def beside(own: Sequence[Span], others: Sequence[Span]) -> float:
    """Return the share of the time of ``own`` in which ``others`` run, too."""
    mine, rest = joined(own), joined(others)
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in mine for b in rest)
    return both / sum(end - first for first, end in mine)


def lines(found: dict[str, list[Span]], columns: int = COLUMNS) -> list[str]:
    """Return the timeline: a line for each lane, where # is a column in which something ran."""
    end = max(last for each in found.values() for _, last in each)
    drawn = []
    for lane, each in found.items():
        busy = [any(a < (i + 1) * end / columns and b > i * end / columns for a, b in each) for i in range(columns)]
        drawn.append(f"{lane:6}{''.join('#' if column else '.' for column in busy)}")
    return [*drawn, f"{'':6}0{f'{end / MS:.1f} ms':>{columns - 1}}"]


def results(device: torch.device, batch: int, repeat: int) -> dict[str, Any]:
    """Return what a step takes, and the timeline of one."""
    silent = timed(stepping(device, batch, None), repeat)
    step = stepping(device, batch, "balanced")
    summing = timed(step, repeat)
    found = spans(step)
    return {
        "machine": f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}",
        "ranks": dist.get_world_size(),
        "batch": batch,
        "step_ms": summing,
        "silent_step_ms": silent,
        "zenc_ms": sum(end - first for first, end in joined(found["zenc"])) / MS,
        "beside": beside(found["zenc"], found["model"] + found["DDP"]),
        "timeline": lines(found),
    }


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--batch", type=int, default=8192, help="examples of a rank's batch")
    parser.add_argument("--repeat", type=int, default=10, help="steps of which the median counts")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print(json.dumps("not measured"))
        return 0
    found = results(open_group("nccl", "cuda:0"), given.batch, given.repeat)
    if dist.get_rank() == 0:
        print(json.dumps(rounded(found)))
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
