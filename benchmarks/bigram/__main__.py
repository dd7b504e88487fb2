"""A hashed table of bigrams, 377,280 x 768, trained on several hosts that this machine plays, in several ways in turns.

    python -m benchmarks.bigram --ranks 4 8 --rates 100mbit 1gbit --json benchmarks/results/bigram.json

The text is the standard library of this Python, its words ids by frequency. Bytes are those of the interface, of the
busiest rank; seconds are from when gradients are there until rows can be looked up again. Tables begin as zeros, of
which rows take memory once they are written: eight ranks take 6 GB or so. With --json the results of that file, and
its page, benchmarks/reports/bigram.md, are written anew. Network and turns are those of ``python -m benchmarks.lab``.

    Point = settings x machine x others x apart x (lane -> Row) x (lane -> first and last loss)
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.bigram.model import LANES, WRITTEN, ZENC, ZENC_ON_DEMAND, Bigrams, Table
from benchmarks.lab.launch import Others, launch
from benchmarks.lab.options import carry_out, rate_of
from benchmarks.lab.results import Records, rows_of
from benchmarks.lab.settings import LabError
from benchmarks.lab.training.report import difference, ensure_alike
from benchmarks.pages import LEFT, RESULTS, RIGHT, ROOT, Part, new_parser, table
from examples.language_model import corpus
from zenc.lab.cluster import bits_per_second

PART = Part(ROOT / "benchmarks" / "reports" / "bigram.md", results=RESULTS / "bigram.json")
TARGET = 1.3
"""The hand-written all-to-all over the lane that is best, in bytes and in time, on eight hosts."""
TOLERANCE = 1e-5
DENSE = "dense"
HEADS = ("lane", "MB a step", f"{WRITTEN} over it", "ms a step", "quartiles", f"{WRITTEN} over it", "losses")

Point = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    made, size = new_parser(__doc__, "benchmarks.bigram"), Table()
    made.add_argument("--ranks", type=int, nargs="+", default=[8], metavar="N", help="hosts (8)")
    made.add_argument(
        "--rates", nargs="+", default=["100mbit"], metavar="RATE", help="of links, as tc has it (100mbit)"
    )
    made.add_argument("--network", choices=("auto", "shaped", "loopback"), default="auto")
    made.add_argument("--rounds", type=int, default=8, help="steps that are counted (8)")
    made.add_argument("--rows", type=int, default=size.rows, help=f"of the table ({size.rows})")
    made.add_argument("--width", type=int, default=size.width, help=f"of a row ({size.width})")
    made.add_argument("--tokens", type=int, default=size.tokens, help=f"of a rank and step ({size.tokens})")
    made.add_argument("--lanes", nargs="+", choices=LANES, default=list(LANES), metavar="LANE", help=", ".join(LANES))
    made.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="for a point (600)")
    made.add_argument("--json", type=Path, metavar="FILE", help="all points")
    return made


def measured(options: argparse.Namespace) -> str:
    """Return all points, as the page has them; raises LabError for impossible settings."""
    if min(*options.ranks, options.rounds, options.rows - 1, options.width, options.tokens) < 1:
        raise LabError("--ranks, --rounds, --width and --tokens are 1 or more, and --rows 2 or more")
    rates = list(dict.fromkeys(rate_of(options.network, rate) for rate in options.rates))
    text = corpus.read().train.numpy()
    points = [
        of_point(settings_of(options, ranks, rate), text, options.limit) for ranks in options.ranks for rate in rates
    ]
    return PART.keep(options.json, {"points": points}, page_of(points))


def settings_of(options: argparse.Namespace, ranks: int, rate: str) -> Bigrams:
    lanes = tuple(dict.fromkeys([WRITTEN, *options.lanes]))
    table = Table(options.rows, options.width, options.tokens)
    return Bigrams(ranks, rate, 70_000, "2mb", table, lanes, WRITTEN, options.rounds, 1, 2, 1)


def of_point(settings: Bigrams, text: np.ndarray[tuple[int, ...], np.dtype[np.int32]], limit: float) -> Point:
    print(f"bigram: {settings.ranks} hosts, {settings.network()}", file=sys.stderr)
    others = Others()
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "words.npy"
        np.save(words, text)
        records = launch(settings, limit, ("benchmarks.bigram.lanes", str(words)))
    return point(settings, others.share(), records)


def point(settings: Bigrams, others: float, records: Records) -> Point:
    """Return the point of ``records``; raises LabError where a lane does not train as the reference does.

    ``others`` is other programs' share of cores.
    """
    losses = {name: [record["losses"][name] for record in records] for name in settings.peers}
    flat = {name: list(chain(*of_lane)) for name, of_lane in losses.items()}
    apart = {name: difference(of_lane, flat[settings.reference]) for name, of_lane in flat.items()}
    ensure_alike(apart, settings.reference, TOLERANCE)
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


def dense_bytes(table: Table, ranks: int) -> int:
    """Return the bytes that a rank sends in a ring, headers left out."""
    return 2 * (ranks - 1) * table.bytes // ranks


def title(of: Point) -> str:
    settings = Bigrams.from_json(of["settings"])
    of_table = settings.workload
    size = f"{of_table.rows:,} x {of_table.width} float32, {of_table.tokens:,} tokens a rank and step"
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
    return table(HEADS, (LEFT, *[RIGHT] * (len(HEADS) - 1)), rows)


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
    return "\n\n".join([*(f"{title(each)}:\n\n{table_of(each)}" for each in points), verdict(points)])


if __name__ == "__main__":
    carry_out(lambda: measured(parser().parse_args()))
