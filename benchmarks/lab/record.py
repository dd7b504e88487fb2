"""Records which rows each rank of a real training run touches, a file a step: index sets for ``--workload trace``.

    python -m benchmarks.lab.record --ranks 16 --steps 3

What trains is the language model of ``examples/language_model``, on the batches that its ranks have, with the mean of
their gradients. All ranks are played by this one process, since which rows a rank touches does not depend on how
gradients travel. A row is one of its gradient as PyTorch makes it, zero or not. The text is the standard library of the
Python that runs this, so another Python records other rows.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.lab.settings import TRACES
from benchmarks.pages import new_parser
from examples.language_model import corpus
from examples.language_model.batches import Batches
from examples.language_model.model import LanguageModel, Sizes, new_model, optimisers

Rows = npt.NDArray[np.int64]
TABLE = "words_in.weight"
"""The table of the words before the one that is predicted."""


def main() -> None:
    options = parser().parse_args()
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # Adagrad's own
    torch.set_num_threads(1)
    text = corpus.read()
    sizes = Sizes(vocabulary=text.vocabulary)
    options.to.mkdir(parents=True, exist_ok=True)
    for number, held in enumerate(steps(text.train, sizes, options.ranks, options.steps), 1):
        file = options.to / f"language_model-{number}.npz"
        save(file, sizes.vocabulary, sizes.width, held)
        counts = [len(rows) for rows in held]
        print(f"{file}: {min(counts)} to {max(counts)} rows a rank, {file.stat().st_size} bytes", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    made = new_parser(__doc__, "benchmarks.lab.record")
    made.add_argument("--ranks", type=int, default=16, metavar="N")
    made.add_argument("--steps", type=int, default=3, metavar="N", help="of training, the first ones (3)")
    made.add_argument("--to", type=Path, default=TRACES, metavar="FOLDER")
    return made


def steps(text: torch.Tensor, sizes: Sizes, ranks: int, count: int) -> Iterator[list[Rows]]:
    """Yield for each step the rows that each rank touches of TABLE, ascending."""
    model = new_model(sizes)
    optimiser = optimisers(model)
    batches = [Batches.of_rank(rank, text, sizes) for rank in range(ranks)]
    for _ in range(count):
        yield [touched(model, of_rank, ranks) for of_rank in batches]
        for part in optimiser:
            part.step()
            part.zero_grad()


def touched(model: LanguageModel, batches: Batches, ranks: int) -> Rows:
    """Return the rows of TABLE in the next batch's gradient, whose share of the mean is added to ``model``'s."""
    batch = batches.next()
    loss = model(batch.before, batch.target, batch.negatives) / ranks
    own = dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters())), strict=True))
    for name, parameter in model.named_parameters():
        parameter.grad = own[name] if parameter.grad is None else parameter.grad + own[name]
    rows: Rows = own[TABLE].coalesce().indices()[0].numpy()
    return rows


def save(file: Path, units: int, width: int, held: list[Rows]) -> None:
    """Write the file as ``zenc explain --indices`` reads it, in as few bytes as will do."""
    narrow = np.min_scalar_type(units - 1)
    ranks: dict[str, Any] = {f"rank{rank}": rows.astype(narrow) for rank, rows in enumerate(held)}
    np.savez_compressed(file, units=np.int64(units), width=np.int64(width), dtype=np.str_("f32"), **ranks)


if __name__ == "__main__":
    main()
