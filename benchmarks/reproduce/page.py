"""The marked part of benchmarks/reports/reproduction.md, made of the results alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.lab.suite.figures import WIDTH, panels
from benchmarks.pages import LEFT, RIGHT, table, table_of
from benchmarks.reproduce import PUBLISHED, SPARSITY
from benchmarks.reproduce.fits import POINTS
from benchmarks.reproduce.results import Results
from benchmarks.reproduce.workloads import fitted
from zenc.draw.colour import distinct
from zenc.draw.plots.figure import RULE, as_svg, logarithmic, round_values

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase


BEGIN = "<!-- results: written by make reproduce -->"


def part(results: Results) -> str:
    sections = (overlap, compared, where_time_goes, case_study, statements, assumptions)
    return "\n\n".join(section(results) for section in sections)


MODEL = ("", "{model}")


def overlap(results: Results) -> str:
    fits = results["fits"]
    parts = (
        "## How gradients overlap",
        "The profile of each model, and what follows from it; the last columns were fitted to nothing, but for those "
        "named.",
        chosen(fits["chosen"]),
        picture("sums"),
        "Both families, fitted to the same point: what they say where nothing is published differs. *Zen over dense* "
        "is by volume, on 16 machines of 8.",
        families(fits["families"]),
    )
    return "\n\n".join(parts)


def chosen(rows: list[dict[str, Any]]) -> str:
    columns = (
        MODEL, ("family", "{family}"), ("fitted to", "{fitted to}"), ("density", "{density:.2%}"),
        ("overlap", "{overlap:.2f}"), ("gamma^8", "{gamma[8]:.2f}"), ("gamma^128", "{gamma[128]:.1f}"),
        ("first eighth", "{first eighth:.0%}"), ("skewness of 128", "{skewness at 128:.1f}"),
    )  # fmt: skip
    gammas = ({int(ranks): gamma for ranks, gamma in row["gamma"].items()} for row in rows)
    return table_of((row | {"gamma": gamma} for row, gamma in zip(rows, gammas, strict=True)), columns, 3)


def families(rows: list[dict[str, Any]]) -> str:
    columns = (
        MODEL, ("family", "{family}"), ("gamma^8", "{gamma 8:.2f}"), ("gamma^128", "{gamma 128:.1f}"),
        ("overlap", "{overlap:.2f}"), ("first eighth", "{first eighth:.0%}"), ("Zen over dense", "{zen:.2f}"),
        ("the point", "{where}"),
    )  # fmt: skip
    return table_of(rows, columns, 2, 7)


KINDS = {
    "throughput": "### Throughput: by how much Zen's steps are shorter",
    "communication": "### Communication alone, 25 Gbit/s",
    "breakdown": "### What each part of Zen brings: throughput, 25 Gbit/s",
}


def compared(results: Results) -> str:
    of = results["agreement"]
    said = (
        f"Of {of['rows']} ratios that nothing was fitted to, {of['within']} are within 10 % of the published ones; the "
        f"median of the differences is {of['median']:.0%}, the greatest {of['most']:.0%}. In the column *zenc* our "
        "best scheme takes the place of the first one."
    )
    parts = ["## Published and computed", said, picture("ratios")]
    for kind, title in KINDS.items():
        parts += [title, rows_of([row for row in results["rows"] if row["quantity"] == kind])]
    columns = (
        ("over all models", "{of} over {over}, most"),
        ("published", "{value:.2f}"),
        ("computed", "{ours:.2f}"),
        ("of", "{model}"),
    )
    return "\n\n".join([*parts, "### Extremes of Figure 15", table_of(results["most"], columns, 1, 3)])


def rows_of(rows: list[dict[str, Any]]) -> str:
    columns = (
        ("model", "{model}"), ("Gbit/s", "{gbits}"), ("", "{of} over {over}"), ("published", "{published:.2f}"),
        ("computed", "{computed}"), ("", "{off}"), ("zenc", "{best:.2f}"), ("by", "`{name}`"), ("why", "{why}"),
    )  # fmt: skip
    fitted = {"computed": "(fitted)", "off": "", "why": "the time of computation is taken from it"}
    told = (
        fitted
        if row["fitted"]
        else {"computed": f"{row['ours']:.2f}", "off": f"{row['ours'] / row['published'] - 1:+.0%}"}
        for row in rows
    )
    return table_of((row | more for row, more in zip(rows, told, strict=True)), columns, 1, 2, 7, 8)


def where_time_goes(results: Results) -> str:
    said = (
        "The sparse layers of each model on 16 machines at 25 Gbit/s, in ms. *By GPU*: the same scheme where "
        "the ranges are cut by GPU "
        "first, and then by machine, so that each machine sums a range of every eighth of the tensor."
    )
    heads = ("model", *results["seconds"][0]["published"], "OmniReduce by GPU", "zenc's best", "")
    body = []
    for row in results["seconds"]:
        name = min(row["ours"], key=lambda scheme: row["ours"][scheme])
        gpu = f"{row['by GPU']['OmniReduce'] * 1e3:.0f}" if row["by GPU"] else ""
        times = [f"{each * 1e3:.0f}" for each in row["published"].values()]
        body.append((row["model"], *times, gpu, f"{row['ours'][name] * 1e3:.0f}", f"`{name}`"))
    found = table(heads, (LEFT, *[RIGHT] * (len(heads) - 2), LEFT), body)
    fixed = ", ".join(f"{name} {each * 1e3:.0f}" for name, each in results["computation"].items())
    computation = f"Computation of a step, in ms: {fixed}. That of the LSTM is published."
    return "\n\n".join(("## Where the time goes", said, found, faster(results["seconds"]), computation))


def faster(rows: list[dict[str, Any]]) -> str:
    """Return the cases where other ranges alone bring OmniReduce before Zen."""
    found = [row["model"] for row in rows if row["by GPU"] and row["by GPU"]["OmniReduce"] < row["published"]["Zen"]]
    models = ", ".join(found) or "no model"
    return (
        f"Cut by GPU first, OmniReduce is faster than Zen for {models}: rows fill its blocks, and blocks need no index."
    )


def assumptions(results: Results) -> str:
    rows = [(f"*{what}*", which) for what, which in results["assumed"]]
    need = ", ".join(f"{first:.0%} for {ratio}" for ratio, first in results["first eighth"].items())
    more = f"The first eighth of an LLM's tensor would hold {need} times, where the paper says over 60 %."
    return f"## What is assumed\n\n{table(('', ''), (LEFT, LEFT), rows)}\n\n{more}"


def case_study(results: Results) -> str:
    volumes = results["volumes"]
    sizes = list(next(iter(volumes.values())))
    heads = ("over dense, GPUs:", *sizes)
    body = [(f"`{name}`", *(f"{found[n]:.2f}" for n in sizes)) for name, found in volumes.items()]
    said = [(row["what"], row["published"], row["ours"]) for row in results["study"]]
    pairs = ", ".join(
        f"{each['behind']:.0%} with a {each['model']} (overlap {each['overlap']:.3f})" for each in results["pair"]
    )
    behind = {name: f"{PUBLISHED['nmt'][name]['value']:.0%}" for name in ("few_agsparse", "few_balanced")}
    few = (
        "At batch 1 the overlap is not published, and the profile of batch 64 has too much of it. Where AGsparse is "
        f"behind SparCML by the {behind['few_agsparse']} that are published, Balanced Parallelism is behind by "
        f"{pairs}; published are {behind['few_balanced']}."
    )
    return "\n\n".join(
        (
            "## The case of NMT",
            table(heads, (LEFT, *[RIGHT] * len(sizes)), body),
            table(("", "published", "computed"), (LEFT, LEFT, LEFT), said),
            few,
        )
    )


def statements(results: Results) -> str:
    return "\n\n".join(("## Statements of the paper", *crossover(results), *hashing(results), *holds(results)))


def crossover(results: Results) -> tuple[str, ...]:
    models = [name for name in results["crossover"][0] if name != "ranks"]
    heads = ("GPUs", *(f"{name}" for name in models))

    def cell(value: float | None) -> str:
        return "never" if value is None else f"{value:.4g}"

    rows = [(str(row["ranks"]), *(cell(row[name]) for name in models)) for row in results["crossover"]]
    (of_16,) = (row for row in results["crossover"] if row["ranks"] == 16)
    said = (
        f"**An overlap of {SPARSITY['overlap_that_suffices']:g} suffices among 16 GPUs for Balanced Parallelism to be "
        "better than Hierarchical Centralization.** That depends on how ranks overlap: it is from "
        f"{of_16['random subset']:.3f} on if they draw from a common subset, from {of_16['words']:.3f} with words "
        f"(Zipf's law, density 0.1 %), but only from {of_16['common core']:.2f} if they share a core and nothing else. "
        "The overlap from which on it sends less:"
    )
    return "### Which scheme is best", said, table(heads, [RIGHT] * len(heads), rows)


def hashing(results: Results) -> tuple[str, ...]:
    heads = ("memory / tensor", "density", "lost, published", "by formula", "drawn", "memory for which it is right")
    rows = [
        (
            f"{row['slots']:g}",
            f"{row['density']:.0%}",
            f"{row['value']:.1%}",
            f"{row['ours']:.1%}",
            f"{row['drawn']:.1%}",
            f"{row['slots that fit']:.2f}",
        )
        for row in results["losses"]
    ]
    stated = " and ".join(f"{row['value']:.1%} in {row['slots']:.0f} times" for row in results["losses"])
    said = (
        f"**A single hash function loses, at 10 % density, {stated} the memory of the dense tensor.** With x items a "
        "slot a random hash overwrites 1 - (1 - e^-x) / x of the items. The published shares follow for a quarter of "
        "the stated memories, or for four times the density:"
    )
    heads_of = ("units / slots", "functions", "all together", "one by one", "drawn")
    rows_of = [
        (
            f"{row['load']:g}",
            str(row["functions"]),
            f"{row['together']:.2%}",
            f"{row['in turn']:.2%}",
            f"{row['drawn']:.2%}",
        )
        for row in results["overflow"]
    ]
    four = (
        "**With four hash functions fewer than 1 % of the units collide.** At the load of the evaluation, r1 = 2 |G| "
        "d, more do; from a load of about 0.4 down it is true. *All together*: all units try the first function, "
        "those that are left the second, and so on, as threads in step do; it is also drawn. *One by one*: each unit "
        "tries all its functions before the next one."
    )
    return (
        "### What hashing loses",
        said,
        table(heads, [RIGHT] * len(heads), rows),
        four,
        table(heads_of, [RIGHT] * 5, rows_of),
    )


def holds(results: Results) -> tuple[str, ...]:
    rows = [(row["what"], row["published"], row["ours"]) for row in results["checks"]]
    return "### Sizes and shares", table(("", "published", "computed"), (LEFT, LEFT, LEFT), rows)


FIGURES = {
    "ratios": "Ratios as published, as computed, and what zenc's best scheme is beside them",
    "sums": "How dense the sum of k ranks is: the fitted profiles, and the published points",
}
"""Captions by name."""


def picture(name: str) -> str:
    return f"![{FIGURES[name]}](../../docs/reproduction/{name}.svg)"


def figures(results: Results) -> dict[str, str]:
    """Return the SVG of each figure by its file's name; raises CostError (``plots-missing``) without matplotlib."""
    drawn = {"ratios": ratios(results), "sums": sums(results)}
    return {f"{name}.svg": svg for name, svg in drawn.items()}


def ratios(results: Results) -> str:
    """Return a line a ratio that nothing was fitted to."""
    rows = [row for row in reversed(results["rows"]) if not row["fitted"]]
    lines = range(len(rows))
    shown = {"published": ("o", "published"), "ours": ("D", "computed"), "best": ("|", "zenc's best")}

    def draw(figure: FigureBase) -> None:
        (axes,) = panels(figure, 1)
        pairs = [row["published"] for row in rows], [row["ours"] for row in rows]
        axes.hlines(lines, *pairs, color=RULE, linewidth=2)
        for (key, (mark, words)), colour in zip(shown.items(), distinct(len(shown)), strict=True):
            axes.plot([row[key] for row in rows], lines, mark, color=colour, markersize=6, label=words)
        titles = [f"{row['model']}, {row['gbits']}: {row['of']} over {row['over']}" for row in rows]
        axes.set_yticks(lines, [f"{t} ({row['quantity']})" for t, row in zip(titles, rows, strict=True)])
        values = [row[key] for row in rows for key in shown]
        logarithmic(axes, "x", round_values(min(values), max(values)), "{:g}".format)
        axes.set_xlabel("times faster")
        axes.grid(axis="x")
        axes.legend(loc="lower right")

    title = "Ratios as published, and as the cost model has them"
    fixed = "A line for each ratio that nothing was fitted to: the model, Gbit/s of a machine, what over what."
    return as_svg(draw, WIDTH, 1.0 + 0.24 * len(rows), title, fixed)


def sums(results: Results) -> str:
    ranks, chosen = [1, 2, 4, 8, 16, 32, 64, 128], results["fits"]["chosen"]

    def draw(figure: FigureBase) -> None:
        (axes,) = panels(figure, 1)
        for row, colour in zip(chosen, distinct(len(chosen)), strict=True):
            name = row["model"]
            axes.plot(ranks, fitted(name).union(ranks) * 100, color=colour, label=f"{name}: {row['family']}")
            if name in POINTS:
                at, gamma, _ = POINTS[name]
                axes.plot([at], [gamma() * row["density"] * 100], "o", color=colour)
        logarithmic(axes, "x", ranks, "{:g}".format)
        axes.set(xlabel="ranks in the sum; points are published", ylabel="density of the sum, %", ylim=(0, 100))
        axes.grid(True)
        axes.legend()

    return as_svg(draw, WIDTH, 3.8, "Density of a sum by the ranks in it", "The profiles that were fitted, by model.")
