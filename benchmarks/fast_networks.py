"""Sums between the hosts of fast networks, where processors decide: rows at 2 %, torch's way beside schemes of zenc.

    python -m benchmarks.fast_networks [--rounds 21] [--json benchmarks/results/fast_networks.json]

Hosts and links are those of ``python -m benchmarks.lab``, for ``POINTS``; all hosts share the cores of this
machine. ``wire``: the milliseconds of the fewest bytes that such a sum takes (B2) at the rate of a link. ``cores``:
those of the processor time of all hosts over the number of cores, which no call can be faster than. ``others``: the
share of the cores that other programs used; above a few percent times say little.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lab.__main__ import run
from benchmarks.lab.launch import Others
from benchmarks.lab.options import carry_out
from benchmarks.lab.settings import Settings
from benchmarks.lab.show import label
from benchmarks.lab.workloads import KINDS
from benchmarks.one_machine import PAGE, processor_of, row_of
from benchmarks.pages import LEFT, RESULTS, RIGHT, Part, parser_of, table

MARKS = "<!-- fast networks: written by benchmarks/fast_networks.py -->", "<!-- end of fast networks -->"
PART = Part(PAGE, *MARKS, RESULTS / "fast_networks.json")
COO = "torch-coo"
SCHEMES = ("agsparse", "balanced", "holders")
PEERS = (COO, *SCHEMES)
SEED, WARM_UP, LIMIT = 1, 3, 300.0


@dataclass(frozen=True, slots=True)
class Aim:
    """The aim for hosts with links of ``rate``: ratios of times.

    ``faster``: the least of torch's time over the best scheme's. ``over_wire``: the most of the best scheme's time over
    the wire's.
    """

    ranks: int
    rate: str
    faster: float
    over_wire: float


POINTS = (Aim(2, "10gbit", 3.0, 3.0), Aim(4, "1gbit", 1.7, 1.25), Aim(8, "1gbit", 2.4, 1.25))


def main() -> None:
    options = parser_of(__doc__, rounds=21).parse_args()
    carry_out(lambda: measured(options.rounds, options.json))


def measured(rounds: int, file: Path | None) -> str:
    """Return the tables of all points; with a ``file`` they are kept there, and on the page if that shows the file."""
    data = {"cores": os.cpu_count(), "rounds": rounds, "rows": [row for aim in POINTS for row in rows_of(aim, rounds)]}
    return PART.keep(file, data, shown(data))


def rows_of(aim: Aim, rounds: int) -> list[dict[str, Any]]:
    shape = aim.ranks, aim.rate, 70_000, "2mb", KINDS["rows"]
    settings = Settings(*shape, PEERS, COO, rounds, dense_rounds=0, warm_up=WARM_UP, seed=SEED)
    others, cores, found = Others(), os.cpu_count() or 1, []
    report = run(settings, LIMIT)
    used_by_others = round(others.share(), 3)
    for peer, row in report.rows.items():
        figures, host = row_of(settings, peer, row), processor_of(row, aim.ranks) * 1e3
        figures["faster"] = figures.pop("ratio")
        wire = {"wire": (report.bounds.seconds or 0.0) * 1e3, "cores": host * aim.ranks / cores, "host": host}
        found.append({**figures, "rate": aim.rate, **{name: round(each, 3) for name, each in wire.items()}})
        found[-1]["others"] = used_by_others
    return found


def shown(data: dict[str, Any]) -> str:
    """Return the table of all rows, and the verdicts on POINTS."""
    rows, heads = data["rows"], ("hosts, rate", "", "ms", "torch / it", "wire, ms", "time / wire",
             "processors of all / cores, ms", "(wire + processor of a host) / wire")  # fmt: skip
    cells = [
        (f"{row['ranks']}, {row['rate']}", f"`{label(row['peer'])}`", f"{row['ms']:.1f}",
         f"{row['faster']:.2f} ({row['low']:.2f} to {row['high']:.2f})", f"{row['wire']:.1f}",
         f"{row['ms'] / row['wire']:.2f}", f"{row['cores']:.1f}",
         f"{(row['wire'] + row['host']) / row['wire']:.2f}")
        for row in rows
    ]  # fmt: skip
    ways = (LEFT, LEFT, *[RIGHT] * 6)
    others = max(row["others"] for row in rows)
    told = [
        *(verdict(aim, rows) for aim in POINTS),
        f"Other programs used at most {others:.0%} of the cores meanwhile.",
    ]
    return "\n\n".join((table(heads, ways, cells), "\n".join(f"* {line}" for line in told)))


def verdict(aim: Aim, rows: list[dict[str, Any]]) -> str:
    """Return whether the best scheme at a point is as fast as was aimed at, in words."""
    ours = [row for row in rows if (row["ranks"], row["rate"]) == (aim.ranks, aim.rate) and row["peer"] != COO]
    faster = max(row["faster"] for row in ours)
    over = min(row["ms"] for row in ours) / ours[0]["wire"]
    met = ("missed", "met")
    return (
        f"{aim.ranks} hosts, {aim.rate}: torch / the best {faster:.2f}, at least {aim.faster:g} wanted: "
        f"{met[faster >= aim.faster]}; time / wire {over:.2f}, at most {aim.over_wire:g}: {met[over <= aim.over_wire]}"
    )


if __name__ == "__main__":
    main()
