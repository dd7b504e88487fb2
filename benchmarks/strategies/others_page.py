"""MergeComp, TopKA2A, BytePS and OSCAR on the page."""

from __future__ import annotations

from benchmarks.pages import LEFT, RIGHT, table
from benchmarks.strategies import Results, Row, agreement, section


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
    return section(
        "MergeComp: groups",
        f"Milliseconds of a step. Two groups beat the even split by {min(gains):.1%} to {max(gains):.1%}; published is "
        f"{results['published']['mergecomp']['over_even_split'] - 1:.1%}, for models that the notes do not name.",
        table(heads, (LEFT,) * 2 + (RIGHT,) * 9, body),
    )


def mergecomp(results: Results) -> str:
    rows = results["mergecomp"]
    readings = tuple(dict.fromkeys(row["reading"] for row in rows))
    heads = ("", "published", *(part for reading in readings for part in (reading, "agrees")))
    body = []
    for of in dict.fromkeys(row["of"] for row in rows):
        found = [row for row in rows if row["of"] == of]
        cells = [cell for row in found for cell in _judged(row)]
        body.append((of, f"{found[0]['published']:g}", *cells))
    return section(
        "MergeComp: published numbers",
        "8 GPUs. Three readings of what its runs do, each with what the one before has: all as in the other tables; "
        "each of the seven messages that come is decoded for itself; the backward pass waits while a gradient is "
        "encoded. Overheads agree if every message is decoded. The gains over dense and over single tensors do not: on "
        "these links the backward pass hides what an uncompressed ResNet101 sends. Unexplained.",
        table(heads, (LEFT,) + (RIGHT,) * (len(heads) - 1), body),
    )


def _judged(row: Row) -> tuple[str, str]:
    return f"{row['computed']:.2f}", agreement(row["computed"], row["published"])


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
    return section(
        "TopKA2A: cost",
        "`topk_a2a` on 4M values at 10 Gbit/s, predicted, beside the published cost without latencies: "
        "(2k + d)(n - 1)/n values of each rank, and so at most twice as fast as dense.",
        table(heads, (RIGHT,) * 5, body),
    )


def conditions(results: Results) -> str:
    heads = ("ranks", "before an all-gather from", "published", "before dense up to", "published")
    names = ("before all-gather from", "from published", "before dense up to", "up to published")
    body = [(str(row["ranks"]), *(f"{row[name]:.4f}" for name in names)) for row in results["conditions"]]
    return section(
        "TopKA2A: conditions",
        "The densities between which `topk_a2a` is quicker than an all-gather of the top values, and than the dense "
        "ring: by the event simulation without latencies, searched by bisection, and as published, 1/(2(n - 1)) and "
        "1/2.",
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
    return section(
        "BytePS: ResNet18 at 100 Mbit/s, 4 hosts",
        "`topk` keeps one value of each tensor, and `randomk` eight. How many steps a run has is not published, nor "
        f"what all else takes: {of['steps']:.0f} steps and {of['rest']:.0f} s were fitted to two of the four. A call "
        "is zenc's, of all gradients at once.",
        table(("compressor", "one call", "run computed", "published", "agrees"), (LEFT,) + (RIGHT,) * 4, body),
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
