"""Training by averages of parameters: ds_sync, all-reduce, fewer averages, and groups that never change.

python -m benchmarks.averaging [--steps 300] [--seeds 2] [--json benchmarks/results/averaging.json]

16 ranks in one process train a small character model by SGD with momentum, each with parameters, momentum and batches
of its own. After each step groups average their parameters, by the divisions that zenc resolves; the means are plain
ones of PyTorch, not calls. Batches are from all of the text, or each rank's from a sixteenth of its own. What is told:
bits a character on held-out text, of the mean of all ranks' parameters and of the worst rank's own after the average of
the last step, and how far ranks are apart before it.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from benchmarks.convergence.characters import Sizes, batches, bits_of, loss_of, new_model, text, windows
from benchmarks.pages import DOCS, RESULTS, Part, parser_of, table_of
from zenc.averaging.model import Averaging
from zenc.averaging.resolve import resolve_averaging
from zenc.language.files import load_text

MARKS = "<!-- results of benchmarks/averaging.py -->", "<!-- end of results -->"
PART = Part(DOCS / "guides" / "alternate.md", *MARKS, RESULTS / "averaging.json")
RANKS, SIDE = 16, 4
SMALL = Sizes(context=12, width=16, hidden=128, narrow=64, batch=16)
RATE, MOMENTUM = 0.1, 0.9
GRID = f"[rows({SIDE}), columns({SIDE})]"
WAYS = {
    "all ranks, each step": "[everyone]",
    "ds_sync": GRID,
    "ds_sync in 8 orders": f"{GRID} ranks: shuffled(8)",
    "all ranks, each second step": "[rows(1), everyone]",
    "rows alone": f"[rows({SIDE})]",
}
"""Names of the compared ways -> what alternates. Rows alone make no mean of all, and zenc refuses them."""

Row: TypeAlias = dict[str, float | str]


def averaging_of(divisions: str) -> Averaging:
    """Return the averaging with these ``divisions``, whether a period of it makes the mean or not."""
    return resolve_averaging(load_text(f"averaging tried {{ alternate {divisions} sums: dense_ring }}"))[0]


class Ranks:
    """The parameters [ranks, parameters] and the momenta of all ranks, and one model that takes each in its turn."""

    def __init__(self, seed: int, own_text: bool, sizes: Sizes = SMALL, ranks: int = RANKS) -> None:
        self.sizes, self.model = sizes, new_model(sizes, seed)
        self.values = torch.nn.utils.parameters_to_vector(self.model.parameters()).detach().repeat(ranks, 1)
        self.momenta = torch.zeros_like(self.values)
        self.drawn = [batches(seed, rank) for rank in range(ranks)]
        train = text().train
        self.texts = list(train.chunk(ranks)) if own_text else [train] * ranks

    def step(self, rate: float) -> None:
        for values, momentum, drawn, train in zip(self.values, self.momenta, self.drawn, self.texts, strict=True):
            loss = self.loss(values, windows(train, self.sizes.batch, self.sizes.context, drawn))
            gradients = torch.autograd.grad(loss, list(self.model.parameters()))
            momentum.mul_(MOMENTUM).add_(torch.cat([each.flatten() for each in gradients]))
        self.values -= rate * self.momenta

    def average(self, groups: tuple[tuple[int, ...], ...]) -> None:
        """Set the parameters of all ranks of a group to the mean of the group, for each of ``groups``."""
        for group in groups:
            self.values[list(group)] = self.values[list(group)].mean(dim=0)

    def loss(self, values: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the nats a character of the model with these ``values`` [parameters]."""
        torch.nn.utils.vector_to_parameters(values, self.model.parameters())
        return loss_of(self.model, batch)

    def bits(self, values: Tensor) -> float:
        torch.nn.utils.vector_to_parameters(values.clone(), self.model.parameters())
        return bits_of(self.model, text(), self.sizes.context)

    @property
    def apart(self) -> float:
        """The root mean square of how far ranks are from their mean, over the norm of that."""
        mean = self.values.mean(dim=0)
        return float((self.values - mean).norm(dim=1).square().mean().sqrt() / mean.norm())


def trained(divisions: str, seed: int, own_text: bool, steps: int) -> tuple[float, float, float]:
    """Return bits of the mean and of the worst rank at the end, and the spread of ranks before the last average."""
    averaging, ranks = averaging_of(divisions), Ranks(seed, own_text)
    periods = averaging.groups(RANKS)
    for step in range(steps):
        ranks.step(RATE)
        apart = ranks.apart if step == steps - 1 else 0.0
        ranks.average(periods[step % averaging.period])
    different = {each[0] for each in periods[(steps - 1) % averaging.period]}
    worst = max(ranks.bits(ranks.values[rank]) for rank in different)
    return ranks.bits(ranks.values.mean(dim=0)), worst, apart


def sent(divisions: str) -> float:
    """Return the bytes a rank sends a step by a ring in each group, on average, over those of its parameters."""
    averaging = averaging_of(divisions)
    shares = [2 * (len(groups[0]) - 1) / len(groups[0]) for groups in averaging.groups(RANKS)]
    return sum(shares) / len(shares)


def measured(steps: int, seeds: int) -> Iterator[Row]:
    """Yield a row for each way and kind of text: means over the seeds."""
    for own_text in (False, True):
        for name, divisions in WAYS.items():
            found = [trained(divisions, seed, own_text, steps) for seed in range(seeds)]
            means = [sum(each) / seeds for each in zip(*found, strict=True)]
            spread = max(each[0] for each in found) - min(each[0] for each in found)
            told = dict(zip(("bits", "worst", "apart"), means, strict=True))
            texts = "a sixteenth each" if own_text else "all of it"
            yield {"way": name, "text": texts, "sent": sent(divisions), **told, "spread": spread}


def shown(data: dict[str, Any]) -> str:
    columns = (
        ("averages", "{way}"), ("text of a rank", "{text}"), ("sent a step, in parameters", "{sent:.2f}"),
        ("bits of the mean", "{bits:.3f}"), ("of the worst rank", "{worst:.3f}"), ("apart", "{apart:.1%}"),
    )  # fmt: skip
    return table_of(data["rows"], columns, 2)


def main() -> None:
    options = parser_of(__doc__, steps=300, seeds=2).parse_args()
    torch.set_num_threads(1)
    rows = list(measured(options.steps, options.seeds))
    data = {"steps": options.steps, "seeds": options.seeds, "rows": rows}
    print(PART.keep(options.json, data, shown(data)))


if __name__ == "__main__":
    main()
