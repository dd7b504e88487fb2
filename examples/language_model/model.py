"""A neural language model over a large vocabulary (Bengio et al., 2003), trained with sampled softmax.

The two tables, words in and words out, hold nearly all of the parameters, and a batch touches a few hundred rows of
each: their gradients are sparse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """Of the model and of its batches; ``batch`` and ``samples`` are those of one rank and step."""

    vocabulary: int = 60_000
    width: int = 64
    context: int = 6
    batch: int = 1024
    samples: int = 1024


class LanguageModel(nn.Module):
    """Predicts a word from the ``context`` words before it.

    Args:
        vocabulary: Number of words; word 0 is the most frequent, and so on down.
        width: Columns of the word vectors.
        context: Number of words before the predicted one.
        sparse: Whether the gradients of the tables are.
    """

    def __init__(self, vocabulary: int, width: int, context: int, sparse: bool = True) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.words_in = nn.Embedding(vocabulary, width, sparse=sparse)
        self.words_out = nn.Embedding(vocabulary, width + 1, sparse=sparse)  # the last column is the word's bias
        self.hidden = nn.Sequential(nn.Linear(context * width, width), nn.Tanh(), nn.Linear(width, width))
        nn.init.normal_(self.words_in.weight, std=0.1)
        nn.init.normal_(self.words_out.weight, std=0.01)

    def tables(self) -> list[Tensor]:
        """The parameters of which a step touches few rows."""
        return [self.words_in.weight, self.words_out.weight]

    def forward(self, before: Tensor, target: Tensor, negatives: Tensor) -> Tensor:
        """Sampled-softmax loss, a scalar.

        Args:
            before: ``(batch, context)`` int64, the words before each target.
            target: ``(batch,)`` int64.
            negatives: ``(samples,)`` int64, drawn by `draw_negatives`, shared by the batch.
        """
        state = self.state(before)
        rows = self.words_out(torch.cat([target, negatives]))
        true, wrong = rows[: len(target)], rows[len(target) :]
        right = (state * true).sum(1, keepdim=True) - self.log_expected(target, len(negatives)).unsqueeze(1)
        others = state @ wrong.T - self.log_expected(negatives, len(negatives))
        others = others.masked_fill(target.unsqueeze(1) == negatives, -math.inf)  # the target itself, drawn by chance
        return functional.cross_entropy(torch.cat([right, others], 1), torch.zeros_like(target))

    def state(self, before: Tensor) -> Tensor:
        """What is known after ``before``: ``(batch, width + 1)``; the last column is 1, to meet the bias."""
        state: Tensor = self.hidden(self.words_in(before).flatten(1))
        return torch.cat([state, state.new_ones(len(state), 1)], 1)

    def log_expected(self, words: Tensor, samples: int) -> Tensor:
        """Log of how often a word is expected among the negatives (its logit is corrected by that)."""
        share = torch.log1p(1.0 / (words + 1.0)) / math.log(self.vocabulary + 1.0)
        return (samples * share).log()

    @torch.no_grad()
    def full_loss(self, before: Tensor, target: Tensor, chunk: int = 512) -> float:
        """Nats a word over the whole vocabulary, nothing sampled."""
        total = 0.0
        for context, wanted in zip(torch.split(before, chunk), torch.split(target, chunk), strict=True):
            logits = self.state(context) @ self.words_out.weight.T
            total += float(functional.cross_entropy(logits, wanted, reduction="sum"))
        return total / len(target)


def new_model(sizes: Sizes, sparse: bool = True) -> LanguageModel:
    """With the same weights every time, everywhere."""
    torch.manual_seed(20)
    return LanguageModel(sizes.vocabulary, sizes.width, sizes.context, sparse)


def optimisers(model: LanguageModel, rate: float = 0.1) -> tuple[torch.optim.Optimizer, ...]:
    """All optimisers of ``model``, whether its gradients are sparse or not."""
    # Rare words need longer strides than frequent ones, hence Adagrad. It starts above zero, so that a gradient that is
    # zero but for rounding moves nothing: else two ways to synchronise would part for no other reason than that.
    tables = torch.optim.Adagrad(model.tables(), lr=rate, initial_accumulator_value=1e-7)
    return tables, torch.optim.SGD(model.hidden.parameters(), lr=2 * rate)


def draw_negatives(vocabulary: int, samples: int, generator: torch.Generator) -> Tensor:
    """Word ids by the log-uniform law, near to that of words sorted by frequency (Zipf)."""
    uniform = torch.rand(samples, generator=generator, dtype=torch.float64)
    return ((uniform * math.log(vocabulary + 1.0)).exp().long() - 1).clamp(0, vocabulary - 1)
