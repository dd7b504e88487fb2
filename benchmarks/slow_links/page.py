"""The marked part of benchmarks/reports/slow_links.md, and its figures, made of the results alone.

Row = what a table has in a row, by the names in its columns
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.lab.results import spread
from benchmarks.pages import DOCS, RESULTS, ROOT, Part, table_of
from benchmarks.slow_links.ways import BY_NAME, DENSE, GOAL, PLAIN, POWER, SPARSEST, Way
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import as_svg

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

PART = Part(ROOT / "benchmarks" / "reports" / "slow_links.md", results=RESULTS / "slow_links.json")
FIGURES = DOCS / "benchmarks" / "slow_links"
HOSTS = (4, 8)
SOONER, FEWER, WITHIN = {POWER: 3.0, DENSE: 10.0}, 100.0, 0.01
"""Goals: how many times sooner than others the best of zenc is, how many times fewer bytes it may take, and by how much
of DDP's a loss may be greater."""
RACE = (
    ("way", "{label}"),
    ("seconds", "{seconds}"),
    ("DDP's over it", "{sooner}"),
    ("steps", "{steps:,.0f}"),
    ("ms a step", "{ms:.1f}"),
    ("of a processor", "{processor:.1f}"),
    ("MB", "{MB:,.2f}"),
    ("DDP's over it", "{fewer}"),
    ("kB a step", "{kB:,.1f}"),
)
EQUAL = (
    ("way", "{label}"),
    ("optimizer", "{optimizer}"),
    ("bits a character", "{bits:.3f}"),
    ("over DDP's", "{over:+.1%}"),
    ("of seeds", "{low:+.1%} to {high:+.1%}"),
    ("at most 1 %", "{holds}"),
)
ADVICE = (
    ("take", "{label}"),
    ("when", "{when}"),
    ("times sooner", "{sooner}"),
    ("times fewer bytes", "{fewer}"),
    ("loss", "{over}"),
)

Run: TypeAlias = dict[str, Any]
Found: TypeAlias = Mapping[str, list[Run]]
Rows: TypeAlias = dict[Way, dict[str, Any]]


def runs_of(found: Found, kind: str, hosts: int) -> dict[Way, list[Run]]:
    """Return the runs of a ``kind`` among so many ``hosts``, by way."""
    runs = [run for run in found[kind] if run["hosts"] == hosts]
    by = {way: [run for run in runs if run["way"] == way.name] for way in BY_NAME.values()}
    return {way: of for way, of in by.items() if of}


def race_rows(found: Found, hosts: int) -> Rows:
    """Return rows of races; ``sooner`` and ``fewer`` are numbers where a way came to the goal each time, else ""."""
    rows: Rows = {}
    for way, runs in runs_of(found, "races", hosts).items():
        ends = [run["points"][-1] for run in runs]
        took, steps, sent = (spread([end[at] for end in ends]) for at in range(3))
        row: dict[str, Any] = {"label": way.label, "took": took.median, "sent": sent.median, "steps": steps.median}
        row |= {
            "ms": 1e3 * median(end[0] / end[1] for end in ends),
            "kB": median(end[2] / end[1] for end in ends) / 1e3,
        }
        row |= {"processor": 1e3 * median(run["processor"] for run in runs), "MB": sent.median / 1e6}
        row["seconds"] = f"{took.median:.1f}" + (f" ({took.low:.1f} to {took.high:.1f})" if len(runs) > 1 else "")
        row["sooner"] = row["fewer"] = ""
        if not all(end[3] <= GOAL for end in ends):
            row["seconds"] = f"{median(end[3] for end in ends):.2f} bits after {took.median:.0f}"
        else:
            base = rows.get(BY_NAME[DENSE], row)
            row |= {"sooner": f"{base['took'] / row['took']:.1f}", "fewer": f"{base['sent'] / row['sent']:,.1f}"}
        rows[way] = row
    return rows


def equal_rows(found: Found) -> Rows:
    """Return rows of equal steps, each held against DDP with the same optimizer and seed."""
    bits = {(run["way"], run["seed"]): run["points"][-1][3] for run in found["equal"]}
    rows: Rows = {}
    for way, runs in runs_of(found, "equal", HOSTS[0]).items():
        base = PLAIN if way.sgd else DENSE
        over = [bits[way.name, run["seed"]] / bits[base, run["seed"]] - 1 for run in runs]
        mean = fmean(bits[way.name, run["seed"]] for run in runs)
        holds = "" if way.name == base else "yes" if fmean(over) <= WITHIN else "no"
        row = {"label": way.label, "optimizer": "SGD" if way.sgd else "AdamW", "bits": mean, "holds": holds}
        rows[way] = {**row, "over": fmean(over), "low": min(over), "high": max(over)}
    return rows


def verdicts(rows: Rows) -> list[str]:
    """Return which goals are met among the hosts of ``rows``, of races."""
    own = {way: row for way, row in rows.items() if way.kind != "torch" and row["sooner"]}
    best = min(own.values(), key=lambda row: row["took"])
    said = [
        ("seconds", best, other, best["took"], rows[BY_NAME[other]]["took"], least) for other, least in SOONER.items()
    ]
    sparsest = rows[BY_NAME[SPARSEST]]
    said.append(("bytes", sparsest, DENSE, sparsest["sent"], rows[BY_NAME[DENSE]]["sent"], FEWER))
    return [
        f"* {what} of {BY_NAME[other].label} over those of {row['label']}: {theirs / ours:.1f}; "
        f"the goal is {least:g}: {'met' if theirs / ours >= least else 'missed'}."
        for what, row, other, ours, theirs, least in said
    ]


def advice_rows(found: Found) -> list[dict[str, Any]]:
    raced, equal = race_rows(found, HOSTS[0]), equal_rows(found)
    return [
        {**raced[way], "when": way.when, "over": f"{equal[way]['over']:+.1%}" if way in equal else ""}
        for way in raced
        if way.when
    ]


def page_of(found: Found) -> str:
    """Return the tables of all ``found``, with what was reached."""
    parts = ["## What to take", table_of(advice_rows(found), ADVICE, 2)]
    for hosts in HOSTS:
        if rows := race_rows(found, hosts):
            drawn = f"![Loss over seconds and over bytes, {hosts} hosts](../../docs/benchmarks/slow_links/{hosts}.svg)"
            runs = [run for run in found["races"] if run["hosts"] == hosts]
            seeds, busy = len({run["seed"] for run in runs}), max(run["others"] for run in runs)
            scale = f"{seeds} runs of each, with the quartiles" if seeds > 1 else "One run of each"
            said = f"{scale}; other programs had up to {busy:.0%} of the cores."
            parts += [f"## {hosts} hosts", drawn, table_of(rows.values(), RACE, 1), said, "\n".join(verdicts(rows))]
    steps = max(run["points"][-1][1] for run in found["equal"])
    return "\n\n".join((*parts, f"## After {steps:,} steps", table_of(equal_rows(found).values(), EQUAL, 2)))


def figure(found: Found, hosts: int) -> str:
    """Return a figure of held-out bits by seconds and by bytes, of the first seed of each way."""
    of = runs_of(found, "races", hosts)

    def plot(on: FigureBase) -> None:
        axes = on.add_subplot(1, 2, 1), on.add_subplot(1, 2, 2)
        for (way, runs), colour in zip(of.items(), distinct(len(of)), strict=True):
            took, _, sent, bits = zip(*runs[0]["points"], strict=True)
            for each, across in zip(axes, (took, [value / 1e6 for value in sent]), strict=True):
                each.plot(across[1:], bits[1:], color=colour, label=way.label.replace("`", ""), linewidth=1.3)
        axes[0].set(xlabel="seconds", xscale="log", ylabel="bits a character, held out")
        axes[1].set(xlabel="MB of the busiest link", xscale="log")
        for each in axes:
            each.grid(True)
            each.set_ylim(GOAL - 0.1, 5.5)
        axes[1].legend()

    return as_svg(plot, 9.6, 4.4, "Held-out text by seconds and by bytes, on links of 100 Mbit/s", f"{hosts} hosts")
