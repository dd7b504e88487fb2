"""Characters or words of the Python standard library's sources, and a model that predicts the next one.

Text = train x held_out x symbols                    # numbers of characters or words; 0 is every one that is rare
"""

import math
import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.language_model.corpus import HELD_OUT_EVERY, files_of

ALPHABET = 96
"""Characters that the model tells apart, with one for all the rare ones."""
WORDS = 2048
"""Words, punctuation marks and ends of lines that the model tells apart, with one for all the rare ones."""
FILES = 400
"""The number of the library's files that are read: enough for more predictions than are made."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model, and of the batch of a rank in a step."""

    context: int = 20
    width: int = 24
    hidden: int = 768
    narrow: int = 512
    batch: int = 32


SIZES = Sizes()
"""The model of the page."""


@dataclass(frozen=True)
class Text:
    """Numbers below ``symbols``, uint8 of characters or int16 of words, of texts to train on and to be held out."""

    train: Tensor
    held_out: Tensor
    symbols: int = ALPHABET


@cache
def text(files: int = FILES, words: bool = False) -> Text:
    """Return the text, of which every 20th file is held out; another Python has another one."""
    texts = [path.read_text("utf-8", "replace") for path in files_of(Path(sysconfig.get_path("stdlib")))[:files]]
    found = [re.findall(r"\w+|[^\w\s]|\n", each) if words else list(each) for each in texts]
    symbols, dtype = (WORDS, torch.int16) if words else (ALPHABET, torch.uint8)
    counts: Counter[str] = Counter()
    for number, each in enumerate(found):
        if number % HELD_OUT_EVERY:
            counts.update(each)
    common = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[: symbols - 1]
    table = {symbol: number for number, symbol in enumerate(common, 1)}
    encoded = [torch.tensor([table.get(symbol, 0) for symbol in each], dtype=dtype) for each in found]
    train = [each for number, each in enumerate(encoded) if number % HELD_OUT_EVERY]
    return Text(torch.cat(train), torch.cat(encoded[::HELD_OUT_EVERY]), symbols)


class CharacterModel(nn.Module):
    """Two hidden layers over the vectors of the characters before (Bengio et al., 2003); 0.8 million parameters."""

    def __init__(self, sizes: Sizes, symbols: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(symbols, sizes.width)
        self.first = nn.Linear(sizes.context * sizes.width, sizes.hidden)
        self.second = nn.Linear(sizes.hidden, sizes.narrow)
        self.last = nn.Linear(sizes.narrow, symbols)

    def forward(self, before: Tensor) -> Tensor:
        """Return the logits [batch, symbols] of the character after ``before`` [batch, context], int64."""
        hidden = torch.relu(self.first(self.letters(before).flatten(1)))
        logits: Tensor = self.last(torch.relu(self.second(hidden)))
        return logits


def new_model(sizes: Sizes, seed: int, symbols: int = ALPHABET) -> CharacterModel:
    """Return a model with the same weights for the same ``seed``, on every rank and in every run."""
    torch.manual_seed(seed)
    return CharacterModel(sizes, symbols)


def windows(of: Tensor, count: int, context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return ``count`` windows from random places: the text before [count, context], and after [count]; int64."""
    ends = torch.randint(context, len(of), (count, 1), generator=generator)
    found = of[ends + torch.arange(-context, 1)].long()
    return found[:, :-1], found[:, -1]


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


HELD_OUT = 4096
"""Predictions on held-out text: the same ones in all runs."""


def bits_of(model: nn.Module, of: Text, context: int) -> float:
    """Return the bits a character or word of ``model`` on the text held out."""
    batch = windows(of.held_out, HELD_OUT, context, torch.Generator().manual_seed(0))
    with torch.no_grad():
        return float(loss_of(model, batch)) / math.log(2)


def batches(seed: int, rank: int) -> torch.Generator:
    """Return the generator of the batches that ``rank`` draws in the run of ``seed``."""
    return torch.Generator().manual_seed(1_000_003 * seed + rank)
