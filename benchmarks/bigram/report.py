"""Points made of the records of all ranks, and the tables of a page made of the points.

Point = settings x machine x others x apart x (lane -> Row) x (lane -> first and last loss)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from benchmarks.bigram.model import WRITTEN, ZENC, ZENC_ON_DEMAND, Bigrams, Table
from benchmarks.lab.results import Records, rows_of
from benchmarks.lab.settings import LabError
from benchmarks.markdown import LEFT, RIGHT
from benchmarks.markdown import table as markdown_table
from zenc.lab.cluster import bits_per_second

TARGET = 1.3
"""The hand-written all-to-all over the lane that is best, in bytes and in time, on eight hosts."""
TOLERANCE = 1e-5
DENSE = "dense"
HEADS = ("lane", "MB a step", f"{WRITTEN} over it", "ms a step", "quartiles", f"{WRITTEN} over it", "losses")

Point = dict[str, Any]


def point(settings: Bigrams, others: float, records: Records) -> Point:
    """Return the point of ``records``; raises LabError where a lane does not train as the reference does.

    ``others`` is other programs' share of cores.
    """
    losses = {name: [record["losses"][name] for record in records] for name in settings.peers}
    apart = {name: difference(of_lane, losses[settings.reference]) for name, of_lane in losses.items()}
    for name, found in apart.items():
        if not found <= TOLERANCE:
            raise LabError(f"{name} does not train as {settings.reference} does: its losses differ by {found:.1e}")
    rows = rows_of(settings, records)
    return {
        "settings": settings.to_json(),
        "machine": records[0]["machine"],
        "others": others,
        "lanes": {name: {**asdict(row), "apart": apart[name], **ends(losses[name])} for name, row in rows.items()},
    }


def ends(of_ranks: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the mean losses of the first and of the last step."""
    return {"first_loss": fmean(of[0] for of in of_ranks), "last_loss": fmean(of[-1] for of in of_ranks)}


def difference(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Return the largest relative difference of any rank and step; 0 where all are equal bit for bit."""
    pairs = [pair for a, b in zip(one, other, strict=True) for pair in zip(a, b, strict=True)]
    found = [abs(a - b) / abs(b) for a, b in pairs]
    return max(found) if all(value == value for value in found) else float("nan")


def dense_bytes(table: Table, ranks: int) -> int:
    """Return the bytes that a rank sends in a ring, headers left out."""
    return 2 * (ranks - 1) * table.bytes // ranks


def title(of: Point) -> str:
    settings = Bigrams.from_json(of["settings"])
    table = settings.workload
    size = f"{table.rows:,} x {table.width} float32, {table.tokens:,} tokens a rank and step"
    return (
        f"{settings.ranks} hosts, {settings.network()}; {size}; {settings.rounds} steps; "
        f"other programs had {of['others']:.0%} of the cores"
    )


def table_of(of: Point) -> str:
    """Return a row a lane, in Markdown, and one for the dense all-reduce, which is computed."""
    by, base = of["lanes"], of["lanes"][WRITTEN]
    settings = Bigrams.from_json(of["settings"])
    rows = [cells(name, each, base) for name, each in sorted(by.items(), key=lambda each: each[1]["seconds"]["median"])]
    sent = dense_bytes(settings.workload, settings.ranks)
    took = f"{sent * 8 / bits_per_second(settings.rate) * 1e3:,.0f}, at least" if settings.rate else ""
    over = f"{sent_of(base) / sent:.3f}" if settings.rate else ""
    rows.append([f"{DENSE} (computed)", f"{sent / 1e6:,.1f}", over, took, "", "", ""])
    return markdown_table(HEADS, (LEFT, *[RIGHT] * (len(HEADS) - 1)), rows)


def sent_of(lane: dict[str, Any]) -> int:
    """Return the bytes of the busiest rank by its interface, TCP's headers included; 0 on loopback, which has none."""
    return int(lane["interface_sent"] or 0)


def cells(name: str, lane: dict[str, Any], base: dict[str, Any]) -> list[str]:
    sent, seconds, ratio = sent_of(lane), lane["seconds"], lane["ratio"]
    return [
        name,
        f"{sent / 1e6:.2f}" if sent else "",
        f"{sent_of(base) / sent:.2f}" if sent else "",
        f"{seconds['median'] * 1e3:.0f}",
        f"{seconds['low'] * 1e3:.0f}-{seconds['high'] * 1e3:.0f}",
        f"{1 / ratio['median']:.2f}",
        "equal" if not lane["apart"] else f"within {lane['apart']:.0e}",
    ]


def verdict(points: Sequence[Point]) -> str:
    """Return the target on eight hosts, and by how much each point meets or misses it, in words."""
    lines = []
    for each in points:
        settings = Bigrams.from_json(each["settings"])
        if settings.ranks != 8 or not settings.rate:
            continue
        for name in (ZENC, ZENC_ON_DEMAND):
            lane, base = each["lanes"][name], each["lanes"][WRITTEN]
            found = {"bytes": sent_of(base) / sent_of(lane), "time": 1 / lane["ratio"]["median"]}
            said = ", ".join(f"{what} {value:.2f}" for what, value in found.items())
            lines.append(f"* {settings.rate}, {name}: {said}: {'met' if min(found.values()) >= TARGET else 'missed'}")
    return "\n".join(
        [f"The hand-written all-to-all over zenc, on eight hosts, should be at least {TARGET}:", "", *lines]
    )


def page_of(points: Sequence[Point]) -> str:
    """Return the whole page."""
    return "\n\n".join([*(f"{title(each)}:\n\n{table_of(each)}" for each in points), verdict(points)])
