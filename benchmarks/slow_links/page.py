"""The marked part of benchmarks/reports/slow_links.md, and its figures, made of the results alone."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.lab.results import spread
from benchmarks.pages import DOCS, RESULTS, ROOT, Part, table_of
from benchmarks.slow_links.ways import BY_NAME, DENSE, GOAL, PLAIN, POWER, SPARSEST, Way
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import as_svg, logarithmic, round_values

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

PART = Part(ROOT / "benchmarks" / "reports" / "slow_links.md", results=RESULTS / "slow_links.json")
GUIDE = Part(DOCS / "guides" / "slow_links.md", "<!-- results of benchmarks/slow_links -->", "<!-- end of results -->")
FIGURES = DOCS / "benchmarks" / "slow_links"
HOSTS = (4, 8)
SOONER, FEWER, WITHIN = {POWER: 3.0, DENSE: 10.0}, 100.0, 0.01
"""Goals: how many times sooner than others the best of zenc is, how many times fewer bytes it may take, and by how
much of its authors' a loss may be greater."""
RACE = (
    ("way", "{label}"),
    ("seconds", "{seconds}"),
    ("runs", "{runs}"),
    ("steps", "{steps:,.0f}"),
    ("ms a step", "{ms:.1f}"),
    ("of a processor", "{processor:.1f}"),
    ("MB", "{MB:,.2f}"),
    ("kB a step", "{kB:,.1f}"),
)
ADVICE = (
    ("way", "{label}"),
    ("take it where", "{when}"),
    ("times sooner than DDP", "{sooner}"),
    ("times fewer bytes", "{fewer}"),
    ("bits after {steps:,} steps", "{bits}"),
    ("over DDP's", "{over}"),
)
AUTHORS = (
    ("way", "{label}"),
    ("held against", "{beside}"),
    ("bits a character", "{equal}"),
    ("over it", "{equal_over}"),
    ("bits a word", "{words}"),
    ("over it", "{words_over}"),
    ("at most 1 %", "{holds}"),
)
TEXTS = ("equal", "words")

Run: TypeAlias = dict[str, Any]
Found: TypeAlias = Mapping[str, Run]
Rows: TypeAlias = dict[Way, dict[str, Any]]


def runs_of(found: Found, kind: str, hosts: int) -> dict[Way, list[Run]]:
    """Return the runs of a ``kind`` among this number of ``hosts``, by way."""
    runs = [run for run in found.values() if (run["kind"], run["hosts"]) == (kind, hosts)]
    by = {way: [run for run in runs if run["way"] == way.name] for way in BY_NAME.values()}
    return {way: of for way, of in by.items() if of}


def race_rows(found: Found, hosts: int, kind: str = "race") -> Rows:
    """Return rows of races; ``sooner`` and ``fewer`` have text where a way came to the goal each time."""
    rows: Rows = {}
    for way, runs in runs_of(found, kind, hosts).items():
        ends = [run["points"][-1] for run in runs]
        took, steps, sent = (spread([end[at] for end in ends]) for at in range(3))
        row: dict[str, Any] = {"label": way.label, "took": took.median, "sent": sent.median, "sooner": "", "fewer": ""}
        row |= {"runs": len(runs), "steps": steps.median, "ms": 1e3 * took.median / steps.median}
        row |= {"MB": sent.median / 1e6, "kB": sent.median / steps.median / 1e3}
        row["processor"] = 1e3 * median(run["processor"] for run in runs)
        row["seconds"] = f"{took.median:.1f}" + (f" ({took.low:.1f} to {took.high:.1f})" if len(runs) > 1 else "")
        if any(end[3] > GOAL for end in ends):
            row["seconds"] = f"{median(end[3] for end in ends):.2f} bits after {took.median:.0f}"
        elif base := rows.get(BY_NAME[DENSE]):
            row |= {"sooner": f"{base['took'] / row['took']:.1f}", "fewer": f"{base['sent'] / row['sent']:,.1f}"}
        rows[way] = row
    return rows


def ends_of(found: Found, kind: str) -> dict[Way, dict[int, float]]:
    """Return the bits after equal steps of a ``kind``, by way and seed."""
    equal = runs_of(found, kind, HOSTS[0])
    return {way: {run["seed"]: run["points"][-1][3] for run in runs} for way, runs in equal.items()}


def over(mine: Mapping[int, float], base: Mapping[int, float]) -> float:
    """Return by what share losses are greater than others, in the mean of the seeds that both have."""
    return fmean(mine[seed] / base[seed] - 1 for seed in mine.keys() & base.keys())


def advice_rows(found: Found) -> list[dict[str, Any]]:
    """Return rows of ways that do not come from others: their races, and losses after equal steps over DDP's."""
    raced, ends, rows = race_rows(found, HOSTS[0]), ends_of(found, "equal"), []
    for way in BY_NAME.values():
        if way.kind != "author":
            row = {"label": way.label, "when": way.when, "sooner": "", "fewer": "", "bits": "", "over": ""}
            rows.append(row | raced.get(way, {}))
        if way.kind != "author" and way in ends:
            row, base = rows[-1], BY_NAME[PLAIN if way.sgd else DENSE]
            row["bits"] = f"{fmean(ends[way].values()):.3f}"
            row["over"] = f"{over(ends[way], ends[base]):+.1%}" if base in ends and way is not base else ""
    return rows


def authors_rows(found: Found) -> list[dict[str, str]]:
    """Return rows of ways that are held against what their authors describe: losses after equal steps on both texts."""
    rows = []
    for way in BY_NAME.values():
        if not way.beside:
            continue
        row, base, shares = {"label": way.label, "beside": f"`{way.beside}`"}, BY_NAME[way.beside], list[float]()
        for kind in TEXTS:
            ends = ends_of(found, kind)
            both = way in ends and base in ends
            shares += [over(ends[way], ends[base])] if both else []
            row[kind] = f"{fmean(ends[way].values()):.3f}" if way in ends else ""
            row[f"{kind}_over"] = f"{shares[-1]:+.1%}" if both else ""
        rows.append(row | {"holds": ("yes" if max(shares) <= WITHIN else "no") if shares else ""})
    return rows


def verdicts(found: Found, hosts: int = HOSTS[0]) -> str:
    """Return which goals are met among this number of ``hosts``, a line each."""
    rows = race_rows(found, hosts)
    best = min((row for way, row in rows.items() if way.kind != "torch" and row["sooner"]), key=lambda row: row["took"])
    facts = [(best, "seconds", "took", other, least) for other, least in SOONER.items()]
    facts.append((rows[BY_NAME[SPARSEST]], "bytes", "sent", DENSE, FEWER))
    lines = []
    for row, what, key, other, least in facts:
        times = rows[BY_NAME[other]][key] / row[key]
        goal = f"the goal of {least:g} is {'met' if times >= least else 'missed'}"
        lines.append(f"* {row['label']} takes {times:,.2f} times fewer {what} than {BY_NAME[other].label}: {goal}.")
    return "\n".join(lines)


def shared(found: Found, hosts: int) -> str:
    """Return what a race shows where hosts share the cores of the machine, on its own clock."""
    best, other = (race_rows(found, hosts, "shared")[BY_NAME[name]] for name in ("diloco-2-bits-40", POWER))
    took = f"{best['label']} {best['took']:.1f} seconds and {other['label']} {other['took']:.1f}"
    return f"Undilated, where hosts share two cores: {took}, {other['took'] / best['took']:.2f} times as many."


def page_of(found: Found) -> str:
    """Return the tables of all ``found``, with what was reached."""
    steps = max(run["points"][-1][1] for run in found.values() if run["kind"] in TEXTS)
    advice = [(head.format(steps=steps), cell) for head, cell in ADVICE]
    parts = ["## What to take", table_of(advice_rows(found), advice, 2)]
    parts += ["## Losses beside what authors describe", table_of(authors_rows(found), AUTHORS, 2)]
    for hosts in HOSTS:
        runs = [run for of in runs_of(found, "race", hosts).values() for run in of]
        drawn = f"![Loss over seconds and over bytes, {hosts} hosts](../../docs/benchmarks/slow_links/{hosts}.svg)"
        busy, dilation = (max(run[key] for run in runs) for key in ("others", "dilation"))
        said = f"Medians and quartiles; other programs had up to {busy:.0%} of the cores."
        table = table_of(race_rows(found, hosts).values(), RACE, 1)
        said += f" Time was dilated {dilation:g} times."
        parts += [f"## {hosts} hosts", drawn, table, said, verdicts(found, hosts), shared(found, hosts)]
    return "\n\n".join(parts)


def figure(found: Found, hosts: int) -> str:
    """Return a figure of held-out bits by seconds and by bytes, of the first seed of each way."""
    of = runs_of(found, "race", hosts)

    def plot(on: FigureBase) -> None:
        axes = on.add_subplot(1, 2, 1), on.add_subplot(1, 2, 2)
        for (way, runs), colour in zip(of.items(), distinct(len(of)), strict=True):
            took, _, sent, bits = zip(*runs[0]["points"][1:], strict=True)
            axes[0].plot(took, bits, color=colour, label=way.name, linewidth=1.3)
            axes[1].plot([each / 1e6 for each in sent], bits, color=colour, linewidth=1.3)
        axes[0].set(xlabel="seconds", xlim=(0.2, 1000), ylabel="bits a character, held out")
        axes[1].set(xlabel="MB of the busiest link")
        for each in axes:
            each.set_xscale("log")
            logarithmic(each, "x", round_values(*each.get_xlim()), "{:g}".format)
            each.grid(True)
            each.set_ylim(GOAL - 0.1, 5.5)
        axes[0].legend(loc="upper right")

    return as_svg(plot, 9.6, 4.4, "Held-out text by seconds and by bytes, on links of 100 Mbit/s", f"{hosts} hosts")
