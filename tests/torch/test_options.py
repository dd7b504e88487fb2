"""Options that change what a rank sends: a difference between ranks is one error on all of them, at the start."""

from collections.abc import Callable
from typing import Any

import pytest
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
    "attach": _attached, "load": _loaded, "sharded": _sharded, "replicas": _replicas, "fsdp": _fsdp,
    "fsdp hook": _fsdp_hook, "averager": _averager, "publish": _published, "state": _state,
}  # fmt: skip


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
    double = DistributedDataParallel(nn.Linear(64, 64).double(), process_group=group)
    given: dict[str, Callable[[], object]] = {
        "compiled": lambda: zenc.attach(torch.compile(model, backend="eager"), "balanced", deadline=DEADLINE),
        "seven": lambda: zenc.attach(model, 7, deadline=DEADLINE),
        "no module": lambda: zenc.attach(7, "balanced", deadline=DEADLINE),
        "load seven": lambda: zenc.load(7, group, deadline=DEADLINE),
        "small": lambda: zenc.attach(model, "topk_a2a", dense=True, deadline=DEADLINE),
        "double": lambda: zenc.attach(double, "topk_a2a", dense=True, deadline=DEADLINE),
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


FOUND = "tests.torch.test_options:found"
STRATEGY = "schemes/strategies/automatic.zen"
DENSE = {"model": "dense"}
DIFFERENT: list[tuple[str, str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("attach", "dense", DENSE | {"dense": ["0.weight"]}, DENSE | {"dense": ["1.weight"]}, ["0.weight", "1.weight"]),
    ("attach", "dense", DENSE | {"dense": True}, DENSE, ["True", "False"]),
    ("attach", "exclude", DENSE | {"dense": True, "exclude": ["1.*"]}, DENSE | {"dense": True}, ["['1.*']", "[]"]),
    ("attach", "least_values", DENSE | {"dense": True, "least_values": 300}, DENSE | {"dense": True}, ["300", "None"]),
    ("attach", "join", {"join": 0}, {}, ["0", "67108864"]),
    ("attach", "announce", {"announce": "forward"}, {}, ["forward", "None"]),
    ("attach", "capacity", {"capacity": 0.5}, {}, ["0.5", "None"]),
    ("attach", "shared_memory", {"shared_memory": False}, {}, ["False", "True"]),
    ("attach", "dry_run", {"dry_run": True}, {}, ["True", "False"]),
    ("attach", "scaler", {"scaled": True}, {}, ["given", "not given"]),
    ("attach", "profiler", {"every": 10}, {"every": 20}, ["every 10", "every 20"]),
    ("attach", "find_unused_parameters", {"find_unused_parameters": True}, {}, ["True", "False"]),
    ("attach", "parameter 1", {"model": "renamed"}, {}, ["other.weight", "1.weight"]),
    ("attach", "scheme", {"scheme": "balanced"}, {"scheme": "agsparse"}, ["balanced", "agsparse"]),
    (
        "attach", "scheme", {"scheme": "balanced"}, {"scheme": "schemes/strategies/automatic.zen"},
        ["balanced", "strategy automatic"],
    ),
    ("load", "scheme", {}, {"scheme": "agsparse"}, ["balanced", "agsparse"]),
    ("load", "params", {"scheme": "topk_a2a", "params": {"density": 0.5}}, {"scheme": "topk_a2a"}, ["density = 0.5"]),
    ("load", "shared_memory", {"shared_memory": False}, {}, ["False", "True"]),
    ("sharded", "table 0", {"rows": 40}, {}, ["[40, 4]", "[50, 4]"]),
    ("sharded", "table 0", {"order": "ba"}, {}, ["[60, 2]", "[50, 4]"]),
    ("sharded", "optimizer", {"kind": "Adagrad"}, {}, ["Adagrad", "SparseAdam"]),
    ("sharded", "op", {"op": "sum"}, {}, ["sum", "mean"]),
    ("sharded", "on_demand", {"on_demand": True}, {}, ["True", "False"]),
    ("sharded", "init_sync", {"init_sync": False}, {}, ["False", "True"]),
    ("sharded", "lr of group 0", {"lr": 0.5}, {}, ["0.5", "0.1"]),
    ("sharded", "scheme", {"scheme": "agsparse"}, {}, ["agsparse", "balanced"]),
    ("sharded", "collective", {"given": True}, {"given": False}, ["given", "made here"]),
    ("replicas", "scheme", {"scheme": "agsparse"}, {}, ["agsparse", "balanced"]),
    ("fsdp", "width", {"width": 2}, {}, ["2", "1"]),
    ("fsdp hook", "op", {"op": "sum"}, {}, ["sum", "mean"]),
    ("fsdp hook", "name", {"name": "a"}, {"name": "b"}, ["a", "b"]),
    ("averager", "shared_memory", {"shared_memory": False}, {}, ["False", "True"]),
    ("averager", "averaging", {"params": {"side": 1}}, {}, ["ds_sync rows(1)", "ds_sync rows(2)"]),
    ("state", "dense", {"tables": 1}, {"tables": 2}, ["table 0 [8, 2]", "table 1 [8, 2]"]),
]  # fmt: skip
FAILING: list[tuple[str, dict[str, Any], str]] = [
    ("attach", {"dense": ["no.such"]}, "unknown-parameter"),
    ("attach", {"dense": True, "exclude": ["[0].weight"]}, "unknown-parameter"),
    ("attach", {"announce": "backward"}, "different-options"),
    ("attach", {"hooked": True}, "hook-taken"),
    ("attach", {"join": "much"}, "wrong-argument"),
    ("attach", {"profiler": 7}, "wrong-argument"),
    ("attach", {"model": "dense", "deadline": -1}, "bad-deadline"),
    ("load", {"deadline": "soon"}, "bad-deadline"),
    ("load", {"scheme": "no_such_scheme"}, "unreadable-file"),
    ("sharded", {"kind": "SGD"}, "different-options"),
    ("sharded", {"lr": -1.0}, ""),
    ("replicas", {"deadline": 0}, "bad-deadline"),
    ("averager", {"deadline": 0}, "bad-deadline"),
    ("publish", {"deadline": 0}, "bad-deadline"),
]


@pytest.mark.parametrize(("made", "option", "one", "other", "values"), DIFFERENT)
def test_a_difference_is_an_error_on_all_ranks_that_names_it(two, made, option, one, other, values):
    here, there = two.run(FOUND, made=made, options=[one, other])
    id = {"profiler": "different-profilers"}.get(option, "different-options")
    id = "different-schemes" if option in ("scheme", "params", "averaging") else id
    assert here == there and here[:2] == ("SynchronisationError", id), (here, there)
    assert f"{option} is " in here[2] and "on rank 0, and " in here[2] and here[2].endswith(" on rank 1")
    assert all(value in here[2] for value in values)


@pytest.mark.parametrize(("made", "options", "id"), FAILING)
def test_a_rank_that_fails_alone_is_heard_by_the_other(two, made, options, id):
    here, there = two.run(FOUND, made=made, options=[{}, options])
    assert there[1] == id and there[0], there
    heard = "call-failed" if made == "publish" else "peer-failed"
    assert here[1] == (heard if id != "different-options" else id), (here, there)


@pytest.mark.parametrize("made", sorted({each[0] for each in DIFFERENT} | {"publish"}))
def test_ranks_with_the_same_options_go_on(two, made):
    assert two.run(FOUND, made=made, options=[{}, {}]) == [("", "", "")] * 2


def test_many_ranks_are_told_who_has_which(four):
    options = [{"join": 0}, {}, {"join": 0}, {"join": 5}]
    found = four.run(FOUND, made="attach", options=options)
    assert {each[2].partition(": ")[2] for each in found} == {
        "join is 0 on ranks 0, 2, and 67108864 on rank 1, and 5 on rank 3"
    }


def test_a_profiler_that_has_counted_on_one_rank_begins_anew(two):
    here, there = two.run("tests.torch.test_options:profiled")
    assert here == there and any(map(any, here))


def test_help_says_what_to_do(two):
    said = two.run("tests.torch.test_options:advice")[0]
    assert said["compiled"].startswith("not-ddp: it is compiled: attach to the wrapped model first")
    assert said["seven"] == said["load seven"] == "unreadable-file: `zenc list` has the names"
    assert said["no module"].startswith("not-ddp: it is no torch.nn.Module")
    assert said["small"].startswith("needs-dense: none has least_values=1024 values: give least_values=8 or less")
    assert said["double"].startswith("unsupported-dtype: what is lost is float32")
    assert said["weight"] == "unknown-parameter: did you mean '0.weight' or '1.weight'?"
    assert said["module"] == "unknown-parameter: did you mean '1.bias'?"
    assert said["stats"].startswith("UnknownReport error[unknown-parameter]: there are no statistics of 'weight'")
