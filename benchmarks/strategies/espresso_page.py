"""Espresso on the page: its ratios, its peers, the time of a choice, and what each dimension is worth."""

from __future__ import annotations

from benchmarks.pages import LEFT, RIGHT, table
from benchmarks.strategies import Results, Row, agreement, agrees, published, section, span


def espresso(results: Results) -> str:
    about = ("model", "compressor", "links", "gaps")
    heads = (
        *about,
        "scaling without",
        "published",
        "agrees",
        "gain",
        "published",
        "agrees",
        "above the bound",
        "published",
    )
    body = [
        (
            *(row[name] for name in ("model", "compressor", "links", "reading")),
            f"{row['scaling']:.2f}",
            published(row["scaling published"]),
            agreement(row["scaling"], row["scaling published"]),
            f"{row['over dense']:.2f}",
            published(row["over dense published"]),
            agreement(row["over dense"], row["over dense published"]),
            f"{row['from bound']:.1%}",
            "" if row["from bound published"] is None else f"{row['from bound published']:.0%}",
        )
        for row in results["espresso"]
    ]
    return section(
        "Espresso: what a strategy gains (table 1, figures 12 to 14)",
        "Scaling is the step's computation over the step without compression, 64 GPUs. Gain is the step without "
        "compression over that with the strategy. The bound is the best strategy if compression took no time.",
        table(heads, (LEFT,) * 4 + (RIGHT,) * 8, body),
    )


def scaling(results: Results) -> str:
    heads = ("model", "gaps", "compressed by", "scaling", "published", "agrees")
    body = [
        (
            row["model"],
            row["reading"],
            {"gpu": "the GPU", "cpu": "the host"}[row["device"]],
            f"{row['scaling']:.2f}",
            published(row["published"]),
            agreement(row["scaling"], row["published"]),
        )
        for row in results["scaling"]
    ]
    return section(
        "Espresso: every tensor compressed (table 1)",
        "Scaling where all tensors are compressed across machines, by the GPU or by the host; without compression it "
        "is in the table above.",
        table(heads, (LEFT,) * 3 + (RIGHT,) * 3, body),
    )


def peers(results: Results) -> str:
    heads = ("model", "compressor", "links", "gaps", "peer", "over it", "published", "agrees")
    body = [
        (
            *(row[name] for name in ("model", "compressor", "links", "reading", "peer")),
            f"{row['over']:.2f}",
            published(row["published"]),
            agreement(row["over"], row["published"]),
        )
        for row in results["peers"]
    ]
    counts = ", ".join(_agreeing(results["peers"], reading) for reading in ("raw", "modulo"))
    return section(
        "Espresso: over its peers (figures 12 and 13)",
        f"The step of each peer over that with the strategy, 64 GPUs. Ratios that agree: {counts}.",
        table(heads, (LEFT,) * 5 + (RIGHT,) * 3, body),
    )


def _agreeing(rows: list[Row], reading: str) -> str:
    said = [row for row in rows if row["reading"] == reading and row["published"] is not None]
    return f"{sum(agrees(row['over'], row['published']) for row in said)} of {len(said)} in the reading *{reading}*"


def choosing(results: Results) -> str:
    names = ("compressed", "offload", "brute force")
    both = (head for name in ("selection", *names) for head in (name, "published"))
    heads = ("model", "tensors", "published", "tables", *both)
    body = [
        (
            row["model"],
            str(row["tensors"]),
            str(row["tensors published"]),
            f"{row['tables ms']:.1f} ms",
            f"{row['selection ms']:.1f} ms",
            f"{row['selection published']} ms",
            str(row["compressed"]),
            str(row["compressed published"]),
            f"{row['offload ms']:.1f} ms",
            f"{row['offload published']} ms",
            clock(row["brute force s"]),
            clock(row["brute force published"]),
        )
        for row in results["times"]
    ]
    return section(
        "Espresso: how long choosing takes (tables 5 and 6)",
        "The least of five, on one core of the machine that wrote this. *Tables* are made once for a cluster and a "
        "compressor: the durations of all options for all sizes, without those that another one dominates. "
        "*Brute force* is our time of one step for each way to compress the compressed tensors on the GPU or on the "
        "host; the published ones of GPT2 and UGATIT come to 1.6 us a way. Fewer tensors are worth compressing on "
        "these traces, so there are fewer ways.",
        table(heads, (LEFT,) + (RIGHT,) * 11, body),
    )


def crippled(results: Results) -> str:
    names = [name for name in results["crippled"][0] if name not in ("model", "links", "compressor")]
    body = [
        (row["model"], row["links"], row["compressor"], *(f"{row[name]:.3f}" for name in names))
        for row in results["crippled"]
    ]
    return section(
        "Espresso: one dimension at a time (figure 15)",
        "The step by Algorithm 1 with a dimension fixed, over that with all 4,341 options. The paper has curves and no "
        "numbers, and says that each is worse; 1.000 is as good.",
        table(("model", "links", "compressor", *names), (LEFT,) * 3 + (RIGHT,) * len(names), body),
    )


def never_worse(results: Results) -> str:
    rows = results["never worse"]
    worse = [row for row in rows if row["best"] > min(row["plain"], row["all"], row["two groups"]) * (1 + 1e-9)]
    heads = ("links", "cases", "gain over nothing compressed", "over everything", "over two groups", "worse")
    body = []
    for links in dict.fromkeys(row["links"] for row in rows):
        of = [row for row in rows if row["links"] == links]
        gains = (span([row[name] / row["best"] for row in of]) for name in ("plain", "all", "two groups"))
        body.append((links, str(len(of)), *gains, str(sum(row in worse for row in of))))
    return section(
        "Never worse",
        "Nine models, four clusters and three compressors, event by event: the chosen strategy beside no compression, "
        "everything compressed, and two groups of MergeComp. From the least to the greatest gain of the cases.",
        table(heads, (LEFT,) + (RIGHT,) * 5, body),
    )


def clock(seconds: float) -> str:
    """Return seconds in ms, s, h or as more than a day."""
    if seconds >= 86400:
        return "over 24 h"
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"
