"""Bytes of updates of real weights: the character model, trained, and published as bfloat16 and float32.

python -m benchmarks.publish [--steps 200] [--publications 5] [--json benchmarks/results/publish.json]

The model is trained by AdamW at a rate of 0.001 first, and then at each rate with a publication every so many steps.
A change as an int32 index and its value takes 6 bytes of bfloat16 and 8 of float32; a tensor that travels whole is
counted as all of its numbers, as zenc sends it. Bytes are counted; seconds are of no interest here.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import torch

from benchmarks.convergence.characters import SIZES, batches, loss_of, new_model, text, windows
from benchmarks.pages import DOCS, RESULTS, Part, parser_of, table_of
from zenc.tables.update import update_kernels

MARKS = "<!-- results of benchmarks/publish.py -->", "<!-- end of results -->"
PART = Part(DOCS / "guides" / "publish.md", *MARKS, RESULTS / "publish.json")
FIRST_RATE = 1e-3
RATES = (1e-3, 1e-4, 1e-5, 1e-6)
EVERY = (1, 10)
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
INDEX_BYTES = 4

Row: TypeAlias = dict[str, float | str]
Weights: TypeAlias = list[torch.Tensor]


class Training:
    """The model, its optimizer and its batches."""

    def __init__(self) -> None:
        self.model, self.drawn = new_model(SIZES, 0), batches(0, 0)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=FIRST_RATE)

    def steps(self, count: int, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for _ in range(count):
            self.optimizer.zero_grad()
            batch = windows(text().train, SIZES.batch, SIZES.context, self.drawn)
            torch.autograd.backward(loss_of(self.model, batch))
            self.optimizer.step()

    def weights(self, dtype: torch.dtype) -> Weights:
        return [each.detach().to(dtype, copy=True) for each in self.model.parameters()]


def measured(steps: int, publications: int) -> Iterator[Row]:
    training = Training()
    training.steps(steps, FIRST_RATE)
    for rate in RATES:
        for every in EVERY:
            held = {name: training.weights(dtype) for name, dtype in DTYPES.items()}
            counts = {name: [0, 0, 0] for name in DTYPES}
            for _ in range(publications):
                training.steps(every, rate)
                for name, dtype in DTYPES.items():
                    new = training.weights(dtype)
                    counts[name] = [a + b for a, b in zip(counts[name], published(held[name], new), strict=True)]
                    held[name] = new
            for name in DTYPES:
                yield row(rate, every, name, *counts[name])


def published(held: Weights, new: Weights) -> tuple[int, int, int]:
    """Return numbers, changes and bytes of the update from ``held`` to ``new``."""
    updates = [update_kernels().encode(a, b) for a, b in zip(held, new, strict=True)]
    size = sum(b.nbytes if update is None else update.numel() for update, b in zip(updates, new, strict=True))
    changed = sum(int((a != b).sum()) for a, b in zip(held, new, strict=True))
    return sum(each.numel() for each in new), changed, size


def row(rate: float, every: int, name: str, numbers: int, changed: int, size: int) -> Row:
    """Return the row of as many numbers, changes and bytes, of all publications together."""
    value = DTYPES[name].itemsize
    found: Row = {"rate": rate, "every": every, "dtype": name, "changed": changed / numbers, "bytes": size / changed}
    return found | {
        "pairs_over_ours": changed * (INDEX_BYTES + value) / size,
        "whole_over_ours": numbers * value / size,
    }


def shown(data: dict[str, Any]) -> str:
    """Return a table with a row for each dtype, rate and number of steps between publications."""
    columns = (
        ("dtype", "{dtype}"), ("rate", "{rate:g}"), ("steps between", "{every}"), ("changed", "{changed:.1%}"),
        ("bytes a change", "{bytes:.2f}"), ("index and value over ours", "{pairs_over_ours:.1f}"),
        ("whole over ours", "{whole_over_ours:.1f}"),
    )  # fmt: skip
    return table_of(data["rows"], columns, 1)


def main() -> None:
    options = parser_of(__doc__, steps=200, publications=5).parse_args()
    rows = sorted(measured(options.steps, options.publications), key=lambda each: str(each["dtype"]))
    data = {"steps": options.steps, "publications": options.publications, "rows": rows}
    print(PART.keep(options.json, data, shown(data)))


if __name__ == "__main__":
    main()
