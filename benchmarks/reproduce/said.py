"""The case of NMT and the statements of the paper, as the page has them."""

from __future__ import annotations

from benchmarks.markdown import LEFT, RIGHT, table
from benchmarks.reproduce.figures import picture
from benchmarks.reproduce.published import PUBLISHED, SPARSITY
from benchmarks.reproduce.results import Results


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
        f"behind SparCML by the {behind['few_agsparse']} that are published, Balanced Parallelism is behind "
        f"by {pairs}; "
        f"published are {behind['few_balanced']}."
    )
    return "\n\n".join(
        (
            "## The case of NMT",
            picture("nmt"),
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
        f"**An overlap of {SPARSITY['overlap_that_suffices']:g} suffices among 16 GPUs for Balanced "
        "Parallelism to be "
        "better than Hierarchical Centralization.** That depends on how ranks overlap: it is from "
        f"{of_16['random subset']:.3f} on if they draw from a common subset, from {of_16['words']:.3f} with "
        "words (Zipf's "
        f"law, density 0.1 %), but only from {of_16['common core']:.2f} if they share a core and nothing "
        "else. The overlap "
        "from which on it sends less:"
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
        f"**A single hash function loses, at 10 % density, {stated} the memory of the dense tensor.** With x "
        "items a slot "
        "a random hash overwrites 1 - (1 - e^-x) / x of the items. The published shares follow for a quarter of the "
        "stated memories, or for four times the density:"
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
        "**With four hash functions fewer than 1 % of the units collide.** At the load of the evaluation, r1 "
        "= 2 |G| d, "
        "more do; from a load of about 0.4 down it is true. *All together*: all units try the first "
        "function, those that "
        "are left the second, and so on, as threads in step do; it is also drawn. *One by one*: each unit "
        "tries all its "
        "functions before the next one."
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
