"""Training steps by strategies on a slow network that this machine plays: the tuned one, and those written by hand.

    python -m benchmarks.lab.steps --ranks 4 --tuned tuned.zen

The model is the character model of ``benchmarks.convergence``. A dry run on the lab's hosts makes its profile, for
which a strategy is searched; then steps by all strategies take turns. Network, bytes and times are as in
``python -m benchmarks.lab``.
"""

import argparse
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import zenc
from benchmarks.convergence.characters import SIZES
from benchmarks.lab.dense.__main__ import told
from benchmarks.lab.dense.peers import CHARACTERS
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.launch import launch
from benchmarks.lab.options import add_turns, carry_out, new_parser, run_of
from benchmarks.lab.settings import NO_SYNC
from benchmarks.lab.show import shown
from benchmarks.lab.steps.suite import ALLOWED, BY_DDP, HAND_WRITTEN
from benchmarks.pages import ROOT, save_json
from benchmarks.predicted import CORES
from benchmarks.predicted_steps import calibration_of
from zenc.simulator.training.model_profile import ModelProfile, read_model_profile

COMMAND = f"zenc tune --strategy --model model.json --calibration lab.json --ranks {{ranks}} --schemes {ALLOWED}"
WORKER = "benchmarks.lab.steps.profiles"


def parser() -> argparse.ArgumentParser:
    made = new_parser("benchmarks.lab.steps", __doc__)
    made.add_argument("--tuned", required=True, metavar="FILE.zen", help="where the strategy goes that is found")
    add_turns(made, dense_rounds=1)
    return made


def measured(options: argparse.Namespace) -> str:
    peers = (NO_SYNC, BY_DDP, *HAND_WRITTEN, options.tuned)
    settings = CharacterSteps(workload=SIZES, **{**run_of(options, peers), "reference": options.tuned})
    profile = profile_of(replace(settings, peers=(), reference=""), options.limit)
    Path(ROOT, options.tuned).parent.mkdir(parents=True, exist_ok=True)
    Path(ROOT, options.tuned).write_text(tuned_text(settings, profile), encoding="utf-8")
    records = launch(settings, options.limit, ("benchmarks.lab.dense.peers", CHARACTERS))
    rows, found = told(settings, records)
    strategies = (*HAND_WRITTEN, options.tuned)
    found["predicted"] = predicted(settings, profile, strategies, rows[NO_SYNC].seconds.median)
    save_json(options.json, found)
    return shown(settings.title, rows, settings.reference, "")


def profile_of(settings: CharacterSteps, limit: float) -> ModelProfile:
    """Return the profile of the model, by a dry run on the lab's hosts; raises LabError where a rank fails.

    In a dry run hosts wait for links nearly all the time, and each computes alone. In quicker steps all compute at
    once, which takes as many times longer as hosts share a processor.
    """
    record = launch(settings, limit, (WORKER,))[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        file.write_text(record["profile"], encoding="utf-8")
        return shared(read_model_profile(file), calibration_of(settings, CORES).slowdown(settings.ranks))


def shared(profile: ModelProfile, slow: float) -> ModelProfile:
    """Return ``profile`` with passes that take ``slow`` times as long."""
    parameters = tuple(replace(each, ready=slow * (each.ready or 0.0)) for each in profile.parameters)
    return replace(profile, parameters=parameters, seconds_forward=slow * (profile.seconds_forward or 0.0))


def tuned_text(settings: CharacterSteps, profile: ModelProfile) -> str:
    calibration = calibration_of(settings, CORES)
    found = zenc.tune_strategy(profile, str(ROOT / ALLOWED), ranks=settings.ranks, calibration=calibration)
    return found.text(COMMAND.format(ranks=settings.ranks))


def predicted(
    settings: CharacterSteps, profile: ModelProfile, strategies: Iterable[str], alone: float
) -> dict[str, float]:
    """Return strategy -> predicted seconds of a step, which takes ``alone`` where nothing is summed.

    A dry run sees the two passes of a step; what else it computes, the update, is what ``alone`` is longer than these.
    """
    calibration, found = calibration_of(settings, CORES), {}
    for name in strategies:
        step = zenc.simulate_step(profile, ROOT / name, ranks=settings.ranks, calibration=calibration)
        found[name] = step.result.seconds + max(0.0, alone - step.step.computing)
    return found


if __name__ == "__main__":
    carry_out(lambda: measured(parser().parse_args()))
