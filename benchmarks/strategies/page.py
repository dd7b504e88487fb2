"""The marked part of docs/research/strategies.md, made of the results alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.reproduce.markdown import LEFT, RIGHT, table

BEGIN, END = "<!-- results: written by make strategies -->", "<!-- end of results -->"
TOLERANCE = 1.25
"""Ratios agree that are no further apart; fixed before anything was computed."""
Results = dict[str, Any]
Row = dict[str, Any]


def with_results(page: str, results: Results) -> str:
    """``page`` with its marked part made anew. Raises ValueError where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no part between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{part(results)}\n\n{END}{after}"


def part(results: Results) -> str:
    sections = (espresso, choosing, crippled, never_worse, groups, topka2a, byteps, oscar)
    return "\n\n".join(section(results) for section in sections)


def agreement(computed: float, said: float | None) -> str:
    """``yes``, or ``no`` and by how much; nothing where nothing is published."""
    if said is None:
        return ""
    apart = computed / said
    return "yes" if 1 / TOLERANCE <= apart <= TOLERANCE else f"no, {apart:.2f} times"


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
            _said(row["scaling published"]),
            agreement(row["scaling"], row["scaling published"]),
            f"{row['over dense']:.2f}",
            _said(row["over dense published"]),
            agreement(row["over dense"], row["over dense published"]),
            f"{row['from bound']:.1%}",
            "" if row["from bound published"] is None else f"{row['from bound published']:.0%}",
        )
        for row in results["espresso"]
    ]
    return _section(
        "Espresso: what a strategy gains",
        "Scaling is the step's computation over the step without compression, 64 GPUs. Gain is the step without "
        "compression over that with the strategy. The bound is the best strategy if compression took no time.",
        table(heads, (LEFT,) * 4 + (RIGHT,) * 8, body),
    )


def choosing(results: Results) -> str:
    heads = ("model", "tensors", "published", "tables", "selection", "published", "compressed", "offload", "published")
    body = [
        (
            row["model"],
            str(row["tensors"]),
            str(row["tensors published"]),
            f"{row['tables ms']:.1f} ms",
            f"{row['selection ms']:.1f} ms",
            f"{row['selection published']} ms",
            str(row["compressed"]),
            f"{row['offload ms']:.1f} ms",
            f"{row['offload published']} ms",
        )
        for row in results["times"]
    ]
    return _section(
        "Espresso: how long choosing takes",
        "The least of five, on one core of the machine that wrote this. *Tables* are made once for a cluster and a "
        "compressor: the durations of all options for all sizes, without those that another one dominates.",
        table(heads, (LEFT,) + (RIGHT,) * 8, body),
    )


def crippled(results: Results) -> str:
    names = [name for name in results["crippled"][0] if name not in ("model", "links", "compressor")]
    body = [
        (row["model"], row["links"], row["compressor"], *(f"{row[name]:.3f}" for name in names))
        for row in results["crippled"]
    ]
    return _section(
        "Espresso: one dimension at a time",
        "The step by Algorithm 1 with a dimension fixed, over that with all 4,341 options.",
        table(("model", "links", "compressor", *names), (LEFT,) * 3 + (RIGHT,) * len(names), body),
    )


def never_worse(results: Results) -> str:
    rows = results["never worse"]
    worse = [row for row in rows if row["best"] > min(row["plain"], row["all"], row["two groups"]) * (1 + 1e-9)]
    heads = ("links", "cases", "gain over nothing compressed", "over everything", "over two groups", "worse")
    body = []
    for links in dict.fromkeys(row["links"] for row in rows):
        of = [row for row in rows if row["links"] == links]
        gains = (_range([row[name] / row["best"] for row in of]) for name in ("plain", "all", "two groups"))
        body.append((links, str(len(of)), *gains, str(sum(row in worse for row in of))))
    return _section(
        "Never worse",
        "Nine models, four clusters and three compressors, event by event: the chosen strategy beside no compression, "
        "everything compressed, and two groups of MergeComp. From the least to the greatest gain of the cases.",
        table(heads, (LEFT,) + (RIGHT,) * 5, body),
    )


def groups(results: Results) -> str:
    names = ("computing", "one group", "a group a tensor", "even split", "two groups", "best of every cut")
    heads = ("model", "compressor", *names, "steps asked for", "up to four", "one size of buffers")
    body = [
        (
            row["model"],
            row["compressor"],
            *(f"{row[name]:.1f}" for name in names),
            str(row["asked"]),
            f"{row['up to four']:.1f}",
            f"{row['fusion']:.1f}",
        )
        for row in results["groups"]
    ]
    gains = [row["even split"] / row["two groups"] - 1 for row in results["groups"]]
    return _section(
        "MergeComp: groups",
        f"Milliseconds of a step. Two groups beat the even split by {min(gains):.1%} to {max(gains):.1%}; published is "
        f"{results['published']['mergecomp']['over_even_split'] - 1:.1%}, for models that the notes do not name.",
        table(heads, (LEFT,) * 2 + (RIGHT,) * 9, body),
    )


def topka2a(results: Results) -> str:
    heads = ("ranks", "density", "bytes over the formula's", "gain over dense", "by the formula")
    body = [
        (
            str(row["ranks"]),
            f"{row['density']:g}",
            f"{row['bytes over formula']:.4f}",
            f"{row['over dense']:.2f}",
            f"{row['by formula']:.2f}",
        )
        for row in results["topka2a"]
    ]
    return _section(
        "TopKA2A: cost",
        "`topk_a2a` on 4M values at 10 Gbit/s, predicted, beside the published cost without latencies: "
        "(2k + d)(n - 1)/n values of each rank, and so at most twice as fast as dense.",
        table(heads, (RIGHT,) * 5, body),
    )


def byteps(results: Results) -> str:
    of = results["byteps"]
    body = [
        (
            row["compressor"],
            f"{row['call']:.3f} s",
            f"{row['computed']:.0f} s",
            f"{row['published']:g} s",
            "fitted" if row["fitted"] else agreement(row["computed"], row["published"]),
        )
        for row in of["rows"]
    ]
    return _section(
        "BytePS: ResNet18 at 100 Mbit/s, 4 hosts",
        f"How many steps a run has is not published, nor how long one computes: {of['steps']:.0f} steps of "
        f"{of['computing']:.2f} s were fitted to two of the four. A call is zenc's, of all gradients at once.",
        table(("compressor", "one call", "run computed", "published", "agrees"), (LEFT,) + (RIGHT,) * 4, body),
    )


def oscar(results: Results) -> str:
    of, said = results["oscar"], results["published"]["oscar"]
    text = (
        "OSCAR's hardware is not here, and its abstract is all that is public. The bytes of its coder can be held "
        f"against ours: integers of 8 bits through the range coder send {of['times fewer']:.2f} times fewer bytes than "
        "float32 on the gradients of [the convergence page](convergence.md). Published are "
        f"{said['coding_over_none']} times over no compression for the coder, and {said['hardware_all_reduce']} times "
        "for a whole all-reduce in hardware. Their gradients are not known, so agreement can't be said."
    )
    return f"## OSCAR: bytes\n\n{text}"


def _section(head: str, about: str, *rest: str) -> str:
    return "\n\n".join((f"## {head}", about, *rest))


def _said(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"
