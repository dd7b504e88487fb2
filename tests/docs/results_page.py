"""The part of the page of results that is made of files: a line for each point of the lab."""

from __future__ import annotations

import re

from benchmarks.lab import choice
from benchmarks.lab.suite.__main__ import FOLDER
from benchmarks.lab.suite.points import POINTS, Point
from benchmarks.lab.suite.results import Result, load
from benchmarks.pages import LEFT, RIGHT, between, table
from benchmarks.slow_links import page as slow_links
from tests.docs.pages import ROOT

PAGE = ROOT / "benchmarks" / "reports" / "results.md"
REPRODUCTION = ROOT / "benchmarks" / "reports" / "reproduction.md"
PEERS = {"PyTorch, sparse": ("torch-coo", "ddp-sparse"), "`sparcml`": ("sparcml",), "`zen`": ("zen",)}
"""Heading -> the baseline under it, of single calls or of training."""
OTHERS = {"torch-dense": "PyTorch, dense", "ddp-dense": "PyTorch, dense", "horovod-coo": "Horovod"}
HEADS = ("point", "best scheme", *PEERS, "others")


def with_results() -> str:
    return between(PAGE.read_text(encoding="utf-8"), "\n\n".join((measured(), chosen(), slow(), reproduced())))


def measured() -> str:
    """Return the table of times of others over that of the best scheme, at every measured point."""
    results = load(FOLDER, POINTS)
    rows = [row_of(point, results[point.name]) for point in POINTS if point.name in results]
    ways = (LEFT, LEFT, *[RIGHT] * len(PEERS), LEFT)
    return "## All-reduces and training on a slow network\n\n" + table(HEADS, ways, rows)


def row_of(point: Point, result: Result) -> tuple[str, ...]:
    best = result.best()
    over = {peer: f"{result.over(peer, best).median:.2f}" for peer in result.rows if peer != best}
    compared = ("".join(over.get(peer, "") for peer in names) for names in PEERS.values())
    others = ", ".join(f"{name}: {over[peer]}" for peer, name in OTHERS.items() if peer in over)
    return f"{point.shows} (`{point.name}`)", f"`{best}`", *compared, others


def chosen() -> str:
    """Return the part about how near `auto` is to the best of its candidates."""
    results = load(choice.FOLDER, choice.POINTS)
    near = sum(choice.within(result) for result in results.values())
    return (
        "## The automatic choice\n\n"
        f"At {near} of {len(results)} points `auto` is within 5 % of the best of its candidates: "
        "[the table](../../docs/guides/choice.md#in-the-lab), made by `make bench-choice`."
    )


def slow() -> str:
    """Return the part about the way that takes least on slow links."""
    made = "[the races](slow_links.md) of a small model, made by `python -m benchmarks.slow_links`"
    return f"## Slow links\n\nTo an equal loss on 4 hosts, {made}:\n\n{slow_links.verdicts(slow_links.PART.kept())}"


def reproduced() -> str:
    """Return the part with a sentence of the page about Zen's evaluation."""
    text = REPRODUCTION.read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^(Of \d+ ratios that nothing was fitted to, .*?)\. In the column", text, re.MULTILINE)
    return (
        "## Zen's evaluation, computed again\n\n"
        f"{sentence}: [the tables](reproduction.md), made by `make reproduce`. Nothing of it is measured."
    )
