"""What a rank trains on, step after step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from examples.language_model.model import Sizes, draw_negatives


@dataclass(frozen=True)
class Batch:
    """``before`` (batch, context), ``target`` (batch,) and ``negatives`` (samples,), all int64."""

    before: Tensor
    target: Tensor
    negatives: Tensor


@dataclass(frozen=True)
class Batches:
    """Words of this rank's own, and the negatives that all ranks draw from one seed.

    One seed means fewer different rows to sum (the "seeding" of Patwary et al., Language Modeling at Scale, 2018).
    """

    text: Tensor
    sizes: Sizes
    own: torch.Generator
    common: torch.Generator

    @staticmethod
    def of_rank(rank: int, text: Tensor, sizes: Sizes) -> Batches:
        """The batches of ``rank`` from ``text`` (words,), the same in every run."""
        return Batches(text, sizes, torch.Generator().manual_seed(1000 + rank), torch.Generator().manual_seed(1))

    def next(self) -> Batch:
        words = windows(self.text, self.sizes.batch, self.sizes.context, self.own)
        negatives = draw_negatives(self.sizes.vocabulary, self.sizes.samples, self.common)
        return Batch(words[:, :-1], words[:, -1], negatives)


def windows(text: Tensor, count: int, context: int, generator: torch.Generator) -> Tensor:
    """``(count, context + 1)`` words that follow each other, from random places of ``text``."""
    ends = torch.randint(context, len(text), (count, 1), generator=generator)
    return text[ends + torch.arange(-context, 1)].long()
