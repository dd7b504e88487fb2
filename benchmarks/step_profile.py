"""Parts of the training steps that were measured: what processors and links take of each, beside its whole time.

    python -m benchmarks.step_profile --write     the table of docs/internals/performance.md, from the results

Nothing is measured here: steps are those of ``python -m benchmarks.lab.demo`` and of ``training-8`` in
``python -m benchmarks.lab.suite``. All ranks share the cores of one machine: ``processors`` is the processor time of
all of them over the number of cores, and no step is faster, however well it overlaps; ``link``: of the busiest rank.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.pages import DOCS, LEFT, RIGHT, Part, json_of, show_or_write, table

MARKS = "<!-- step profile: written by benchmarks.step_profile -->", "<!-- end of step profile -->"
PART = Part(DOCS / "internals" / "performance.md", *MARKS)
BASE = "ddp-sparse"
LANES = {
    "ddp-sparse": "DDP, sparse", "auto": "zenc, `auto`", "holders": "zenc, `holders`",
    "balanced": "zenc, `balanced`", "no-sync": "nothing summed",
}  # fmt: skip


def points() -> Iterator[tuple[str, Mapping[str, Mapping[str, Any]]]]:
    """Yield each measured point in words, and its peers: a row each, as ``benchmarks.lab.results`` has them."""
    demo = json_of(DOCS / "benchmarks" / "demo" / "hosts-4.json")["networks"]
    for network, found in demo.items():
        yield f"{found['settings']['ranks']} ranks, {network}", found["peers"]
    training = json_of(DOCS / "benchmarks" / "training-8.json")
    yield f"{training['settings']['ranks']} ranks, {training['settings']['rate']}", training["peers"]


def shown() -> str:
    rows = [cells(at, peers, lane) for at, peers in points() for lane in LANES if lane in peers]
    heads = ("steps of", "", "ms", "processors, ms", "link, ms", "DDP / it", "DDP / its processors")
    return table(heads, (LEFT, LEFT, RIGHT, RIGHT, RIGHT, RIGHT, RIGHT), rows)


def cells(at: str, peers: Mapping[str, Mapping[str, Any]], lane: str) -> tuple[str, ...]:
    row, base = peers[lane], 1e3 * peers[BASE]["seconds"]["median"]
    took, wire = 1e3 * row["seconds"]["median"], row["wire"]
    busy = took * row["processor"]
    link = "" if wire is None else f"{took * wire:.0f}"
    return (at, LANES[lane], f"{took:.0f}", f"{busy:.0f}", link, f"{base / took:.2f}", f"{base / busy:.2f}")


if __name__ == "__main__":
    show_or_write(__doc__, PART, shown)
