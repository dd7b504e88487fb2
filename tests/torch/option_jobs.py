"""Jobs of ranks in the tests of options that differ between ranks; each takes the group first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.torch.jobs import ROWS, WIDTH, batch, wrapped

DEADLINE = 20.0


def _attached(group: dist.ProcessGroup, scheme: str = "holders", model: str = "", **options: Any) -> object:
    sparse = model != "dense"
    tables = [nn.EmbeddingBag(100, 4, sparse=sparse, mode="sum") for _ in range(2)]
    named = {"renamed": {"0": tables[0], "other": tables[1]}}.get(model, {"0": tables[0], "1": tables[1]})
    unused = bool(options.pop("find_unused_parameters", False))
    ddp = DistributedDataParallel(nn.ModuleDict(named), process_group=group, find_unused_parameters=unused)
    if options.pop("hooked", False):
        ddp.register_comm_hook(None, zenc.noop_hook)
    if "every" in options:
        options["profiler"] = zenc.Profiler(options.pop("every"))
    if options.pop("scaled", False):
        options["scaler"] = torch.amp.GradScaler("cpu")
    return zenc.attach(ddp, scheme, **{"deadline": DEADLINE, **options})


def _loaded(group: dist.ProcessGroup, scheme: str = "balanced", **options: Any) -> object:
    return zenc.load(scheme, group, **{"deadline": DEADLINE, **options})


def _sharded(group: dist.ProcessGroup, rows: int = 50, order: str = "ab", kind: str = "SparseAdam", **options: Any):
    shapes = {"a": (rows, 4), "b": (60, 2)}
    tables = [nn.Parameter(torch.zeros(shapes[name])) for name in order]
    options = {"deadline": DEADLINE, "lr": 0.1, **options}
    if "given" in options:
        collective = zenc.load("balanced", group, deadline=DEADLINE)
        options |= {"scheme": collective} if options.pop("given") else {}
    return zenc.ShardedTableOptimizer(tables, getattr(torch.optim, kind), group=group, **options)


def _replicas(group: dist.ProcessGroup, scheme: str = "balanced", deadline: float = DEADLINE) -> None:
    zenc.ReplicaAverage(scheme, group, deadline)([torch.ones(4, 2)])


def _fsdp(group: dist.ProcessGroup, width: int = 1, scheme: str | None = None) -> None:
    comm = zenc.FsdpReduceScatter(scheme, width, DEADLINE)
    comm(torch.empty(8), torch.ones(8 * group.size()), group, "sum")


def _fsdp_hook(group: dist.ProcessGroup, scheme: str = "balanced", **options: Any) -> object:
    return zenc.FsdpAllReduceHook(scheme, group, deadline=DEADLINE, **options)


def _averager(group: dist.ProcessGroup, what: str = "ds_sync", **options: Any) -> object:
    return zenc.load_averager(what, group, **{"deadline": DEADLINE, **options})


def _published(group: dist.ProcessGroup, root: int = 0, deadline: float = DEADLINE) -> None:
    new = torch.ones(4) if group.rank() == root else None
    zenc.broadcast_update(torch.zeros(4), new, root=root, group=group, deadline=deadline)


def _state(group: dist.ProcessGroup, tables: int = 0) -> object:
    parameters = [nn.Parameter(torch.zeros(8, 2)) for _ in range(2)]
    names = {each: f"table {number}" for number, each in enumerate(parameters)}
    return zenc.ZencState(zenc.load("balanced", group, deadline=DEADLINE), group, names, dense=parameters[:tables])


MADE = {
    "attach": _attached,
    "load": _loaded,
    "sharded": _sharded,
    "replicas": _replicas,
    "fsdp": _fsdp,
    "fsdp hook": _fsdp_hook,
    "averager": _averager,
    "publish": _published,
    "state": _state,
}


def found(group: dist.ProcessGroup, made: str, options: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Return the class, id and message of the error of ``made`` with the ``options`` of this rank, or nothing.

    A sum then shows that the group is whole.
    """
    raised = "", "", ""
    try:
        MADE[made](group, **options[group.rank()])
    except zenc.ZencError as error:
        raised = type(error).__name__, error.diagnostics[0].id, error.diagnostics[0].message
    except (TypeError, ValueError) as error:
        raised = type(error).__name__, "", str(error)
    assert zenc.load("balanced", group, deadline=DEADLINE).all_reduce(torch.ones(3)).tolist() == [group.size()] * 3
    return raised


def profiled(group: dist.ProcessGroup) -> list[list[float]]:
    """Return the weights after three steps, with a profiler that had counted a call on rank 0 alone."""
    profiler, ddp = zenc.Profiler(every=2), wrapped(group)
    if group.rank() == 0:
        profiler.marks("words.weight", torch.ones(ROWS, WIDTH))
    zenc.attach(ddp, "balanced", profiler=profiler, deadline=DEADLINE)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    for step in range(3):
        optimizer.zero_grad()
        ddp(batch(group.rank(), step))["out"].pow(2).sum().backward()
        optimizer.step()
    return [parameter.flatten().tolist() for parameter in ddp.parameters()]


def advice(group: dist.ProcessGroup) -> dict[str, str]:
    """Return the errors for mistakes in ``attach``, and for names that a handle does not know, by what was given."""
    model = DistributedDataParallel(
        nn.ModuleDict({"0": nn.Linear(4, 2), "1": nn.Linear(2, 1)}), process_group=group, bucket_cap_mb=1
    )
    given: dict[str, Callable[[], object]] = {
        "compiled": lambda: zenc.attach(torch.compile(model, backend="eager"), "balanced", deadline=DEADLINE),
        "seven": lambda: zenc.attach(model, 7, deadline=DEADLINE),
        "no module": lambda: zenc.attach(7, "balanced", deadline=DEADLINE),
        "load seven": lambda: zenc.load(7, group, deadline=DEADLINE),
        "small": lambda: zenc.attach(model, "topk_a2a", dense=True, deadline=DEADLINE),
        "weight": lambda: zenc.attach(model, "balanced", dense=["weight"], deadline=DEADLINE),
        "module": lambda: zenc.attach(model, "balanced", dense=["module.1.bias"], deadline=DEADLINE),
    }
    found = {}
    for name, call in given.items():
        try:
            call()
        except zenc.ZencError as error:
            found[name] = f"{error.diagnostics[0].id}: {error.diagnostics[0].help}"
    handle = zenc.attach(model, "balanced", dense=True, deadline=DEADLINE)
    model.module["1"](model.module["0"](torch.ones(3, 4))).sum().backward()
    try:
        handle.stats["weight"]
    except KeyError as error:
        found["stats"] = f"{type(error).__name__} {error}"
    assert "weight" not in handle.stats and handle.stats.get("weight") is None
    return found
