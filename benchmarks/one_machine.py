"""A sparse all-reduce among the processes of one machine: torch's over loopback beside zenc's, both ways, in turns.

    python -m benchmarks.one_machine [--ranks 2 4] [--json FILE]

Rows at 2 % of 200,000 x 64, float32, Zipf 1.05. In every round each peer sums the same gradients once, from a barrier:
    torch              torch.distributed.all_reduce of the sparse tensor, and ``coalesce``
    SCHEME             a scheme of zenc through shared memory
    SCHEME, wire       the same over loopback
A call takes from when the first rank begins until the last has the sum. ``ratio``: the median over the rounds of
torch's time over the peer's. ``processor``: milliseconds of a rank and call, gloo's threads included. Sums are checked
once against float64. ``others``: the share of the cores that other programs used; above a few percent times say
little.
"""

import os
import sys
from typing import Any

import torch

from benchmarks.lab.__main__ import run
from benchmarks.lab.launch import Others
from benchmarks.lab.peers import Peer, Scheme, TorchSparse
from benchmarks.lab.results import Row
from benchmarks.lab.settings import Run, Settings
from benchmarks.lab.worker import measured as of_rank
from benchmarks.lab.worker import work
from benchmarks.lab.workloads import KINDS
from benchmarks.pages import DOCS, LEFT, RESULTS, RIGHT, Part, parser_of, table

PAGE = DOCS / "internals" / "performance.md"
MARKS = "<!-- one machine: written by benchmarks/one_machine.py -->", "<!-- end of one machine -->"
PART = Part(PAGE, *MARKS, RESULTS / "one_machine.json")
SCHEMES = ("agsparse", "balanced", "holders")
TORCH, WIRE = "torch", ", wire"
PEERS = (TORCH, *SCHEMES, *(scheme + WIRE for scheme in SCHEMES))
RANKS = (2, 4)
WARM = 10
"""Rounds that are not counted."""
SEED, LIMIT, WORKER = 1, 600.0, "--worker"


def main() -> None:
    options = parser_of(__doc__, rounds=60).parse_args()
    rows = [row for ranks in RANKS for row in measured(ranks, options.rounds)]
    found = {"cores": os.cpu_count(), "torch": torch.__version__, "rounds": options.rounds, "rows": rows}
    print(PART.keep(options.json, found, shown(found)))


def measured(ranks: int, rounds: int) -> list[dict[str, Any]]:
    settings = Settings(ranks, "", 0, "", KINDS["rows"], PEERS, TORCH, rounds, rounds, WARM, SEED)
    others = Others()
    report = run(settings, LIMIT, ("benchmarks.one_machine", WORKER), shared_memory=True)
    used = round(others.share(), 3)
    return [row_of(settings, peer, row) | {"others": used} for peer, row in report.rows.items()]


def row_of(settings: Run[Any], peer: str, row: Row) -> dict[str, Any]:
    took = {"ms": row.seconds.median * 1e3, "processor": processor_of(row, settings.ranks) * 1e3}
    figures = {name: round(each, 3) for name, each in {**took, "ratio": 1 / row.ratio.median}.items()}
    quartiles = {"low": round(1 / row.ratio.high, 2), "high": round(1 / row.ratio.low, 2)}
    return {"ranks": settings.ranks, "peer": peer, **figures, **quartiles}


def processor_of(row: Row, ranks: int) -> float:
    """Return the processor seconds of one of ``ranks`` in a call."""
    return row.processor * row.seconds.median * (os.cpu_count() or 1) / ranks


def peer_of(name: str, gradient: torch.Tensor) -> Peer:
    if name == TORCH:
        return TorchSparse(gradient)
    return Scheme(gradient, name.removesuffix(WIRE), shared_memory=not name.endswith(WIRE))


def cells_of(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return milliseconds, the ratio with its quartiles, and milliseconds of the processor."""
    return f"{row['ms']:.2f}", f"{row['ratio']:.1f} ({row['low']} to {row['high']})", f"{row['processor']:.2f}"


def shown(result: dict[str, Any]) -> str:
    """Return Markdown: a row for each peer, and three columns for each number of ranks."""
    rows = result["rows"]
    sizes = sorted({row["ranks"] for row in rows})
    heads = [f"{ranks} ranks: {what}" for ranks in sizes for what in ("ms", "torch / it", "processor, ms")]
    lines = []
    for name in PEERS:
        of = {row["ranks"]: cells_of(row) for row in rows if row["peer"] == name}
        lines.append([name, *(cell for ranks in sizes for cell in of[ranks])])
    said = ", ".join(f"{row['others']:.0%} among {row['ranks']} ranks" for row in rows if row["peer"] == TORCH)
    found = table(["", *heads], [LEFT, *[RIGHT] * len(heads)], lines)
    return f"{found}\n\nOther programs used this share of the cores meanwhile: {said}."


if __name__ == "__main__":
    if WORKER in sys.argv:
        work(lambda given: of_rank(Settings.from_json(given), peer_of))
    else:
        main()
