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
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.nn.parallel import DistributedDataParallel

import zenc

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from examples.language_model import compare, corpus
from examples.language_model.batches import Batches, windows
from examples.language_model.lane import Lane
from examples.language_model.model import Sizes, new_model, optimisers

SCHEME = Path(__file__).resolve().parents[2] / "schemes" / "balanced.zen"
EVALUATIONS = 5
HELD_OUT_WORDS = 512
"""A rank; the loss over the whole vocabulary takes longer than a training step."""
UNSYNCHRONISED_STEPS = 15
SIZES = {
    "vocabulary": "words, at least 50000",
    "width": "columns of the word vectors",
    "context": "words before the predicted one",
    "batch": "predictions a rank and step",
    "samples": "negative samples a step",
}


@dataclass(frozen=True)
class Settings:
    sizes: Sizes
    steps: int
    rate: float
    scheme: str
    json: Path | None
    profile: Path | None


def parse() -> Settings:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps of each model (default: 300)")
    for size, help in SIZES.items():
        default = getattr(Sizes, size)
        parser.add_argument(f"--{size}", type=int, default=default, help=f"{help} (default: {default})")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--scheme", default=str(SCHEME), help="what zenc compiles (default: schemes/balanced.zen)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to FILE")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="count who holds which rows on every 10th step, and write that to FILE",
    )
    given = vars(parser.parse_args())
    return Settings(Sizes(**{size: given.pop(size) for size in SIZES}), **given)


def share_corpus(size: int) -> corpus.Corpus:
    """Rank 0 reads the library, since it takes seconds, and hands the numbers to the others."""
    found = [corpus.read(size) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    assert found[0] is not None
    return found[0]


def new_lane(name: str, settings: Settings) -> Lane:
    """A model with the weights that every lane and rank starts from."""
    model = new_model(settings.sizes)
    return Lane(name, DistributedDataParallel(model), optimisers(model, settings.rate))


def train(lanes: list[Lane], text: corpus.Corpus, settings: Settings, progress: Progress) -> list[float]:
    """Alternate the lanes' steps; returns the seconds of some backward passes that synchronise nothing."""
    batches = Batches.of_rank(dist.get_rank(), text.train, settings.sizes)
    chance = torch.Generator().manual_seed(2000 + dist.get_rank())
    held_out = windows(text.held_out, HELD_OUT_WORDS, settings.sizes.context, chance)
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
    text = share_corpus(settings.sizes.vocabulary)
    settings = replace(settings, sizes=replace(settings.sizes, vocabulary=text.vocabulary))
    lanes = [new_lane("DDP", settings), new_lane("zenc", settings)]
    profiler = zenc.Profiler(every=10) if settings.profile else None
    handle = zenc.attach(lanes[1].ddp, settings.scheme, profiler=profiler)
    lanes[1].reports = lambda: handle.stats.values()
    with show_progress(console) as progress:
        alone = train(lanes, text, settings, progress)
    result = compare.gather(lanes, alone, text, handle)
    if dist.get_rank() == 0:
        compare.show(console, result)
        compare.save(settings.json, result)
        if profiler and settings.profile:
            profiler.save(settings.profile)
    dist.destroy_process_group()
    return 0 if result["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
