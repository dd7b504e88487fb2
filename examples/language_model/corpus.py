"""A text that every machine with Python has: the sources and docstrings of Python's own standard library.

    Corpus = words x train x held_out            # word ids, by falling frequency; 0 is every unknown word

A *word* is a name with its dots and hyphens (``self.assertEqual``, ``os.path.join``, ``re-raise``), a number, or one
mark of punctuation. Case counts. So the vocabulary is that of a programming language and its English documentation,
with the long tail that both have: many words occur only once, and the statistics say how many.
"""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

WORD = re.compile(r"\w+(?:[.'-]\w+)*|[^\w\s]")
NOT_THE_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}
UNKNOWN = "<unknown>"
SMALLEST_VOCABULARY = 50_000
HELD_OUT_EVERY = 20
"""Every 20th file is never trained on."""


@dataclass(frozen=True)
class Corpus:
    """Word ids of the text to train on and of the text held out, int32, and what they were made from."""

    train: Tensor
    held_out: Tensor
    vocabulary: int
    files: int
    characters: int
    once: int
    """How many words of the vocabulary occur a single time in the training text."""
    rarest: int
    """How often the rarest word of the vocabulary occurs there."""

    def unigram_loss(self) -> float:
        """Nats a word on the held-out text if one knows the frequencies of words and nothing else."""
        counts = torch.bincount(self.train, minlength=self.vocabulary).double() + 1.0
        return -float((counts / counts.sum()).log()[self.held_out.long()].mean())

    def describe(self) -> dict[str, object]:
        return {
            "text": "Python's standard library",
            "files": self.files,
            "characters": self.characters,
            "vocabulary": self.vocabulary,
            "words that occur once": self.once,
            "occurrences of the rarest word": self.rarest,
            "words to train on": len(self.train),
            "words held out": len(self.held_out),
            "held-out words outside the vocabulary": int((self.held_out == 0).sum()),
        }


def read(size: int = 60_000, root: Path | None = None) -> Corpus:
    """The corpus with the ``size`` most frequent words of its training text.

    Raises:
        SystemExit: this Python's library has fewer than 50,000 different words.
    """
    texts = [path.read_text("utf-8", "replace") for path in files_of(root or Path(sysconfig.get_path("stdlib")))]
    counts: Counter[str] = Counter()
    for number, text in enumerate(texts):
        if number % HELD_OUT_EVERY:
            counts.update(WORD.findall(text))
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: size - 1]]
    if len(words) < SMALLEST_VOCABULARY - 1:
        raise SystemExit(f"the standard library here has only {len(words):,} words; {SMALLEST_VOCABULARY:,} are needed")
    ids = {word: number for number, word in enumerate([UNKNOWN, *words])}
    train = [encode(text, ids) for number, text in enumerate(texts) if number % HELD_OUT_EVERY]
    held_out = [encode(text, ids) for text in texts[::HELD_OUT_EVERY]]
    once = sum(counts[word] == 1 for word in words)
    return Corpus(
        torch.cat(train), torch.cat(held_out), len(ids), len(texts), sum(map(len, texts)), once, counts[words[-1]]
    )


def files_of(root: Path) -> list[Path]:
    """The library's own files, in an order that does not depend on the file system."""
    paths = root.rglob("*.py")
    return sorted(path for path in paths if not NOT_THE_LIBRARY.intersection(path.relative_to(root).parts))


def encode(text: str, ids: dict[str, int]) -> Tensor:
    return torch.tensor([ids.get(word, 0) for word in WORD.findall(text)], dtype=torch.int32)
