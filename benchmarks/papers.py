"""Claims of papers beside what is measured here, a row for each; and how even Ok-Topk's regions are.

python -m benchmarks.papers [--steps 200] [--json benchmarks/results/papers.json]

Eight ranks train the character model by their mean gradient. After ``--steps`` steps the greatest hundredth of each
rank's gradient is cut three ways: by Ok-Topk's regions, whose ends are the means of all ranks' quantiles, of this step
or of one 64 steps ago, as old as they get there; in equal ranges; and by a permutation. Told is the most that a rank
sends to a part, over the mean. All other figures are those of the files of other programs.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.averaging import SMALL
from benchmarks.convergence.characters import batches, loss_of, new_model, text, windows
from benchmarks.pages import DOCS, LEFT, RESULTS, ROOT, Part, json_of, parser_of, save_json, table
from zenc.scheme.model import Contiguous, Mapping, Permutation
from zenc.wire.partitioning import cut

MARKS = "<!-- papers: written by benchmarks/papers.py -->", "<!-- end of papers -->"
PART = Part(ROOT / "benchmarks" / "reports" / "results.md", *MARKS, RESULTS / "papers.json")
RANKS, DENSITY, RATE = 8, 0.01, 0.1
OLD = 64
"""Steps between two searches for regions (Ok-Topk's code for VGG)."""


def gradients(steps: int) -> Iterator[list[Tensor]]:
    """Yield the gradient [parameters] of each rank in each of ``steps`` steps."""
    model, drawn = new_model(SMALL, 0), [batches(0, rank) for rank in range(RANKS)]
    for _ in range(steps):
        found = []
        for each in drawn:
            loss = loss_of(model, windows(text().train, SMALL.batch, SMALL.context, each))
            found.append(torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))]))
        yield found
        values = torch.nn.utils.parameters_to_vector(model.parameters()) - RATE * torch.stack(found).mean(dim=0)
        torch.nn.utils.vector_to_parameters(values, model.parameters())


def regions(taken: list[Tensor], units: int) -> list[int]:
    """Return the ends of the regions of ``taken``, the ascending units of each rank: means of their quantiles."""
    quantiles = [each[[len(each) * part // RANKS for part in range(1, RANKS)]].double() for each in taken]
    return [0, *torch.stack(quantiles).mean(dim=0).long().tolist(), units]


def uneven(parts: list[Tensor]) -> float:
    """Return the most units of a rank in a part over the mean, of ``parts``: each rank's units by their part."""
    return max(float(each.bincount(minlength=RANKS).max()) * RANKS / len(each) for each in parts)


def measured(steps: int) -> dict[str, float]:
    """Return how uneven each way of cutting is after ``steps`` steps."""
    ends, taken, units = dict[int, list[int]](), list[Tensor](), 0
    for step, found in enumerate(gradients(steps)):
        if step in (steps - 1 - OLD, steps - 1):
            units = len(found[0])
            taken = [each.abs().topk(round(DENSITY * units)).indices.sort().values for each in found]
            ends[step] = regions(taken, units)

    def by_ends(of: list[int]) -> float:
        return uneven([torch.bucketize(each, torch.tensor(of[1:-1]), right=True) for each in taken])

    def by(mapping: Mapping) -> float:
        part = torch.from_numpy(cut(mapping, units, 1, RANKS).part)
        return uneven([part[each] for each in taken])

    old, new = (by_ends(each) for each in ends.values())
    others = {"ranges": by(Contiguous()), "permutation": by(Permutation(0x5EED))}
    return {"regions": new, "regions 64 steps ago": old, **others}


class Claim(NamedTuple):
    """A claim of a ``paper`` beside the figures of a ``command`` of ours."""

    paper: str
    claims: str
    measured: Callable[[], str]
    command: str


def _averaged() -> str:
    rows = {each["way"]: each for each in json_of(RESULTS / "averaging.json")["rows"]}
    names = ("all ranks, each step", "ds_sync", "ds_sync in 8 orders")
    bits = ", ".join(f"{rows[name]['worst']:.3f} ({name})" for name in names)
    return f"bits a character of the worst of 16 ranks, each with a text of its own: {bits}"


def _cut() -> str:
    told = ", ".join(f"{value:.2f} ({name})" for name, value in json_of(RESULTS / "papers.json")["uneven"].items())
    return f"most units to a part over the mean, 8 ranks: {told}"


def _sketched() -> str:
    folder, names = DOCS / "benchmarks" / "convergence", ("dense", "sketch", "heavy", "oscar")
    ends = {name: json_of(folder / f"{name}.json")["of_seeds"] for name in names}
    bits = {name: sum(each["looks"][-1]["bits"] for each in of) / len(of) for name, of in ends.items()}
    sent = {name: of[0]["looks"][-1]["sent"] for name, of in ends.items()}
    lost = {name: f"{bits[name] - bits['dense']:+.3f}" for name in names[1:]}
    return (
        f"{sent['dense'] / sent['sketch']:.1f} times fewer bytes than dense, {lost['sketch']} bits a character by "
        f"estimates, {lost['heavy']} by exact values that these find, {lost['oscar']} by values that were great before "
        "(OSCAR)"
    )


def _blocks() -> str:
    peers = json_of(DOCS / "benchmarks" / "library-8.json")["peers"]
    blocks, dense = peers["omnireduce"], peers["torch-dense"]["seconds"]["median"]
    most = blocks["ratio"]["median"] * blocks["wire"]
    return (
        f"rows at 2 %, 8 ranks: {dense / blocks['seconds']['median']:.2f} times as fast as dense, and "
        f"{blocks['ratio']['median']:.1f} times as slow as the best. Streaming could hide waits alone: bytes leave "
        f"{most:.1f} times"
    )


def _groups() -> str:
    rows = json_of(DOCS / "strategies.json")["groups"]
    gains = [each["even split"] / each["two groups"] for each in rows]
    return f"two groups over the even split: {min(gains):.2f} to {max(gains):.2f} times, {len(gains)} steps computed"


def _options() -> str:
    rows = [each for each in json_of(DOCS / "strategies.json")["espresso"] if each["scaling published"]]
    off = sorted(abs(each["scaling"] / each["scaling published"] - 1) for each in rows)
    times = json_of(DOCS / "strategies.json")["times"]
    most = max(each["tables ms"] + each["selection ms"] for each in times)
    median = f"{off[len(off) // 2]:.0%} (median of {len(off)})"
    return f"computed scaling is off by {median}; choosing takes {most:.0f} ms at most"


CLAIMS = (
    Claim(
        "DS-Sync (arXiv 2007.03298)", "as accurate as all ranks at once", _averaged, "python -m benchmarks.averaging"
    ),
    Claim("Ok-Topk (PPoPP 2022)", "regions that follow the gradient are even", _cut, "python -m benchmarks.papers"),
    Claim("SketchSGD (NeurIPS 2019)", "40 times fewer bytes, nothing lost", _sketched, "make bench-convergence"),
    Claim("OmniReduce (SIGCOMM 2021)", "up to 8.2 times as fast as dense", _blocks, "make bench"),
    Claim("MergeComp (arXiv 2103.15195)", "two groups gain 5.5 % over the even split", _groups, "make strategies"),
    Claim("Espresso (EuroSys 2023)", "scaling of table 1; chosen in 99 ms and more", _options, "make strategies"),
)


def shown() -> str:
    """Return the table of papers."""
    rows = [(each.paper, each.claims, each.measured(), f"`{each.command}`") for each in CLAIMS]
    return table(("paper", "claims", "here", "made by"), [LEFT] * 4, rows)


def main() -> None:
    options = parser_of(__doc__, steps=200).parse_args()
    torch.set_num_threads(1)
    found = measured(options.steps)
    print(found)
    if options.json:
        save_json(options.json, {"steps": options.steps, "uneven": found})
    if options.json and options.json.resolve() == PART.results:
        PART.write(shown())


if __name__ == "__main__":
    main()
