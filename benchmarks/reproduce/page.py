"""The marked part of benchmarks/reports/reproduction.md, made of the results alone."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import LEFT, RIGHT, between, table
from benchmarks.reproduce.figures import picture
from benchmarks.reproduce.results import Results
from benchmarks.reproduce.said import case_study, statements

BEGIN = "<!-- results: written by make reproduce -->"


def with_results(page: str, results: Results) -> str:
    """Return ``page`` with its marked part made anew; raises ValueError where it has none."""
    return between(page, part(results), BEGIN)


def part(results: Results) -> str:
    sections = (overlap, compared, where_time_goes, case_study, statements, assumptions)
    return "\n\n".join(section(results) for section in sections)


def overlap(results: Results) -> str:
    fits = results["fits"]
    return "\n\n".join(
        (
            "## How gradients overlap",
            "The profile of each model, and what follows from it; the last columns were fitted to nothing, "
            "but for those named.",
            chosen(fits["chosen"]),
            picture("sums"),
            "Both families, fitted to the same point: what they say where nothing is published differs. *Zen "
            "over dense* "
            "is by volume, on 16 machines of 8.",
            families(fits["families"]),
            "One exponent for several models, by least squares of log gamma, and its residuals:",
            common(fits["common"]),
        )
    )


def chosen(rows: list[dict[str, Any]]) -> str:
    heads = ("", "family", "fitted to", "density", "overlap", "gamma^8", "gamma^128", "first eighth", "skewness of 128")
    body = [
        (
            row["model"],
            row["family"],
            row["fitted to"],
            f"{row['density']:.2%}",
            f"{row['overlap']:.2f}",
            f"{row['gamma']['8']:.2f}",
            f"{row['gamma']['128']:.1f}",
            f"{row['first eighth']:.0%}",
            f"{row['skewness at 128']:.1f}",
        )
        for row in rows
    ]
    return table(heads, (LEFT,) * 3 + (RIGHT,) * 6, body)


def families(rows: list[dict[str, Any]]) -> str:
    heads = ("", "family", "gamma^8", "gamma^128", "overlap", "first eighth", "Zen over dense", "the point")
    body = [
        (
            row["model"],
            row["family"],
            f"{row['gamma 8']:.2f}",
            f"{row['gamma 128']:.1f}",
            f"{row['overlap']:.2f}",
            f"{row['first eighth']:.0%}",
            f"{row['zen']:.2f}",
            row["where"],
        )
        for row in rows
    ]
    return table(heads, (LEFT, LEFT, *[RIGHT] * 5, LEFT), body)


def common(fits: list[dict[str, Any]]) -> str:
    heads = ("s", "", "published", "ours", "residual")
    body = [
        (
            f"{fit['exponent']:.3f}",
            f"{point['model']}, gamma^{point['ranks']}",
            f"{point['published']:.3g}",
            f"{point['ours']:.3g}",
            f"{point['ours'] / point['published'] - 1:+.0%}",
        )
        for fit in fits
        for point in fit["points"]
    ]
    return table(heads, (RIGHT, LEFT, RIGHT, RIGHT, RIGHT), body)


KINDS = {
    "throughput": "### Throughput: by how much Zen's steps are shorter",
    "communication": "### Communication alone, 25 Gbit/s",
    "breakdown": "### What each part of Zen brings: throughput, 25 Gbit/s",
}


def compared(results: Results) -> str:
    of = results["agreement"]
    said = (
        f"Of {of['rows']} ratios that nothing was fitted to, {of['within']} are within 10 % of the published "
        "ones; the median "
        f"of the differences is {of['median']:.0%}, the greatest {of['most']:.0%}. In the column *zenc* our "
        "best scheme "
        "takes the place of the first one."
    )
    parts = ["## Published and computed", said, picture("ratios")]
    for kind, title in KINDS.items():
        parts += [title, rows_of([row for row in results["rows"] if row["quantity"] == kind])]
    return "\n\n".join([*parts, "### Extremes of Figure 15", extremes(results["most"])])


def rows_of(rows: list[dict[str, Any]]) -> str:
    heads = ("model", "Gbit/s", "", "published", "computed", "", "zenc", "by", "why")
    body = [
        (
            row["model"],
            str(row["gbits"]),
            f"{row['of']} over {row['over']}",
            f"{row['published']:.2f}",
            "(fitted)" if row["fitted"] else f"{row['ours']:.2f}",
            "" if row["fitted"] else f"{row['ours'] / row['published'] - 1:+.0%}",
            f"{row['best']:.2f}",
            f"`{row['name']}`",
            "the time of computation is taken from it" if row["fitted"] else row["why"],
        )
        for row in rows
    ]
    return table(heads, (LEFT, RIGHT, LEFT, RIGHT, RIGHT, RIGHT, RIGHT, LEFT, LEFT), body)


def extremes(rows: list[dict[str, Any]]) -> str:
    heads = ("over all models", "published", "computed", "of")
    body = [
        (f"{row['of']} over {row['over']}, most", f"{row['value']:.2f}", f"{row['ours']:.2f}", row["model"])
        for row in rows
    ]
    return table(heads, (LEFT, RIGHT, RIGHT, LEFT), body)


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
