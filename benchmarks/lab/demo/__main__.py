"""Trains a language model on loopback, then between hosts on a slow network, and compares ways to sum its gradients.

    python -m benchmarks.lab.demo --ranks 4 --rate 100mbit

DDP's own sparse all-reduce, zenc's scheme auto and DDP with dense gradients train side by side, in turns, from equal
weights and on equal batches. The hosts are network namespaces of this machine, whose links are shaped to the rate. That
takes no root, but iproute2, and a kernel that lets users make namespaces. Where it can't be, the demonstration says
why, and what zenc predicts for such a network. Nothing but these namespaces is changed, and nothing of them is left.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace

from rich.console import Group, RenderableType

from benchmarks.lab.demo.show import comparison, prediction, rate_in_words, summary, words
from benchmarks.lab.options import carry_out, write
from benchmarks.lab.settings import LabError
from benchmarks.lab.suite.measure import busy_seconds, children_seconds
from benchmarks.lab.training.__main__ import run
from benchmarks.lab.training.settings import NO_SYNC, Training
from benchmarks.lab.training.worker import BRIEF
from examples.language_model import corpus
from examples.language_model.model import Sizes
from zenc.lab.cluster import why_not

BASE = "ddp-sparse"
LIMIT = 600.0
"""Seconds for each of the two trainings at most."""


def main() -> None:
    options = parser().parse_args()
    carry_out(lambda: demonstrated(options))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.lab.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--ranks", type=int, default=4, metavar="N", help="hosts, and processes on loopback (4)")
    made.add_argument("--rate", default="100mbit", help="of every link, each way, as tc takes it (100mbit)")
    made.add_argument("--steps", type=int, default=40, metavar="N", help="of each network that are timed (40)")
    made.add_argument("--scheme", default="auto", help="what zenc sums by: a name or a .zen file (auto)")
    made.add_argument("--network", choices=("both", "loopback"), default="both", help="loopback: without slow hosts")
    made.add_argument("--json", metavar="FILE", help="what was measured")
    return made


def demonstrated(options: argparse.Namespace) -> RenderableType:
    """Return the report to print; raises LabError where a training fails, or losses are not equal."""
    if min(options.ranks, options.steps) < 1:
        raise LabError("--ranks and --steps are 1 or more")
    rate = rate_in_words(options.rate)  # which also says what is no rate
    missing = "--network loopback was asked for" if options.network == "loopback" else why_not()
    say(f"one model in {options.ranks} processes, trained side by side under DDP and under DDP with zenc.")
    say("About two minutes, and one more where kernels have to be compiled first. Reading Python's library as text ...")
    text = corpus.read()
    training = training_of(options, Sizes(vocabulary=text.vocabulary))
    started, before, own = time.monotonic(), busy_seconds(), children_seconds()
    say(f"1 of 2: on one machine, {options.steps} steps: DDP over loopback, zenc through shared memory")
    found = [run(training, LIMIT, text, (BRIEF,), shared_memory=True)]
    if not missing:
        say(f"2 of 2: {options.ranks} hosts on links of {rate} each, as network namespaces, {options.steps} steps")
        found.append(run(replace(training, rate=options.rate), LIMIT, text, (BRIEF,)))
    others = (busy_seconds() - before - (children_seconds() - own)) / (time.monotonic() - started)
    others /= found[0].machine["cores"]
    write(options.json, json.dumps(summary(found, others), indent=1) + "\n" if options.json else "")
    parts: list[RenderableType] = ["", comparison(found), "", words(found, others)]
    if missing:
        parts += ["", f"No slow network here: it takes {missing}.", prediction(options.ranks, options.rate)]
    return Group(*parts)


def training_of(options: argparse.Namespace, sizes: Sizes) -> Training:
    """Return the training over loopback."""
    peers = (options.scheme, BASE, "ddp-dense", NO_SYNC)
    return Training(options.ranks, "", 70_000, "2mb", sizes, peers, BASE, options.steps, 2, 2, 1)


def say(what: str) -> None:
    print(f"demo: {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
