"""Jobs of ranks in the tests of the sharded optimizer; each takes the group first."""

import time
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.support.generations import Join, dies
from zenc.errors import SynchronisationError
from zenc.runtime.group import host_collectives
from zenc.runtime.group.communicator import Communicator
from zenc.tables import optimizer as optimizers
from zenc.tables.owned_rows import OwnedRows, of_rows

ROWS, WIDTH = 203, 5
OPTIMIZERS = {
    "sparse_adam": (torch.optim.SparseAdam, {"lr": 0.05}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    "lazy_adamw": (zenc.LazyAdamW, {"lr": 0.05, "weight_decay": 0.1}),
    "rowwise_adagrad": (zenc.RowwiseAdagrad, {"lr": 0.1}),
}


def gradient(step: int, rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a sparse gradient of some rows, as an embedding gives it; of none every seventh time."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    count = 0 if (step + rank) % 7 == 0 else 30
    ids = (torch.rand(count, generator=generator).square() * shape[0]).long()
    values = torch.randn(count, *shape[1:], generator=generator).to(dtype)
    return torch.sparse_coo_tensor(ids[None], values, shape, check_invariants=False)


def table(rank: int, width: int = WIDTH, dtype: torch.dtype = torch.float32) -> torch.nn.Parameter:
    """Return a table of other values on each rank: optimizers begin with those of rank 0."""
    return torch.nn.Parameter(torch.randn(ROWS, width, generator=torch.Generator().manual_seed(rank)).to(dtype))


def trained(group: dist.ProcessGroup, name: str, scheme: str, steps: int, width: int, dtype: str) -> dict[str, Any]:
    """Return the table under the sharded optimizer and under the plain one, and the sizes of states."""
    rank, kind = group.rank(), getattr(torch, dtype)
    make, options = OPTIMIZERS[name]
    collective = zenc.load(scheme, group)
    ours, plain = table(rank, width, kind), table(0, width, kind)
    with torch.inference_mode():  # it is trained outside
        sharded = zenc.ShardedTableOptimizer([ours], make, collective, **options)
    reference = make([plain], **options)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.99) for each in (sharded, reference)]
    for step in range(steps):
        own = gradient(step, rank, plain.shape, kind)
        ours.grad, plain.grad = own, collective.all_reduce(own, "mean")
        for optimizer, schedule in zip((sharded, reference), schedules, strict=True):
            optimizer.step()
            schedule.step()
    few = torch.nn.Parameter(torch.ones(1, width, dtype=kind))  # a row, which most ranks don't own
    few.grad = torch.full_like(few, torch.nan).to_sparse(1)
    of_few = zenc.ShardedTableOptimizer([few], make, collective, **options)
    assert of_few.clip_grad_norm_(1.0, [plain]).isnan() and plain.grad.values().isnan().all(), "as by torch's own"
    state, (whole, _) = sharded.state_dict(), [each.state_dict(whole=True) for each in (sharded, of_few)]
    again = make([plain], **options)
    again.load_state_dict(whole)
    known, loaded = reference.state_dict()["state"][0], again.state_dict()["state"][0]
    return {
        "ours": ours.detach(),
        "plain": plain.detach(),
        "rows": state["rows"][0],
        "held": {key: len(each) for key, each in state["state"][0].items() if torch.is_tensor(each) and each.dim()},
        "same_state": all(torch.equal(torch.as_tensor(loaded[key]), torch.as_tensor(known[key])) for key in known),
        "lr": sharded.param_groups[0]["lr"] == reference.param_groups[0]["lr"],
    }


def on_demand(group: dist.ProcessGroup, scheme: str, dtype: str) -> dict[str, bool]:
    """Return whether tables whose rows are fetched equal plain ones, where and when."""
    rank, kind, shapes = group.rank(), getattr(torch, dtype), ((ROWS, WIDTH), (50, 3))
    collective = zenc.load(scheme, group)
    ours, plain = ([torch.nn.Parameter(torch.ones(shape, dtype=kind)) for shape in shapes] for _ in range(2))
    sharded = zenc.ShardedTableOptimizer(ours, zenc.LazyAdamW, collective, on_demand=True, init_sync=False)
    reference = zenc.LazyAdamW(plain)
    before, fetched = [], []
    for step in range(12):
        own = [gradient(step, rank, shape, kind) for shape in shapes]
        ids = [each._indices()[0] for each in own]
        before += [torch.equal(a[i], b[i]) for a, b, i in zip(ours, plain, ids, strict=True)]
        sharded.fetch(*ids)
        fetched += [torch.equal(a[i], b[i]) for a, b, i in zip(ours, plain, ids, strict=True)]
        for a, b, each in zip(ours, plain, own, strict=True):
            a.grad, b.grad = each, collective.all_reduce(each, "mean")
        sharded.step()
        reference.step()
    sharded.fetch()
    all_rows = [torch.equal(a, b) for a, b in zip(ours, plain, strict=True)]
    return {"before": all(before), "fetched": all(fetched), "all rows": all(all_rows)}


def bytes_that_come(group: dist.ProcessGroup) -> list[int]:
    """Return bytes received in the two exchanges of four fetches; a step of 60 rows precedes the second."""
    parameter = table(0)
    optimizer = zenc.ShardedTableOptimizer([parameter], torch.optim.Adagrad, group=group, on_demand=True)
    ids, came, exchange = torch.arange(100), list[int](), host_collectives.exchange

    def counted(communicator: Communicator, pieces: list[torch.Tensor]) -> list[torch.Tensor]:
        found = exchange(communicator, pieces)
        came.append(len(found[1 - group.rank()]))
        return found

    with mock.patch.object(optimizers, "exchange", counted):
        optimizer.fetch(ids)
        parameter.grad = of_rows(ids[:60], torch.ones(60, WIDTH), parameter.shape)
        optimizer.step()
        optimizer.fetch(torch.cat([ids, ids]))
        optimizer.fetch(ids)
        optimizer._fetched[0].current.zero_()
        optimizer.fetch(ids)
    return came


def one_does_not_fetch(group: dist.ProcessGroup, deadline: float) -> tuple[str, float]:
    """Return the id of rank 0's error, and its seconds."""
    optimizer = zenc.ShardedTableOptimizer(
        [table(0)], torch.optim.Adagrad, group=group, on_demand=True, deadline=deadline
    )
    started = time.monotonic()
    if group.rank() == 0:
        return _id_of(lambda: optimizer.fetch(torch.arange(3))), time.monotonic() - started
    time.sleep(2 * deadline)
    return "", 0.0


def saved(group: dist.ProcessGroup, name: str) -> dict[str, Any]:
    """Return the table and the states after three steps."""
    make, options = OPTIMIZERS[name]
    parameter = table(group.rank())
    optimizer = zenc.ShardedTableOptimizer([parameter], make, group=group, op="sum", **options)
    _go_on(optimizer, parameter, range(3))
    optimizer.register_state_dict_post_hook(lambda _, state: {"of": state})
    return {"table": parameter.detach(), "own": optimizer.state_dict(), "whole": optimizer.state_dict(whole=True)}


def _go_on(optimizer: Any, parameter: torch.nn.Parameter, steps: range) -> None:
    """Make steps of a gradient that is the same whatever the number of ranks: rank 0 alone has one."""
    for step in steps:
        parameter.grad = gradient(step, 0, parameter.shape) if optimizer.collective.rank == 0 else None
        optimizer.step()


def restored(group: dist.ProcessGroup, name: str, start: torch.Tensor, states: list[Any]) -> list[torch.Tensor]:
    """Return the table after three more steps from each of ``states``."""
    make, options = OPTIMIZERS[name]
    found, loaded = [], []

    def unwrapped(_: object, given: Any) -> Any:
        return given["of"] if isinstance(given, dict) else [each["of"] for each in given]

    for state in (_flattened(each) for each in states):
        parameter = torch.nn.Parameter(start.clone())
        optimizer = zenc.ShardedTableOptimizer([parameter], make, group=group, op="sum", **{**options, "lr": 99.0})
        optimizer.register_load_state_dict_pre_hook(unwrapped)
        optimizer.register_load_state_dict_post_hook(loaded.append)
        with torch.inference_mode():
            optimizer.load_state_dict(state)
        assert loaded.pop() is optimizer
        _go_on(optimizer, parameter, range(3, 6))
        found.append(parameter.detach())
    return found


def _flattened(state: Any) -> Any:
    """Return ``state`` as it comes out of torch.distributed.checkpoint."""
    return unflatten_state_dict(*flatten_state_dict({"": state}))[""]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.EmbeddingBag(ROWS, WIDTH, sparse=True)
        self.out = torch.nn.Linear(WIDTH, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.table(ids))


def beside_ddp(group: dist.ProcessGroup, scheme: str) -> dict[str, Any]:
    """Run a clipped training with DDP for all but the table, and one with DDP, zenc.attach and plain optimizers."""
    rank, size = group.rank(), group.size()
    results, norms = [], []
    for sharded in (True, False):
        torch.manual_seed(0)
        model = Model()
        if sharded:
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["table.weight"])
        ddp = DistributedDataParallel(model, process_group=group)
        if sharded:
            model.out.sparse = True  # an attribute of anybody's: gradients are sparse of embeddings alone
            assert zenc.attach(ddp, scheme, dense=["out.weight"]).parameters == ("out.weight",), "DDP has no table"
            tables = zenc.ShardedTableOptimizer(
                [model.table.weight], torch.optim.SparseAdam, scheme, group=group, lr=0.1
            )
        else:
            zenc.attach(ddp, scheme)
            tables = torch.optim.SparseAdam([model.table.weight], lr=0.1)
        others = torch.optim.SGD(model.out.parameters(), lr=0.1)
        for step in range(4):
            ids = torch.randint(0, ROWS, (8, 4), generator=torch.Generator().manual_seed(step * size + rank))
            tables.zero_grad()
            others.zero_grad()
            ddp(ids).square().sum().backward()
            if sharded:
                norms.append(float(tables.clip_grad_norm_(0.5, model.out.parameters())))
            else:
                norms.append(float(zenc.clip_grad_norm_(model.parameters(), 0.5)))
            tables.step()
            others.step()
        results.append([each.detach().clone() for each in model.parameters()])
    return {"sharded": results[0], "plain": results[1], "norms": (norms[:4], norms[4:])}


def refusals(group: dist.ProcessGroup) -> dict[str, str]:
    """Return the ids of errors on one rank alone."""
    parameter = table(0)

    def made(make: Any = torch.optim.SparseAdam, scheme: Any = "balanced", **options: Any) -> Any:
        return zenc.ShardedTableOptimizer([parameter], make, scheme, group=group, **options)

    ours, lazy = made(), zenc.LazyAdamW([parameter])
    whole, own = ours.state_dict(whole=True), ours.state_dict()

    def dense() -> None:
        parameter.grad = torch.ones_like(parameter)
        ours.step()

    def unfetched() -> None:
        parameter.grad = gradient(1, 0, parameter.shape)
        wanting = made(on_demand=True)
        wanting._fetched[0].current.zero_()
        wanting.step()

    few = {**own, "rows": {0: own["rows"][0][1:]}, "state": {0: {k: _short(v) for k, v in own["state"][0].items()}}}
    calls = {
        "adam": lambda: made(torch.optim.Adam),
        "group": lambda: ours.add_param_group({"params": [table(1)]}),
        "dense": dense,
        "alone": lazy.step,
        "unfetched": unfetched,
        "no such row": lambda: made(on_demand=True).fetch(torch.tensor([ROWS])),
        "two tables": lambda: ours.fetch(torch.tensor([1]), torch.tensor([1])),
        "holders": lambda: made(scheme="holders"),
        "elements": lambda: made(scheme="omnireduce"),
        "no state": lambda: ours.load_state_dict({}),
        "other groups": lambda: ours.load_state_dict({**whole, "param_groups": []}),
        "too few rows": lambda: ours.load_state_dict(few),
        "other rows": lambda: ours.load_state_dict({**own, "rows": {0: own["rows"][0] + 1}}),
        "other states": lambda: ours.load_state_dict({**whole, "state": {0: {"step": 1, "sum": torch.ones(ROWS)}}}),
    }
    return {name: _id_of(call) for name, call in calls.items()}


def _short(state: Any) -> Any:
    return state[1:] if torch.is_tensor(state) and state.dim() else state


def _id_of(call: Any) -> str:
    try:
        call()
    except zenc.ZencError as error:
        return error.diagnostics[0].id
    return ""


def over_a_death(member: int, join: Join, groups: list[list[int]], name: str, dying: int, lost: str) -> dict[str, Any]:
    """Return the table and the states of each group's steps, with those of the plain optimizer where this rank lived
    on.

    In the last step of the first group pulled rows do not get into the table of its first rank; then ``dying`` dies.
    """
    make, options = OPTIMIZERS[name]
    ours, plain = table(member), table(groups[0][0])
    reference, sharded, found = make([plain], **options), None, dict[str, Any](refused=[], states=[])
    for number, members in enumerate(groups):
        if member not in members:
            continue
        join(number)
        if sharded is None and number == 0:
            sharded = zenc.ShardedTableOptimizer([ours], make, deadline=20, **options)
        elif sharded is None:
            found["refused"].append(_id_of(lambda: zenc.ShardedTableOptimizer([ours], make, deadline=20, **options)))
            sharded = zenc.ShardedTableOptimizer([ours], make, deadline=20, **{**options, "lr": 99.0})
        else:
            found["refused"].append(_id_of(sharded.rebuild))
            sharded.rebuild(lost=found["states"][-1][1] if lost == "checkpoint" else lost)
        found["states"].append((ours.detach().clone(), sharded.state_dict(whole=True)))
        for step in range(2):
            ours.grad = gradient(10 * number + step, member, ours.shape)
            plain.grad = sharded.collective.all_reduce(ours.grad, "mean")
            sharded.step()
            reference.step()
        found["states"].append((ours.detach().clone(), sharded.state_dict(whole=True)))
        if number + 1 < len(groups):
            ours.grad = gradient(10 * number + 2, member, ours.shape)
            _step_whose_end_fails(sharded, member == members[0])
            if member == dying:
                dies()
    return {**found, "plain": plain.detach(), "expected": reference.state_dict()["state"][0]}


def _step_whose_end_fails(optimizer: Any, here: bool) -> None:
    if not here:
        return optimizer.step()
    with mock.patch.object(OwnedRows, "write", side_effect=SynchronisationError([])):
        try:
            optimizer.step()
        except SynchronisationError:
            return
    raise AssertionError("the step ended")
