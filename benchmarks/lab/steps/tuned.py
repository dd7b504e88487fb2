"""The strategy that zenc finds for the lab, by a dry run on its hosts, its calibration, and the allowed schemes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import zenc
from benchmarks.lab.dense.settings import CharacterSteps
from benchmarks.lab.launch import launch
from benchmarks.lab.settings import ROOT
from benchmarks.lab.steps.suite import ALLOWED
from benchmarks.predicted import CORES
from benchmarks.predicted_steps import calibration_of as calibration_in_the_lab
from zenc.simulator.calibration import Calibration
from zenc.simulator.training.model_profile import ModelProfile, read_model_profile

COMMAND = f"zenc tune --strategy --model model.json --calibration lab.json --ranks {{ranks}} --schemes {ALLOWED}"
WORKER = "benchmarks.lab.steps.profile_worker"


def profile_of(settings: CharacterSteps, limit: float) -> ModelProfile:
    """Return the profile of the model, by a dry run on the lab's hosts; raises LabError where a rank fails.

    In a dry run hosts wait for links nearly all the time, and each computes alone. In quicker steps all compute at
    once, which takes as many times longer as hosts share a processor.
    """
    record = launch(settings, limit, (WORKER,))[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.json")
        file.write_text(record["profile"], encoding="utf-8")
        return shared(read_model_profile(file), calibration_of(settings).slowdown(settings.ranks))


def shared(profile: ModelProfile, slow: float) -> ModelProfile:
    """Return ``profile`` with passes that take ``slow`` times as long."""
    parameters = tuple(replace(each, ready=slow * (each.ready or 0.0)) for each in profile.parameters)
    return replace(profile, parameters=parameters, seconds_forward=slow * (profile.seconds_forward or 0.0))


def calibration_of(settings: CharacterSteps) -> Calibration:
    """Return the calibration of predicted steps, to which none of these steps was fitted."""
    return calibration_in_the_lab(settings, CORES)


def tuned_text(settings: CharacterSteps, profile: ModelProfile) -> str:
    """Return the file of the strategy that is found."""
    calibration = calibration_of(settings)
    found = zenc.tune_strategy(profile, str(ROOT / ALLOWED), ranks=settings.ranks, calibration=calibration)
    return found.text(COMMAND.format(ranks=settings.ranks))


def predicted(
    settings: CharacterSteps, profile: ModelProfile, strategies: Iterable[str], alone: float
) -> dict[str, float]:
    """Return strategy -> predicted seconds of a step, which takes ``alone`` where nothing is summed.

    A dry run sees the two passes of a step; what else it computes, the update, is what ``alone`` is longer than these.
    """
    calibration, found = calibration_of(settings), {}
    for name in strategies:
        step = zenc.simulate_step(profile, ROOT / name, ranks=settings.ranks, calibration=calibration)
        found[name] = step.result.seconds + max(0.0, alone - step.step.computing)
    return found
