"""Training compared on a slow network that this machine plays: DDP as it is, and DDP with gradients summed by zenc.

    python -m benchmarks.lab.training --ranks 8 --rate 100mbit --schemes holders balanced

The model is the language model of examples/language_model, its text the standard library of this Python. Steps of all
lanes take turns, from equal weights and on equal batches, so their losses have to be equal. Network, bytes and
times are as in ``python -m benchmarks.lab``.
"""

import argparse
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from benchmarks.lab.launch import launch
from benchmarks.lab.options import add_turns, carry_out, new_parser, run_of
from benchmarks.lab.settings import DDP, NO_SYNC
from benchmarks.lab.training.report import Report, Training, report, table
from benchmarks.pages import save_json
from examples.language_model import corpus
from examples.language_model.model import Sizes

SCHEMES = ("holders", "balanced")


def measured(options: argparse.Namespace) -> str:
    found = run(training_of(options), options.limit)
    save_json(options.json, found.to_json())
    return table(found)


def parser() -> argparse.ArgumentParser:
    made = new_parser("benchmarks.lab.training", __doc__)
    made.add_argument("--schemes", nargs="*", default=list(SCHEMES), metavar="SCHEME", help="names or .zen files")
    made.add_argument(
        "--peers", nargs="*", choices=(*DDP, NO_SYNC), default=list(DDP), metavar="PEER", help=" ".join((*DDP, NO_SYNC))
    )
    for size in fields(Sizes):
        made.add_argument(f"--{size.name}", type=int, default=size.default, metavar="N", help=f"({size.default})")
    add_turns(made, dense_rounds=2)
    return made


def training_of(options: argparse.Namespace) -> Training:
    """Return the training in ``options``; raises LabError for impossible options."""
    run = run_of(options, tuple(dict.fromkeys([*options.schemes, *options.peers])))
    return Training(workload=Sizes(**{size.name: getattr(options, size.name) for size in fields(Sizes)}), **run)


def run(training: Training, limit: float, text: corpus.Corpus | None = None, shared_memory: bool = False) -> Report:
    """Return the report of a training, whose text is read once; ranks get its word ids in a file.

    ``shared_memory``: processes of one machine may exchange through it.
    """
    text = text or corpus.read(training.workload.vocabulary)
    training = replace(training, workload=replace(training.workload, vocabulary=text.vocabulary))
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "words.npy"
        np.save(words, text.train.numpy())
        records = launch(training, limit, ("benchmarks.lab.training.worker", str(words)), shared_memory)
    return report(training, text.describe(), records)


if __name__ == "__main__":
    carry_out(lambda: measured(parser().parse_args()))
