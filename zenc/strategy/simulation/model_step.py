"""The step of an observed model: its dense gradients as they became ready, and its tables of sparse ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from zenc.errors import CostError, Diagnostic
from zenc.gradients.profile import Profile
from zenc.simulator.training.model_profile import ModelProfile
from zenc.strategy.simulation.step import StepTensor, TrainingStep


@dataclass(frozen=True, slots=True)
class ModelStep:
    """The ``step`` of a model, and the ``tables`` among its tensors: index -> the profile of their rows."""

    step: TrainingStep
    tables: dict[int, Profile]


def step_of(model: ModelProfile, name: str = "model") -> ModelStep:
    """Return the step of ``model``; raises CostError (``bad-profile``) where the times of gradients were not seen."""
    order = model.in_order
    if not order:
        message = "the profile of the model does not say when gradients are ready"
        help = "record it anew: zenc.attach(ddp_model, dry_run=True) for some steps, and handle.save(FILE)"
        raise CostError(Diagnostic("bad-profile", message, help=help))
    tensors, tables, before = [], {}, 0.0
    for at, parameter in enumerate(order):
        ready = max(parameter.ready or 0.0, before)
        tensors.append(StepTensor(parameter.name, prod(parameter.shape), ready - before))
        before = ready
        if parameter.name in model.profiles and parameter.layout == "sparse":
            tables[at] = model.profiles[parameter.name]
    forward = model.seconds_forward
    return ModelStep(TrainingStep(name, tuple(tensors), before / 2 if forward is None else forward), tables)
