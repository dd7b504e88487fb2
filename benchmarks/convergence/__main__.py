"""Trains a character model with lossy schemes, and writes benchmarks/reports/convergence.md of what came of it.

python -m benchmarks.convergence                        # all runs, on two cores, then the page
python -m benchmarks.convergence --only top sign        # some of them again
python -m benchmarks.convergence --page                 # the page alone, from the results that there are
python -m benchmarks.convergence --steps 50 --seeds 1 --to /tmp/tried
"""

import argparse
import hashlib
import io
import os
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.convergence.characters import SIZES, Sizes, text
from benchmarks.convergence.curves import FOLDER, PAGE, Curve, Curves, draw, save, written
from benchmarks.convergence.runs import EVERY, RUNS, STEPS, Run
from benchmarks.convergence.trainer import Look, Trainer, digest
from benchmarks.lab.suite.run import commit
from benchmarks.pages import new_parser
from zenc import __version__


def main() -> None:
    options = parser().parse_args()
    if not options.page:
        train([run for run in RUNS if not options.only or run.name in options.only], options)
    if options.to is None:
        draw()
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    made = new_parser(__doc__, "benchmarks.convergence")
    names = [run.name for run in RUNS]
    made.add_argument("--only", nargs="+", choices=names, default=[], metavar="RUN", help=" ".join(names))
    made.add_argument("--page", action="store_true", help="only write the page, from the results that there are")
    made.add_argument("--steps", type=int, default=STEPS, help=f"of each run ({STEPS}); other numbers with --to")
    made.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="other ones than each run's, with --to")
    made.add_argument("--processes", type=int, default=2, help="runs at a time (2)")
    made.add_argument("--to", type=Path, metavar="FOLDER", help="where results go; the page stays as it is then")
    return made


def train(runs: Sequence[Run], options: argparse.Namespace) -> None:
    """Train all runs at all seeds, some at a time; a file is written when its run has been trained at each seed."""
    text()  # read once, before processes are forked
    about = about_all(options.steps)
    seeds = {run.name: options.seeds or run.seeds for run in runs}
    trained: dict[str, list[Curve]] = {run.name: [] for run in runs}
    with ProcessPoolExecutor(options.processes, get_context("fork")) as pool:
        jobs = {pool.submit(curve, run, seed, options.steps): run.name for run in runs for seed in seeds[run.name]}
        for done, future in enumerate(as_completed(jobs), 1):
            name, found = jobs[future], trained[jobs[future]]
            found.append(future.result())
            said = f"{name}, seed {found[-1].seed}: {found[-1].end.bits:.3f} bits a character"
            print(f"{done:2} of {len(jobs)}  {said}", file=sys.stderr)
            if len(found) == len(seeds[name]):
                save(Curves(name, about, sorted(found, key=lambda each: each.seed)), options.to or FOLDER)


def curve(run: Run, seed: int, steps: int, sizes: Sizes = SIZES) -> Curve:
    """Train ``run`` at one seed, from its first step to its last, and return its curve."""
    torch.set_num_threads(1)
    started = time.process_time()
    trainer = Trainer(run, seed, sizes)
    looks: list[Look] = []
    if run.halfway:
        advance(trainer, looks, steps // 2, steps)
        file = io.BytesIO()
        torch.save({"trainer": trainer.state_dict(), "looks": [asdict(look) for look in looks]}, file)
        file.seek(0)
        trainer = Trainer(run, seed, sizes)
        looks = resume(trainer, file)
    advance(trainer, looks, steps, steps)
    return Curve(seed, looks, digest(trainer.parameters), time.process_time() - started)


def advance(trainer: Trainer, looks: list[Look], until: int, last: int) -> None:
    """Train up to step ``until``; look now and then, and at the ``last``."""
    while trainer.steps < until:
        trainer.step()
        if trainer.steps % EVERY == 0 or trainer.steps == last:
            looks.append(trainer.look())


def resume(trainer: Trainer, file: io.BytesIO) -> list[Look]:
    """Go on from the checkpoint in ``file``, where the run says so without its residuals; returns its looks."""
    saved = torch.load(file, weights_only=True)
    trainer.load_state_dict(saved["trainer"], forget=trainer.run.halfway == "forgotten")
    return [Look(**look) for look in saved["looks"]]


def about_all(steps: int) -> dict[str, Any]:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "zenc": __version__}
    corpus = hashlib.sha256(text().train.numpy().tobytes()).hexdigest()[:12]
    scale = {"text": corpus, "steps": steps, "batch": SIZES.batch}
    return {**versions, "cores": os.cpu_count(), "commit": commit(), **scale}


if __name__ == "__main__":
    main()
