"""The steps of models with several embedding tables: DDP alone, and zenc with a call a table and with joined ones.

    python -m benchmarks.calls --steps [--rounds 30] [--json benchmarks/results/table_steps.json]

2 and 4 processes of this machine train models (``MODELS``) that look up 400 rows of each table of 20,000 x 64, or 2,000
of each of 200,000 x 64, forward and backward, float32, in turns by (``LANES``):
    DDP             its own sparse gradients over gloo, loopback
    a call each     zenc.attach(model, scheme, join=0)
    joined          zenc.attach(model, scheme)
    all joined      zenc.attach(model, scheme, join=1 << 40): what a limit is good for
``ms``, ``processor``, ``others``: as of ``benchmarks/calls.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.markdown import LEFT, RIGHT, table
from zenc.torch.strategy.table_groups import JOINED_BYTES

RESULTS = Path(__file__).parent / "results" / "table_steps.json"
"""Results that the page shows; written again, they change it."""
BEGIN, END = "<!-- table steps: written by benchmarks/table_steps.py -->", "<!-- end of table steps -->"
RANKS = (2, 4)
SCHEMES = ("balanced", "holders")
JOINS = {"a call each": 0, "joined": JOINED_BYTES, "all joined": 1 << 40}
LANES = ("DDP", *JOINS)
MODELS = {"1": (1, 20_000), "2": (2, 20_000), "10": (10, 20_000), "26": (26, 20_000), "10 large": (10, 200_000)}
"""Tables of a model, and the rows of each."""
LOOKED_UP = {20_000: 400, 200_000: 2_000}
"""Rows of a table -> ids of it that a rank looks up in a step."""
WIDTH, SEED = 64, 1


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


def tasks_of(model: str, rank: int, _: int) -> dict[str, Callable[[], object]]:
    """Return the tasks of a rank, each a step, by name: model, scheme and lane with slashes between them."""
    count, rows = MODELS[model]
    torch.manual_seed(SEED)
    ddp = DistributedDataParallel(Tables(count, rows))
    torch.manual_seed(SEED + rank)
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


def shown(result: dict[str, Any]) -> str:
    """Return a row for each model, scheme and number of ranks: ms, and processor ms of a rank in brackets."""
    heads = ("ranks, tables", "", *LANES, "a call each / joined")
    lines = []
    for run in result["runs"]:
        of = {(row["scheme"], row["task"]): row for row in run["rows"]}
        for scheme in SCHEMES:
            found = [of["-", "DDP"], *(of[scheme, lane] for lane in JOINS)]
            cells = [f"{row['ms']:.1f} ({row['processor']:.1f})" for row in found]
            ratio = found[1]["ms"] / found[2]["ms"]
            lines.append((f"{run['ranks']}, {run['model']}", f"`{scheme}`", *cells, f"{ratio:.2f}"))
    first, others = result["runs"][0], max(run["others"] for run in result["runs"])
    title = f"Milliseconds of a step, {first['cores']} cores; medians of {first['rounds']} rounds."
    foot = f"Other programs used at most {others:.0%} of the cores meanwhile."
    return f"{title}\n\n{table(heads, (LEFT, LEFT, *[RIGHT] * (len(heads) - 2)), lines)}\n\n{foot}"
