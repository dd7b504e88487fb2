"""The cost of calls beside their bytes: one table and ten, by gloo, over connections and through memory, in turns.

    python -m benchmarks.calls [--ranks 4] [--rounds 30] [--json benchmarks/results/calls.json]
    python -m benchmarks.calls --steps [--rounds 30] [--json benchmarks/results/table_steps.json]

Processes of this machine sum sparse tables, float32, by ``balanced`` and ``holders``, in three ways (``WAYS``):
    gloo            messages over gloo, loopback: ZENC_SOCKETS=0
    connections     over TCP connections of zenc's own, loopback
    memory          through memory that the ranks share
and one table or several (``TASKS``):
    rows            200,000 x 64 at 2 %, as in benchmarks/one_machine.py
    in turn         ten tables of 20,000 x 64 at 2 %, each summed when the one before is
    asynchronous    the same, all under way at once
    coalesced       the same by ``all_reduce_coalesced``
With ``--steps`` 2 and 4 processes train models (``MODELS``) that look up 400 rows of each table of 20,000 x 64, or
2,000 of each of 200,000 x 64, forward and backward, by (``LANES``):
    DDP             its own sparse gradients over gloo, loopback
    a call each     zenc.attach(model, scheme, join=0)
    joined          zenc.attach(model, scheme)
    all joined      zenc.attach(model, scheme, join=1 << 40): what a limit is good for
``processor``: milliseconds of a rank, all its threads; ``ms``: until the last rank has all sums; medians of the rounds.
``others``: the share of the cores that other programs used: of a busy machine times say little.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.lab.launch import Others, launch
from benchmarks.lab.peers import Peer
from benchmarks.lab.results import Row, rows_of
from benchmarks.lab.settings import Run
from benchmarks.lab.worker import record_of, work
from benchmarks.lab.workloads import KINDS, sparse_gradient, units_of
from benchmarks.one_machine import LIMIT, PAGE, WORKER, processor_of
from benchmarks.pages import LEFT, RESULTS, RIGHT, Part, parser_of, table
from zenc.torch.strategy.table_groups import JOINED_BYTES

MARKS = "<!-- calls: written by benchmarks/calls.py -->", "<!-- end of calls -->"
PART = Part(PAGE, *MARKS, RESULTS / "calls.json")
STEP_MARKS = "<!-- table steps: written by benchmarks/calls.py -->", "<!-- end of table steps -->"
STEPS = Part(PAGE, *STEP_MARKS, RESULTS / "table_steps.json")
SCHEMES = ("balanced", "holders")
WAYS = ("gloo", "connections", "memory")
TASKS = ("rows", "in turn", "asynchronous", "coalesced")
TABLES, ROWS, WIDTH, DENSITY = 10, 20_000, 64, 0.02
WARM, SEED = 3, 1
RANKS = (2, 4)
"""Numbers of ranks that train."""
JOINS = {"a call each": 0, "joined": JOINED_BYTES, "all joined": 1 << 40}
LANES = ("DDP", *JOINS)
MODELS = {"1": (1, 20_000), "2": (2, 20_000), "10": (10, 20_000), "26": (26, 20_000), "10 large": (10, 200_000)}
"""Tables of a model, and the rows of each."""
LOOKED_UP = {20_000: 400, 200_000: 2_000}
"""Rows of a table -> ids of it that a rank looks up in a step."""


def main() -> None:
    parser = parser_of(__doc__, ranks=4, rounds=30)
    parser.add_argument("--steps", action="store_true", help="of DDP models, among 2 and 4 ranks")
    options = parser.parse_args()
    result = steps_measured(options.rounds) if options.steps else measured(options.ranks, options.rounds)
    part, text = (STEPS, steps_shown(result)) if options.steps else (PART, shown(result))
    print(part.keep(options.json, result, text))


def measured(ranks: int, rounds: int, model: str = "") -> dict[str, Any]:
    """Return milliseconds of every way, scheme and task, or of every scheme and lane that trains ``model``."""
    run: Run[dict[str, Any]] = Run(ranks, "", 0, "", {"model": model}, (), "", rounds, rounds, WARM, SEED)
    others = Others()
    records = launch(run, LIMIT, ("benchmarks.calls", WORKER), shared_memory=True)
    found = {"cores": os.cpu_count(), "torch": torch.__version__, "ranks": ranks, "rounds": rounds}
    names = tuple(records[0]["samples"])
    rows = rows_of(replace(run, peers=names, reference=names[0]), records)
    return {**found, "others": round(others.share(), 3), "rows": [row_of(*each, ranks) for each in rows.items()]}


def row_of(name: str, row: Row, ranks: int) -> dict[str, Any]:
    way, scheme, task = name.split("/")
    ms, processor = (round(seconds * 1e3, 2) for seconds in (row.seconds.median, processor_of(row, ranks)))
    return {"way": way, "scheme": scheme, "task": task, "ms": ms, "processor": processor}


def of_rank(run: Run[dict[str, Any]]) -> dict[str, Any]:
    tasks = steps_of(run.workload["model"]) if run.workload["model"] else tasks_of(dist.get_rank(), run.ranks)
    return record_of(replace(run, peers=tuple(tasks)), {name: Task(task) for name, task in tasks.items()})


class Task(Peer):
    """A task without a result."""

    def __init__(self, task: Callable[[], object]) -> None:
        self.task = task

    def call(self) -> torch.Tensor:
        self.task()
        return torch.empty(0)


def tasks_of(rank: int, size: int) -> dict[str, Callable[[], object]]:
    """Return the tasks of a rank by name: way, scheme and task with slashes between them."""
    rows = sparse_gradient(units_of(KINDS["rows"], size, SEED), rank, SEED)
    drawn = torch.Generator().manual_seed(SEED + rank)
    tables = [table_of(drawn) for _ in range(TABLES)]
    found: dict[str, Callable[[], object]] = {}
    for way in WAYS:
        os.environ["ZENC_SOCKETS"] = str(int(way != "gloo"))
        group = dist.new_group(list(range(size)))
        for scheme in SCHEMES:
            sums = zenc.load(scheme, group, shared_memory=way == "memory")
            made = partial(sums.all_reduce, rows), partial(in_turn, sums, tables), partial(at_once, sums, tables)
            for task, call in zip(TASKS, (*made, partial(sums.all_reduce_coalesced, tables)), strict=True):
                found[f"{way}/{scheme}/{task}"] = call
    return found


def table_of(drawn: torch.Generator) -> torch.Tensor:
    """Return the gradient of one of the ten tables on a rank: rows drawn evenly, each once."""
    ids = torch.randperm(ROWS, generator=drawn)[: int(ROWS * DENSITY)]
    values = torch.randn(len(ids), WIDTH, generator=drawn)
    return torch.sparse_coo_tensor(ids[None], values, (ROWS, WIDTH), check_invariants=False)


def in_turn(collective: zenc.Collective, tables: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [collective.all_reduce(each) for each in tables]


def at_once(collective: zenc.Collective, tables: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [work.wait() for work in [collective.all_reduce(each, async_op=True) for each in tables]]


def shown(result: dict[str, Any]) -> str:
    """Return a row for each way and scheme: ms, and processor ms of a rank in brackets."""
    of = {(row["way"], row["scheme"], row["task"]): row for row in result["rows"]}
    heads = ("", *TASKS, "in turn / coalesced")
    lines = []
    for way in WAYS:
        for scheme in SCHEMES:
            found = [of[way, scheme, task] for task in TASKS]
            lines.append((f"`{scheme}`, {way}", *map(cell, found), f"{found[1]['ms'] / found[3]['ms']:.1f}"))
    title = f"{result['ranks']} ranks on {result['cores']} cores; medians of {result['rounds']} rounds."
    foot = f"Other programs used {result['others']:.0%} of the cores meanwhile."
    return f"{title}\n\n{table(heads, (LEFT, *[RIGHT] * (len(heads) - 1)), lines)}\n\n{foot}"


def cell(row: dict[str, Any]) -> str:
    return f"{row['ms']:.1f} ({row['processor']:.1f})"


class Tables(nn.Module):
    """Embedding tables under one small layer."""

    def __init__(self, count: int, rows: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True) for _ in range(count))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the loss of ``ids`` [tables, batch, 1]."""
        hidden = torch.stack([each(own) for each, own in zip(self.tables, ids, strict=True)]).sum(0)
        loss: torch.Tensor = self.head(hidden).pow(2).mean()
        return loss


def steps_measured(rounds: int) -> dict[str, Any]:
    """Return milliseconds of a step of each model, scheme and lane, among each number of ranks."""
    pairs = [(ranks, model) for ranks in RANKS for model in MODELS]
    return {"runs": [{"model": model, **measured(ranks, rounds, model)} for ranks, model in pairs]}


def steps_of(model: str) -> dict[str, Callable[[], object]]:
    """Return the tasks of a rank, each a step, by name: model, scheme and lane with slashes between them."""
    count, rows = MODELS[model]
    torch.manual_seed(SEED)
    ddp = DistributedDataParallel(Tables(count, rows))
    torch.manual_seed(SEED + dist.get_rank())
    ids = torch.stack([torch.randperm(rows)[: LOOKED_UP[rows], None] for _ in range(count)])
    found: dict[str, Callable[[], object]] = {}
    for scheme in SCHEMES:
        for lane, join in JOINS.items():
            handle = zenc.attach(ddp, scheme, join=join)
            found[f"{model}/{scheme}/{lane}"] = partial(step, ddp, ids, handle._slot, handle.state)
            handle.detach()
    return {f"{model}/-/DDP": partial(step, ddp, ids, handle._slot, None), **found}


def step(ddp: DistributedDataParallel, ids: torch.Tensor, slot: Any, tenant: Any) -> None:
    """Make a forward and a backward pass, with ``tenant`` in the hook of the model, or by DDP alone if it is None."""
    slot.tenant = tenant
    ddp.zero_grad(set_to_none=True)
    ddp(ids).backward()


def steps_shown(result: dict[str, Any]) -> str:
    """Return a row for each model and number of ranks, with the lanes of each scheme."""
    told = (*LANES[2:], "a call each / joined")
    heads = ["ranks, tables", "DDP", *(head for name in SCHEMES for head in (f"`{name}`, a call each", *told))]
    lines = []
    for run in result["runs"]:
        of = {(row["scheme"], row["task"]): row for row in run["rows"]}
        cells = [cell(of["-", "DDP"])]
        for found in ([of[scheme, lane] for lane in JOINS] for scheme in SCHEMES):
            cells += [*map(cell, found), f"{found[0]['ms'] / found[1]['ms']:.2f}"]
        lines.append((f"{run['ranks']}, {run['model']}", *cells))
    first, others = result["runs"][0], max(run["others"] for run in result["runs"])
    title = f"Milliseconds of a step, {first['cores']} cores; medians of {first['rounds']} rounds."
    foot = f"Other programs used at most {others:.0%} of the cores meanwhile."
    return f"{title}\n\n{table(heads, (LEFT, *[RIGHT] * (len(heads) - 1)), lines)}\n\n{foot}"


if __name__ == "__main__":
    if WORKER in sys.argv:
        work(lambda given: of_rank(Run.from_json(given)))
    else:
        main()
