"""Profiles of the word model by dry runs on the lab's hosts, from which its steps are predicted."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.lab.launch import launch
from benchmarks.lab.settings import ROOT
from benchmarks.lab.training.settings import Training
from examples.language_model import corpus
from examples.language_model.model import Sizes
from zenc.simulator.training.model_profile import ModelProfile, read_model_profile

WORKER = "benchmarks.lab.steps.profile_worker"
LIMIT = 300.0
"""Seconds of a dry run, at most."""


def file_of(ranks: int) -> Path:
    """Return the file of the profile among ``ranks`` hosts."""
    return ROOT / "benchmarks" / "lab" / "models" / f"words-{ranks}.json"


@cache
def word_model(ranks: int) -> ModelProfile:
    """Return the profile that ``measure_words`` found."""
    return read_model_profile(file_of(ranks))


def measure_words(ranks: int) -> None:
    """Write the profile of a dry run among ``ranks`` hosts, with the rows of its tables that each of them holds."""
    text = corpus.read()
    run = Training(ranks, "100mbit", 70_000, "2mb", Sizes(vocabulary=text.vocabulary), (), "", 1, 1, 0, 1)
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder, "words.npy")
        np.save(words, text.train.numpy())
        record = launch(run, LIMIT, (WORKER, str(words)))[0]
    file_of(ranks).parent.mkdir(exist_ok=True)
    file_of(ranks).write_text(record["profile"], encoding="utf-8")
