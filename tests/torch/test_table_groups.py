"""Tables that share a call in DDP: it changes no bit, the log tells of it, and errors have names."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.runtime.jobs import bits

ROWS = {"a": (50, 4), "b": (70, 4), "wide": (40, 6), "c": (60, 4), "d": (30, 4)}
STEPS = 4
WAYS: dict[str, dict[str, Any]] = {
    "alone": {"join": 0}, "joined": {}, "limited": {"join": 89 * 4 * 4}, "auto": {},
    "announced": {"announce": "forward"},
}  # fmt: skip
"""Options of ``zenc.attach``; a limit holds no two of the tables together."""


class FiveTables(nn.Module):
    """Tables that are looked up in their order, one of another width between the others, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        for name, (rows, width) in ROWS.items():
            setattr(self, name, nn.EmbeddingBag(rows, width, mode="sum", sparse=True))
        self.head = nn.Linear(6, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = [(getattr(self, name)(ids % rows), width) for name, (rows, width) in ROWS.items()]
        out: torch.Tensor = self.head(sum(nn.functional.pad(hidden, (0, 6 - width)) for hidden, width in found))
        return out


def wrapped(group: dist.ProcessGroup) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(FiveTables(), process_group=group)


def loss(ddp: nn.Module, rank: int, step: int) -> torch.Tensor:
    drawn = torch.Generator().manual_seed(10 * step + rank)
    out: torch.Tensor = ddp(torch.randint(0, 1000, (5, 3), generator=drawn)).pow(2).sum()
    return out


def joined_and_alone(group: dist.ProcessGroup) -> dict[str, dict[str, Any]]:
    """Return by way the parameters after some steps, one of which is accumulated, and the calls of each step."""
    found = {}
    for way, options in WAYS.items():
        ddp = wrapped(group)
        handle = zenc.attach(ddp, "auto" if way == "auto" else "holders", deadline=30, **options)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        calls = []
        for step in range(STEPS):
            optimizer.zero_grad()
            if step == 2:
                with ddp.no_sync():
                    loss(ddp, group.rank(), step + 50).backward()
            loss(ddp, group.rank(), step).backward()
            calls.append(len(handle.stats))
            optimizer.step()
        found[way] = {"calls": calls, "bits": [bits(each.detach()) for each in ddp.parameters()]}
    return found


def told_of_joined(group: dist.ProcessGroup) -> dict[str, Any]:
    """Return the reports of a step whose tables are joined, and the names in one that a profiler samples."""
    ddp, profiler = wrapped(group), zenc.Profiler(every=2)
    handle = zenc.attach(ddp, "balanced", deadline=30, profiler=profiler)
    loss(ddp, group.rank(), 0).backward()
    sampled = sorted(handle.stats)
    loss(ddp, group.rank(), 1).backward()
    stats = handle.stats
    try:
        unknown = str(stats["head.weight"])
    except KeyError as error:
        unknown = type(error).__name__
    of = {"of c": stats["c.weight"], "of d": stats["d.weight"], "unknown": unknown}
    of["got c"], of["there"] = stats.get("c.weight"), ["d.weight" in stats, "head.weight" in stats]
    return {"names": sorted(stats), **of, "sampled": sampled, "profiles": sorted(profiler.profiles())}


def row_of_no_table(group: dist.ProcessGroup) -> tuple[str, str]:
    """Return the error of a step in which rank 0 has a row behind the end of a table."""
    ddp = wrapped(group)
    handle = zenc.attach(ddp, "balanced", deadline=10)
    if group.rank() == 0:
        ddp.module.c.weight.register_hook(beyond)
    return error_of_a_step(group, ddp, handle)


def error_of_a_step(group: dist.ProcessGroup, ddp: DistributedDataParallel, handle: Any) -> tuple[str, str]:
    """Return the id of the error of a step, and its message, or of its cause."""
    try:
        loss(ddp, group.rank(), 0).backward()
    except (RuntimeError, zenc.ZencError):
        assert isinstance(handle.state.error, zenc.ZencError)
    assert isinstance(handle.state.error, zenc.ZencError)
    (diagnostic,) = handle.state.error.diagnostics
    told = diagnostic.notes[0] if diagnostic.id == "group-broken" else diagnostic.message
    return diagnostic.id, told


def beyond(gradient: torch.Tensor) -> torch.Tensor:
    """Return ``gradient`` [rows, width] with a first row behind the table's end."""
    ids = gradient._indices().clone()
    ids[0, 0] = gradient.shape[0]
    return torch.sparse_coo_tensor(ids, gradient._values(), gradient.shape, check_invariants=False)


def files_on_the_way(group: Any) -> dict[str, list[str]]:
    """Return the files of zenc that a step of a model with one table enters on all threads, and those of a call."""
    seen: set[str] = set()
    package = str(Path(zenc.__file__).parent)

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            seen.add(frame.f_code.co_filename.removeprefix(package))

    def files_of(work: Callable[[], object]) -> list[str]:
        work()
        communicator.worker.run(lambda: None)  # after callbacks of the calls before
        seen.clear()
        sys.setprofile(note)
        work()
        sys.setprofile(None)
        communicator.worker.run(lambda: None)
        return sorted(seen - {"/runtime/transports/transport.py"})  # only long waits, on a busy machine, enter that

    threading.setprofile(note)  # of threads that are made from now on
    try:
        model = nn.Sequential(nn.EmbeddingBag(100, 8, sparse=True), nn.Linear(8, 1))
        ddp_model = DistributedDataParallel(model, process_group=group)
        handle = zenc.attach(ddp_model, "balanced", deadline=30)
        communicator, ids = handle.collective.communicator, torch.arange(10).reshape(1, 10) + dist.get_rank(group)
        table = torch.sparse_coo_tensor(ids, torch.ones(10, 8), (100, 8), check_invariants=False)

        def step() -> None:
            ddp_model(ids).sum().backward()

        for _ in range(3):
            step()
        return {"step": files_of(step), "call": files_of(partial(handle.collective.all_reduce, table))}
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]


JOBS = "tests.torch.test_table_groups:"


def test_joined_tables_train_bit_for_bit_as_in_calls_of_their_own(four) -> None:
    """Five tables take three calls, as one has another width; a step accumulates, and announced tables are alone."""
    results = four.run(JOBS + "joined_and_alone", size=3)
    assert all(result == results[0] for result in results)
    calls = {way: found["calls"] for way, found in results[0].items()}
    assert calls == {"alone": [5] * 4, "joined": [3] * 4, "limited": [5] * 4, "auto": [3] * 4, "announced": [5] * 4}
    assert len({tuple(found["bits"]) for way, found in results[0].items() if way != "auto"}) == 1


def test_what_is_told_of_a_joined_call(four) -> None:
    """Each name finds the one entry; a step that a profiler samples has a call for each table."""
    told = four.run(JOBS + "told_of_joined", size=2)[0]
    assert told["names"] == ["a.weight ... b.weight", "c.weight ... d.weight", "wide.weight"]
    assert told["of c"] == told["of d"] and set(told["of c"]["tables"]) == {"c.weight", "d.weight"}
    assert sum(told["of c"]["tables"].values()) == told["of c"]["units_out"] and told["unknown"] == "UnknownReport"
    assert told["got c"] == told["of c"] and told["there"] == [True, False]
    assert told["sampled"] == sorted(["a.weight", "b.weight", "c.weight", "d.weight", "wide.weight"])
    assert told["profiles"] == told["sampled"]


def test_an_error_in_a_joined_call_names_the_table_and_reaches_all(four) -> None:
    own, other = four.run(JOBS + "row_of_no_table", size=2)
    assert own == ("unit-out-of-range", "row 60 is not one of the 60 of 'c.weight'")
    assert other[0] in ("peer-lost", "group-broken")
