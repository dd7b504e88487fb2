"""The marked part of benchmarks/reports/strategies.md, made of the results alone, a section each."""

from collections.abc import Sequence

from benchmarks.pages import RIGHT, table, table_of
from benchmarks.strategies import Results, Row

BEGIN = "<!-- results: written by make strategies -->"
TOLERANCE = 1.25
"""Ratios agree that are no further apart; fixed before anything was computed."""
ABOUT = (("model", "{model}"), ("compressor", "{compressor}"), ("links", "{links}"), ("gaps", "{reading}"))
JUDGED = (("published", "{published}"), ("agrees", "{agrees}"))


def section(head: str, about: str, *rest: str) -> str:
    """Return a part of the page: its head, a text ``about`` it, and its tables."""
    return "\n\n".join((f"## {head}", about, *rest))


def agrees(computed: float, said: float) -> bool:
    return 1 / TOLERANCE <= computed / said <= TOLERANCE


def agreement(computed: float, said: float | None) -> str:
    """Return ``yes``, or ``no`` and by how much; an empty text where nothing is published."""
    if said is None:
        return ""
    return "yes" if agrees(computed, said) else f"no, {computed / said:.2f} times"


def judged(row: Row, of: str, said: str = "published", agrees: str = "agrees") -> Row:
    """Return ``row`` with the published number to two digits, and as ``agrees`` whether the number ``of`` agrees."""
    published = row[said]
    return row | {said: "" if published is None else f"{published:.2f}", agrees: agreement(row[of], published)}


def named(names: Sequence[str], shape: str) -> tuple[tuple[str, str], ...]:
    """Return a column for each of ``names``, by its head; ``shape``: of its numbers."""
    return tuple((name, f"{{{name}:{shape}}}") for name in names)


def espresso(results: Results) -> str:
    columns = (
        *ABOUT, ("scaling without", "{scaling:.2f}"), ("published", "{scaling published}"),
        ("agrees", "{scaling agrees}"), ("gain", "{over dense:.2f}"), ("published", "{over dense published}"),
        *JUDGED[1:], ("above the bound", "{from bound:.1%}"), ("published", "{bound said}"),
    )  # fmt: skip
    rows = []
    for row in results["espresso"]:
        said = row["from bound published"]
        row = judged(row, "scaling", "scaling published", "scaling agrees") | {"bound said": ""}
        rows.append(
            judged(row, "over dense", "over dense published") | ({} if said is None else {"bound said": f"{said:.0%}"})
        )
    return section(
        "Espresso: what a strategy gains (table 1, figures 12 to 14)",
        "Scaling is the step's computation over the step without compression, 64 GPUs. Gain is the step without "
        "compression over that with the strategy. The bound is the best strategy if compression took no time.",
        table_of(rows, columns, 4),
    )


def scaling(results: Results) -> str:
    columns = (ABOUT[0], ABOUT[3], ("compressed by", "{by}"), ("scaling", "{scaling:.2f}"), *JUDGED)
    by = {"gpu": "the GPU", "cpu": "the host"}
    rows = (judged(row, "scaling") | {"by": by[row["device"]]} for row in results["scaling"])
    return section(
        "Espresso: every tensor compressed (table 1)",
        "Scaling where all tensors are compressed across machines, by the GPU or by the host; without compression it "
        "is in the table above.",
        table_of(rows, columns, 3),
    )


def peers(results: Results) -> str:
    counts = ", ".join(_agreeing(results["peers"], reading) for reading in ("raw", "modulo"))
    columns = (*ABOUT, ("peer", "{peer}"), ("over it", "{over:.2f}"), *JUDGED)
    return section(
        "Espresso: over its peers (figures 12 and 13)",
        f"The step of each peer over that with the strategy, 64 GPUs. Ratios that agree: {counts}.",
        table_of((judged(row, "over") for row in results["peers"]), columns, 5),
    )


def _agreeing(rows: list[Row], reading: str) -> str:
    said = [row for row in rows if row["reading"] == reading and row["published"] is not None]
    return f"{sum(agrees(row['over'], row['published']) for row in said)} of {len(said)} in the reading *{reading}*"


def choosing(results: Results) -> str:
    columns = (
        ABOUT[0], ("tensors", "{tensors}"), ("published", "{tensors published}"), ("tables", "{tables ms:.1f} ms"),
        ("selection", "{selection ms:.1f} ms"), ("published", "{selection published} ms"),
        ("compressed", "{compressed}"), ("published", "{compressed published}"), ("offload", "{offload ms:.1f} ms"),
        ("published", "{offload published} ms"), ("brute force", "{brute}"), ("published", "{brute said}"),
    )  # fmt: skip
    rows = (
        row | {"brute": clock(row["brute force s"]), "brute said": clock(row["brute force published"])}
        for row in results["times"]
    )
    return section(
        "Espresso: how long choosing takes (tables 5 and 6)",
        "The least of five, on one core of the machine that wrote this. *Tables* are made once for a cluster and a "
        "compressor: the durations of all options for all sizes, without those that another one dominates. "
        "*Brute force* is our time of one step for each way to compress the compressed tensors on the GPU or on the "
        "host; the published ones of GPT2 and UGATIT come to 1.6 us a way. Fewer tensors are worth compressing on "
        "these traces, so there are fewer ways.",
        table_of(rows, columns, 1),
    )


def clock(seconds: float) -> str:
    """Return seconds in ms, s, h or as more than a day."""
    if seconds >= 86400:
        return "over 24 h"
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def crippled(results: Results) -> str:
    names = [name for name in results["crippled"][0] if name not in ("model", "links", "compressor")]
    return section(
        "Espresso: one dimension at a time (figure 15)",
        "The step by Algorithm 1 with a dimension fixed, over that with all 4,341 options. The paper has curves and no "
        "numbers, and says that each is worse; 1.000 is as good.",
        table_of(results["crippled"], (ABOUT[0], ABOUT[2], ABOUT[1], *named(names, ".3f")), 3),
    )


def never_worse(results: Results) -> str:
    names = {"plain": "gain over nothing compressed", "all": "over everything", "two groups": "over two groups"}
    rows = []
    for links in dict.fromkeys(row["links"] for row in results["never worse"]):
        of = [row for row in results["never worse"] if row["links"] == links]
        gains = {name: [row[name] / row["best"] for row in of] for name in names}
        spans = {name: f"{min(each):.2f} to {max(each):.2f}" for name, each in gains.items()}
        worse = sum(min(each) < 1 / (1 + 1e-9) for each in zip(*gains.values(), strict=True))
        rows.append({"links": links, "cases": len(of), **spans, "worse": worse})
    columns = (ABOUT[2], ("cases", "{cases}"), *((head, f"{{{name}}}") for name, head in names.items()))
    return section(
        "Never worse",
        "Nine models, four clusters and three compressors, event by event: the chosen strategy beside no compression, "
        "everything compressed, and two groups of MergeComp. From the least to the greatest gain of the cases.",
        table_of(rows, (*columns, ("worse", "{worse}")), 1),
    )


def groups(results: Results) -> str:
    names = ("computing", "one group", "a group a tensor", "even split", "two groups", "best of every cut")
    asked = ("steps asked for", "{asked}"), ("up to four", "{up to four:.1f}"), ("one size of buffers", "{fusion:.1f}")
    gains = [row["even split"] / row["two groups"] - 1 for row in results["groups"]]
    return section(
        "MergeComp: groups",
        f"Milliseconds of a step. Two groups beat the even split by {min(gains):.1%} to {max(gains):.1%}; published is "
        f"{results['published']['mergecomp']['over_even_split'] - 1:.1%}, for models that the notes do not name.",
        table_of(results["groups"], (*ABOUT[:2], *named(names, ".1f"), *asked), 2),
    )


def mergecomp(results: Results) -> str:
    rows = results["mergecomp"]
    readings = list(dict.fromkeys(row["reading"] for row in rows))
    columns = [("", "{of}"), ("published", "{said:g}")]
    for reading in readings:
        columns += [(reading, f"{{{reading}:.2f}}"), ("agrees", f"{{{reading} agrees}}")]
    found: dict[str, Row] = {}
    for row in rows:
        of = found.setdefault(row["of"], {"of": row["of"], "said": row["published"]})
        of[row["reading"]] = row["computed"]
        of[f"{row['reading']} agrees"] = agreement(row["computed"], row["published"])
    return section(
        "MergeComp: published numbers",
        "8 GPUs. Three readings of what its runs do, each with what the one before has: all as in the other tables; "
        "each of the seven messages that come is decoded for itself; the backward pass waits while a gradient is "
        "encoded. Overheads agree if every message is decoded. The gains over dense and over single tensors do not: on "
        "these links the backward pass hides what an uncompressed ResNet101 sends. Unexplained.",
        table_of(found.values(), columns, 1),
    )


def topka2a(results: Results) -> str:
    columns = (
        ("ranks", "{ranks}"), ("density", "{density:g}"), ("bytes over the formula's", "{bytes over formula:.4f}"),
        ("gain over dense", "{over dense:.2f}"), ("by the formula", "{by formula:.2f}"),
    )  # fmt: skip
    return section(
        "TopKA2A: cost",
        "`topk_a2a` on 4M values at 10 Gbit/s, predicted, beside the published cost without latencies: "
        "(2k + d)(n - 1)/n values of each rank, and so at most twice as fast as dense.",
        table_of(results["topka2a"], columns, 0),
    )


def conditions(results: Results) -> str:
    columns = (
        ("ranks", "{ranks}"), ("before an all-gather from", "{before all-gather from:.4f}"),
        ("published", "{from published:.4f}"), ("before dense up to", "{before dense up to:.4f}"),
        ("published", "{up to published:.4f}"),
    )  # fmt: skip
    return section(
        "TopKA2A: conditions",
        "The densities between which `topk_a2a` is quicker than an all-gather of the top values, and than the dense "
        "ring: by the event simulation without latencies, searched by bisection, and as published, 1/(2(n - 1)) and "
        "1/2.",
        table_of(results["conditions"], columns, 0),
    )


def byteps(results: Results) -> str:
    of = results["byteps"]
    rows = [
        row | {"agrees": "fitted" if row["fitted"] else agreement(row["computed"], row["published"])}
        for row in of["rows"]
    ]
    columns = (
        ABOUT[1], ("one call", "{call:.3f} s"), ("run computed", "{computed:.0f} s"),
        ("published", "{published:g} s"), *JUDGED[1:],
    )  # fmt: skip
    return section(
        "BytePS: ResNet18 at 100 Mbit/s, 4 hosts",
        "`topk` keeps one value of each tensor, and `randomk` eight. How many steps a run has is not published, nor "
        f"what all else takes: {of['steps']:.0f} steps and {of['rest']:.0f} s were fitted to two of the four. A call "
        "is zenc's, of all gradients at once.",
        table_of(rows, columns, 1),
        f"The same page has runs at 25 Gbit/s, where one bit takes longer than top k by what coding takes and little "
        f"else. A slow run has at most as many steps as fit into its time at that rate, so coding explains "
        f"{of['coding at most']:.0f} s at most. The rest is unexplained.",
    )


def oscar(results: Results) -> str:
    rows, said = results["oscar"]["rows"], results["published"]["oscar"]
    coders = [name for name in rows[0] if name.startswith("faster")]
    heads = ("bits", "fewer bytes", "agrees", "over one static table", "agrees", *coders)
    body = [
        (
            str(row["bits"]),
            f"{row['fewer bytes']:.2f}",
            agreement(row["fewer bytes"], said["coding_over_none"]),
            f"{row['over a static table']:.2f}",
            agreement(row["over a static table"], said["coding_over_static"]),
            *(f"{row[name]:.2f}" for name in coders),
        )
        for row in rows
    ]
    return section(
        "OSCAR: bytes and simulation",
        "`oscar_hw` on gradients of the character model of [the convergence page](convergence.md), 8 ranks. *Fewer "
        f"bytes*: dense float32 over what was sent; published {said['coding_over_none']}. *Over one static table*: "
        "the bytes of an ideal coder with one table for the whole call over ours, which adapts to each step; published "
        f"{said['coding_over_static']} over Atalanta. *Faster*: the dense ring over the call, event by event, with "
        "ranges that are equal, or cut by their bytes of the last call; the coder takes nothing, or works at so many "
        f"times the speed of a link; published {said['hardware_all_reduce']}. *Software*: zenc's own coder on one "
        "core, at 100 Mbit/s.",
        table(heads, (RIGHT,) * len(heads), body),
    )


SECTIONS = (
    espresso, scaling, peers, choosing, crippled, never_worse, groups, mergecomp, topka2a, conditions, byteps, oscar,
)  # fmt: skip


def part(results: Results) -> str:
    return "\n\n".join(section(results) for section in SECTIONS)
