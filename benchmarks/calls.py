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
``processor``: milliseconds of a rank, all its threads; ``ms``: until the last rank has all sums; medians of the rounds.
With ``--steps`` it is whole steps of DDP models: ``benchmarks/table_steps.py``.
``others``: the share of the cores that other programs used: of a busy machine times say little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import zenc
from benchmarks import table_steps
from benchmarks.lab.workloads import KINDS, sparse_gradient, units_of
from benchmarks.markdown import LEFT, RIGHT, between, table
from benchmarks.one_machine import Samples, Tasks, spawned, turns_of

RESULTS = Path(__file__).parent / "results" / "calls.json"
"""Results that the page shows; written again, they change it."""
PAGE = Path(__file__).parents[1] / "docs" / "internals" / "performance.md"
BEGIN, END = "<!-- calls: written by benchmarks/calls.py -->", "<!-- end of calls -->"
SCHEMES = ("balanced", "holders")
WAYS = ("gloo", "connections", "memory")
TASKS = ("rows", "in turn", "asynchronous", "coalesced")
TABLES, ROWS, WIDTH, DENSITY = 10, 20_000, 64, 0.02
WARM, SEED = 3, 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--steps", action="store_true", help="of DDP models, among 2 and 4 ranks")
    options = parser.parse_args()
    result = steps_measured(options.rounds) if options.steps else measured(options.ranks, options.rounds)
    text = table_steps.shown(result) if options.steps else shown(result)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        kept, *marks = (
            (table_steps.RESULTS, table_steps.BEGIN, table_steps.END) if options.steps else (RESULTS, BEGIN, END)
        )
        if options.json.resolve() == kept:
            PAGE.write_text(between(PAGE.read_text("utf-8"), text, *marks), encoding="utf-8")


def steps_measured(rounds: int) -> dict[str, Any]:
    """Return milliseconds of a step of each model, scheme and lane, among each number of ranks."""
    runs = [
        {"model": model, **measured(ranks, rounds, partial(table_steps.tasks_of, model))}
        for ranks in table_steps.RANKS
        for model in table_steps.MODELS
    ]
    return {"runs": runs}


def measured(ranks: int, rounds: int, tasks: Tasks | None = None) -> dict[str, Any]:
    """Return milliseconds of all ``tasks``; default: of every way, scheme and task."""
    samples, others = spawned(ranks, rounds, WARM, tasks or tasks_of)
    found = {"cores": os.cpu_count(), "torch": torch.__version__, "ranks": ranks, "rounds": rounds}
    return {**found, "others": others, "rows": rows_of(samples)}


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


def rows_of(of_ranks: Samples) -> list[dict[str, Any]]:
    """Return medians of the ranks' samples."""
    rows = []
    for name in of_ranks[0]:
        way, scheme, task = name.split("/")
        took = statistics.median(turns_of(of_ranks, name))
        processor = statistics.median(own for of in of_ranks for *_, own in of[name])
        found = {"ms": round(took * 1e3, 2), "processor": round(processor * 1e3, 2)}
        rows.append({"way": way, "scheme": scheme, "task": task, **found})
    return rows


def shown(result: dict[str, Any]) -> str:
    """Return a row for each way and scheme: ms, and processor ms of a rank in brackets."""
    of = {(row["way"], row["scheme"], row["task"]): row for row in result["rows"]}
    heads = ("", *TASKS, "in turn / coalesced")
    lines = []
    for way in WAYS:
        for scheme in SCHEMES:
            found = [of[way, scheme, task] for task in TASKS]
            cells = [f"{row['ms']:.1f} ({row['processor']:.1f})" for row in found]
            lines.append((f"`{scheme}`, {way}", *cells, f"{found[1]['ms'] / found[3]['ms']:.1f}"))
    title = f"{result['ranks']} ranks on {result['cores']} cores; medians of {result['rounds']} rounds."
    foot = f"Other programs used {result['others']:.0%} of the cores meanwhile."
    return f"{title}\n\n{table(heads, (LEFT, *[RIGHT] * (len(heads) - 1)), lines)}\n\n{foot}"


if __name__ == "__main__":
    main()
