"""The part of the page of results that is made of files: a line for each point of the lab."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.lab import choice
from benchmarks.lab.show import quartiles
from benchmarks.lab.suite.__main__ import FOLDER
from benchmarks.lab.suite.page import LEFT, RIGHT, between, table
from benchmarks.lab.suite.points import POINTS
from benchmarks.lab.suite.results import Result, load
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "research" / "results.md"
REPRODUCTION = ROOT / "docs" / "research" / "reproduction.md"
PEERS = {
    "PyTorch, sparse": ("torch-coo", "ddp-sparse"),
    "PyTorch, dense": ("torch-dense", "ddp-dense"),
    "Horovod": ("horovod-coo",),
    "`sparcml`": ("sparcml",),
    "`zen`": ("zen",),
}
"""Heading -> what stands there, of single calls or of training."""
HEADS = ("point", "best scheme", *PEERS)


def with_results() -> str:
    """The page as it should be."""
    return between(PAGE.read_text(encoding="utf-8"), "\n\n".join((measured(), chosen(), reproduced())))


def measured() -> str:
    """How many times as long as the best scheme others take, at every point that has been measured."""
    rows = list(rows_of(load(FOLDER, POINTS)))
    return "## All-reduces and training on a slow network\n\n" + table(HEADS, (LEFT, LEFT, *[RIGHT] * len(PEERS)), rows)


def rows_of(results: dict[str, Result]) -> Iterator[tuple[str, ...]]:
    for point in POINTS:
        if point.name not in results:
            continue
        result = results[point.name]
        best = result.best()
        ratios = (
            "".join(over(result, peer, best) for peer in names if peer in result.rows) for names in PEERS.values()
        )
        yield f"{point.shows} (`{point.name}`)", f"`{best}`", *ratios


def over(result: Result, peer: str, best: str) -> str:
    found = result.over(peer, best)
    return f"{found.median:.2f} ({quartiles(found, 1, 2)})"


def chosen() -> str:
    """How near `auto` is to the best of its candidates."""
    results = load(choice.FOLDER, choice.POINTS)
    near = sum(choice.within(result) for result in results.values())
    return (
        "## The automatic choice\n\n"
        f"At {near} of {len(results)} points `auto` is within 5 % of the best of its candidates: "
        "[the table](../guides/choice.md#in-the-lab), made by `make bench-choice`."
    )


def reproduced() -> str:
    """The sentence of the page about Zen's evaluation."""
    text = REPRODUCTION.read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^(Of \d+ ratios that nothing was fitted to, .*?)\. In the column", text, re.MULTILINE)
    return (
        "## Zen's evaluation, computed again\n\n"
        f"{sentence}: [the tables](reproduction.md), made by `make reproduce`. Nothing of it is measured."
    )
