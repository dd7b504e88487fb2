"""A hashed table of bigrams, 377,280 x 768, trained on several hosts that this machine plays, in several ways in turns.

    python -m benchmarks.bigram --ranks 4 8 --rates 100mbit 1gbit --json benchmarks/results/bigram.json

The text is the standard library of this Python, its words ids by frequency. Bytes are those of the interface, of the
busiest rank; seconds are from when gradients are there until rows can be looked up again. Tables begin as zeros, of
which rows take memory once they are written: eight ranks take 6 GB or so. With --json the results of that file, and
its page, benchmarks/reports/bigram.md, are written anew. Network and turns are those of ``python -m benchmarks.lab``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.bigram.model import LANES, WRITTEN, Bigrams, Table
from benchmarks.bigram.report import Point, page_of, point
from benchmarks.lab.launch import launch
from benchmarks.lab.options import carry_out, rate_of
from benchmarks.lab.settings import ROOT, LabError
from benchmarks.lab.suite.measure import busy_seconds, children_seconds
from benchmarks.markdown import between
from examples.language_model import corpus

RESULTS = ROOT / "benchmarks" / "results" / "bigram.json"
PAGE = ROOT / "benchmarks" / "reports" / "bigram.md"


def main() -> None:
    options = parser().parse_args()
    carry_out(lambda: measured(options))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.bigram", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = Table()
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
    if options.json:
        options.json.write_text(json.dumps({"points": points}, indent=1) + "\n", encoding="utf-8")
        if options.json.resolve() == RESULTS:
            PAGE.write_text(between(PAGE.read_text("utf-8"), page_of(points)), encoding="utf-8")
    return page_of(points)


def settings_of(options: argparse.Namespace, ranks: int, rate: str) -> Bigrams:
    lanes = tuple(dict.fromkeys([WRITTEN, *options.lanes]))
    table = Table(options.rows, options.width, options.tokens)
    return Bigrams(ranks, rate, 70_000, "2mb", table, lanes, WRITTEN, options.rounds, 1, 2, 1)


def of_point(settings: Bigrams, text: np.ndarray[tuple[int, ...], np.dtype[np.int32]], limit: float) -> Point:
    """Return one point, trained on ``text`` [words]."""
    print(f"bigram: {settings.ranks} hosts, {settings.network()}", file=sys.stderr)
    started, before, own = time.monotonic(), busy_seconds(), children_seconds()
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "words.npy"
        np.save(words, text)
        records = launch(settings, limit, ("benchmarks.bigram.lanes", str(words)))
    others = (busy_seconds() - before - (children_seconds() - own)) / (time.monotonic() - started)
    return point(settings, max(0.0, others) / records[0]["machine"]["cores"], records)


if __name__ == "__main__":
    main()
