"""Train one language model twice at once, in 4 processes: with DDP's own sparse all-reduce, and with zenc.

    torchrun --standalone --nproc-per-node 4 examples/language_model/train.py

Both models start from the same weights and see the same batches in alternating steps, so that both feel the same noise
of the machine. Gradients of the two embedding tables are sparse. At the end comes a table of what was measured; the
exit status is 1 if the two runs do not have the same losses.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.nn.parallel import DistributedDataParallel

import zenc

sys.path.insert(0, str(Path(__file__).parent))
import compare
import corpus
from lane import Batch, Lane
from model import LanguageModel, draw_negatives

SCHEME = Path(__file__).resolve().parents[2] / "schemes" / "balanced.zen"
EVALUATIONS = 5
HELD_OUT_WORDS = 512
"""A rank; the loss over the whole vocabulary takes longer than a training step."""
UNSYNCHRONISED_STEPS = 15


@dataclass(frozen=True)
class Settings:
    steps: int
    vocabulary: int
    width: int
    context: int
    batch: int
    samples: int
    rate: float
    scheme: str
    json: Path | None


def parse() -> Settings:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps of each model (default: 300)")
    parser.add_argument("--vocabulary", type=int, default=60_000, help="words (default: 60000, at least 50000)")
    parser.add_argument("--width", type=int, default=64, help="columns of the word vectors (default: 64)")
    parser.add_argument("--context", type=int, default=6, help="words before the predicted one (default: 6)")
    parser.add_argument("--batch", type=int, default=1024, help="predictions a rank and step (default: 1024)")
    parser.add_argument("--samples", type=int, default=1024, help="negative samples a step (default: 1024)")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--scheme", default=str(SCHEME), help="what zenc compiles (default: schemes/balanced.zen)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to FILE")
    return Settings(**vars(parser.parse_args()))


def share_corpus(size: int) -> corpus.Corpus:
    """Rank 0 reads the library, since it takes seconds, and hands the numbers to the others."""
    found = [corpus.read(size) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    assert found[0] is not None
    return found[0]


def new_lane(name: str, settings: Settings, vocabulary: int) -> Lane:
    """A model with the weights that every lane and rank starts from."""
    torch.manual_seed(20)
    model = LanguageModel(vocabulary, settings.width, settings.context)
    # Rare words need longer strides than frequent ones, hence Adagrad. It starts above zero, so that a gradient that is
    # zero but for rounding moves nothing: else the two lanes would part for no other reason than that.
    tables = torch.optim.Adagrad(model.tables(), lr=settings.rate, initial_accumulator_value=1e-7)
    hidden = torch.optim.SGD(model.hidden.parameters(), lr=2 * settings.rate)
    return Lane(name, DistributedDataParallel(model), (tables, hidden))


@dataclass(frozen=True)
class Batches:
    """What this rank trains on: words of its own, and the negatives that all ranks draw from one seed.

    One seed means fewer different rows to sum (the "seeding" of Patwary et al., Language Modeling at Scale, 2018).
    """

    text: corpus.Corpus
    settings: Settings
    own: torch.Generator
    common: torch.Generator

    def next(self) -> Batch:
        words = windows(self.text.train, self.settings.batch, self.settings.context, self.own)
        negatives = draw_negatives(self.text.vocabulary, self.settings.samples, self.common)
        return Batch(words[:, :-1], words[:, -1], negatives)


def windows(text: torch.Tensor, count: int, context: int, generator: torch.Generator) -> torch.Tensor:
    """``(count, context + 1)`` words that follow each other, from random places of ``text``."""
    ends = torch.randint(context, len(text), (count, 1), generator=generator)
    return text[ends + torch.arange(-context, 1)].long()


def train(lanes: list[Lane], text: corpus.Corpus, settings: Settings, progress: Progress) -> list[float]:
    """Alternate the lanes' steps; returns the seconds of some backward passes that synchronise nothing."""
    own, common = torch.Generator().manual_seed(1000 + dist.get_rank()), torch.Generator().manual_seed(1)
    held_out = windows(text.held_out, HELD_OUT_WORDS, settings.context, own)
    batches = Batches(text, settings, own, common)
    bar = progress.add_task("training both models", total=settings.steps, loss="")
    every = max(1, settings.steps // EVALUATIONS)
    for step in range(settings.steps):
        if step % every == 0:
            evaluate(lanes, step, held_out)
        batch = batches.next()
        for lane in lanes if step % 2 else reversed(lanes):
            loss = lane.step(batch)
        progress.update(bar, advance=1, loss=f"loss {loss:.3f}")
    evaluate(lanes, settings.steps, held_out)
    return [lanes[0].backward_alone(batch) for _ in range(UNSYNCHRONISED_STEPS)]


def evaluate(lanes: list[Lane], step: int, held_out: torch.Tensor) -> None:
    for lane in lanes:
        lane.evaluate(step, held_out[:, :-1], held_out[:, -1])


def show_progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=dist.get_rank() != 0)


def main() -> int:
    settings = parse()
    warnings.filterwarnings("ignore", message="Sparse invariant checks")  # Adagrad's own, on every rank
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    console = Console(quiet=dist.get_rank() != 0)
    console.print(f"reading Python's standard library; {dist.get_world_size()} processes, gloo", highlight=False)
    text = share_corpus(settings.vocabulary)
    lanes = [new_lane("DDP", settings, text.vocabulary), new_lane("zenc", settings, text.vocabulary)]
    handle = zenc.attach(lanes[1].ddp, settings.scheme)
    lanes[1].reports = lambda: handle.stats.values()
    with show_progress(console) as progress:
        alone = train(lanes, text, settings, progress)
    result = compare.gather(lanes, alone, text, handle)
    if dist.get_rank() == 0:
        compare.show(console, result)
        compare.save(settings.json, result)
    dist.destroy_process_group()
    return 0 if result["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
