"""Trains a character model with lossy schemes, and writes docs/research/convergence.md of what came of it.

python -m benchmarks.convergence                        # all runs, on two cores, then the page anew
python -m benchmarks.convergence --only top sign        # some of them again
python -m benchmarks.convergence --page                 # the page alone, from the results that there are
python -m benchmarks.convergence --steps 50 --seeds 1 --to /tmp/tried
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.convergence.characters import SIZES, Sizes, text
from benchmarks.convergence.curves import FOLDER, Curve, Curves, save
from benchmarks.convergence.page import PAGE, draw, written
from benchmarks.convergence.runs import EVERY, RUNS, STEPS, Run
from benchmarks.convergence.trainer import Look, Trainer, digest
from zenc import __version__


def main() -> None:
    options = parser().parse_args()
    if not options.page:
        train([run for run in RUNS if not options.only or run.name in options.only], options)
    if options.to is None:
        draw()
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.convergence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [run.name for run in RUNS]
    made.add_argument("--only", nargs="+", choices=names, default=[], metavar="RUN", help=" ".join(names))
    made.add_argument("--page", action="store_true", help="only write the page, from the results that there are")
    made.add_argument("--steps", type=int, default=STEPS, help=f"of each run ({STEPS}); other numbers with --to")
    made.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="other ones than each run's, with --to")
    made.add_argument("--processes", type=int, default=2, help="runs at a time (2)")
    made.add_argument("--to", type=Path, metavar="FOLDER", help="where results go; the page stays as it is then")
    return made


def train(runs: Sequence[Run], options: argparse.Namespace) -> None:
    """All runs at all seeds, some at a time; a file is written when its run has been trained at each seed."""
    text()  # read once, before processes are forked
    started, about = time.monotonic(), about_all(options.steps)
    with ProcessPoolExecutor(options.processes, get_context("fork")) as pool:
        waiting: dict[str, list[Future[Curve]]] = {
            run.name: [pool.submit(curve, run, seed, options.steps) for seed in options.seeds or run.seeds]
            for run in runs
        }
        for name, futures in waiting.items():
            found = Curves(name, about, [future.result() for future in futures])
            save(found, options.to or FOLDER)
            bits = " ".join(f"{each.end.bits:.3f}" for each in found.of_seeds)
            print(f"{time.monotonic() - started:6.0f} s  {name}: {bits} bits a character", file=sys.stderr)


def curve(run: Run, seed: int, steps: int, sizes: Sizes = SIZES) -> Curve:
    """``run`` at one seed, from its first step to its last."""
    torch.set_num_threads(1)
    started = time.process_time()
    trainer = Trainer(run, seed, sizes)
    looks: list[Look] = []
    for step in range(steps):
        if step == steps // 2 and run.halfway:
            trainer = restarted(trainer, seed)
        trainer.step()
        if trainer.steps % EVERY == 0 or trainer.steps == steps:
            looks.append(trainer.look())
    return Curve(seed, looks, digest(trainer.parameters), time.process_time() - started)


def restarted(trainer: Trainer, seed: int) -> Trainer:
    """A new trainer, from a checkpoint of ``trainer``; where its run says so, without the residuals."""
    file = io.BytesIO()
    torch.save(trainer.state_dict(), file)
    file.seek(0)
    again = Trainer(trainer.run, seed, trainer.sizes)
    again.load_state_dict(torch.load(file, weights_only=True), forget=trainer.run.halfway == "forgotten")
    return again


def about_all(steps: int) -> dict[str, Any]:
    """Versions, the machine, and the scale."""
    git = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "zenc": __version__}
    corpus = hashlib.sha256(text().train.numpy().tobytes()).hexdigest()[:12]
    return {**versions, "cores": os.cpu_count(), "commit": git.stdout.strip(), "text": corpus, "steps": steps}


if __name__ == "__main__":
    main()
