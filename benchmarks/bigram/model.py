"""The table's model: a row for the two last words, found by a hash, from which the class of the next word is predicted.

The hash is that of language models with such tables (modded-nanogpt): xor(36313 x[i], 27191 x[i - 1]) mod (rows - 1).
Classes are the most frequent words, and one for all others. What turns a row into scores is fixed, so that nothing
but the table is trained.
"""

import mmap
from dataclasses import dataclass

import torch
from torch.nn import functional

from benchmarks.lab.settings import Run

TORCH = "torch-coo"
WRITTEN, WRITTEN_ON_DEMAND = "all-to-all", "all-to-all, on demand"
ZENC, ZENC_ON_DEMAND = "zenc", "zenc, on demand"
LANES = (WRITTEN, WRITTEN_ON_DEMAND, TORCH, ZENC, ZENC_ON_DEMAND)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of ``rows`` x ``width`` float32; a rank takes ``tokens`` of its own in each step."""

    rows: int = 377_280
    width: int = 768
    tokens: int = 1024

    @property
    def bytes(self) -> int:
        return 4 * self.rows * self.width


@dataclass(frozen=True, slots=True)
class Bigrams(Run[Table]):
    """The settings of one point."""

    load = Table


CLASSES = 256


def rows_of(words: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the rows [n - 1] int64 for each two neighbours in ``words`` [n], any integers."""
    words = words.long()
    return ((36313 * words[1:]) ^ (27191 * words[:-1])) % (rows - 1)


def new_table(table: Table) -> torch.nn.Parameter:
    """Return zeros [rows, width]; only pages with rows that are written take memory, and pages are small ones."""
    memory = mmap.mmap(-1, table.bytes)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.nn.Parameter(torch.frombuffer(memory, dtype=torch.float32).view(table.rows, table.width))


@dataclass(frozen=True, slots=True)
class Batch:
    """The ``rows`` [tokens] int64 to look up, and the class ``target`` [tokens] int64 of the word after each."""

    rows: torch.Tensor
    target: torch.Tensor


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches of ``rank``: neighbours in ``text`` [n], from a place of its own in each step."""

    text: torch.Tensor
    table: Table
    rank: int

    def of_step(self, step: int) -> Batch:
        chance = torch.Generator().manual_seed(1_000_003 * step + self.rank)
        count = self.table.tokens
        start = int(torch.randint(len(self.text) - count - 1, (1,), generator=chance))
        words = self.text[start : start + count + 2].long()
        return Batch(rows_of(words[:-1], self.table.rows), words[2:].clamp(max=CLASSES - 1))


class Scores:
    """The fixed part of the model."""

    def __init__(self, width: int) -> None:
        chance = torch.Generator().manual_seed(1)
        self.weight = torch.randn(CLASSES, width, generator=chance) / width**0.5

    def gradient(self, table: torch.Tensor, batch: Batch) -> tuple[float, torch.Tensor]:
        """Return the loss of ``table`` [rows, width] on ``batch``, and its gradient, sparse and coalesced."""
        leaf = table.detach().requires_grad_()
        loss = functional.cross_entropy(
            functional.embedding(batch.rows, leaf, sparse=True) @ self.weight.T, batch.target
        )
        (found,) = torch.autograd.grad(loss, leaf)
        return float(loss), found.coalesce()
