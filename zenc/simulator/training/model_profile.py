"""The profile of a model in training: its parameters, the units of their gradients, and the time of a step.

A workload is the part of it that a prediction needs: the gradients that a step synchronises, and the time that it
computes.

    ModelProfile = ranks backend device steps Seconds Parameter* Profile*
    Seconds      = of a step, of synchronisation in it, of the part that nothing hides, of both passes      # medians
    Parameter    = name shape dtype layout density ready forward
    StepWorkload = Table* rest computing? observed?
    Table        = profile is_dense                    # its gradient as it is today: a dense tensor, or a sparse one

``zenc.attach(ddp_model, dry_run=True)`` observes one while DDP synchronises its own way. As a file it is a file of
profiles (``zenc.gradients.profile_io``) with one more key, so whatever reads profiles reads it, too:

    {"zenc_profiles": 1, "model": {"ranks": 4, "backend": "gloo", "device": "cpu", "steps": 40, "seconds_step": 0.21,
                                   "seconds_synchronising": 0.12, "seconds_exposed": 0.09, "seconds_forward": 0.03,
                                   "seconds_backward": 0.06, "parameters": [
                                   {"name": "words.weight", "shape": [50000, 64], "dtype": "f32", "layout": "sparse",
                                    "density": 0.012, "ready": 0.058, "forward": 0.002}, ...]},
     "profiles": [...]}
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf, prod
from typing import Any

from zenc.common.json_codec import Codec
from zenc.common.resources import write_text
from zenc.errors import CostError, Diagnostic
from zenc.gradients.profile import Profile
from zenc.gradients.profile_io import dump_profiles, parsed, profiles_in
from zenc.wire.constants import DTYPE_BYTES

LAYOUTS = ("sparse", "dense")
MOST_EXTENTS = 64
"""Most dimensions of a tensor, as in torch."""


@dataclass(frozen=True, slots=True)
class ParameterProfile:
    """A parameter of ``shape`` and its gradient, which is a ``sparse`` or ``dense`` tensor of ``dtype``: f32, ...

    ``density``: the share of the rows, along the first dimension, that hold anything but zeros on one rank; mean over
    the steps that were looked at. None where no gradient was seen. Each value of a vector is a row.
    ``ready``: seconds from the begin of the backward pass until the gradient is whole on its rank. ``forward``: seconds
    of the forward pass of the module that holds it, with all that is called in it; parameters of one module have the
    same. Both are medians, and None where they were not seen.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    density: float | None
    ready: float | None = None
    forward: float | None = None

    @property
    def rows(self) -> int:
        """The length of the first dimension; 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def bytes(self) -> int:
        """The bytes of the gradient, if it is sent whole."""
        return prod(self.shape) * DTYPE_BYTES.get(self.dtype, 4)


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The profile of ``steps`` of training on ``ranks`` ranks. Seconds are medians, on the rank that saved it.

    ``seconds_step``: from the end of one backward pass to the end of the next. ``seconds_synchronising``: of these,
    while any gradient was under way. ``seconds_exposed``: of those, after the backward pass had ended, so that nothing
    hid them. ``profiles``: table name -> the profile of the rows that ranks hold; the same on all ranks.
    ``seconds_forward``: those of the model's forward pass, without the loss. ``seconds_backward``: from the gradient of
    the model's output to the last gradient of a parameter, while DDP synchronises. None where they were not seen.
    """

    ranks: int
    backend: str
    device: str
    steps: int
    seconds_step: float
    seconds_synchronising: float
    seconds_exposed: float
    parameters: tuple[ParameterProfile, ...]
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    seconds_forward: float | None = None
    seconds_backward: float | None = None

    @property
    def in_order(self) -> tuple[ParameterProfile, ...]:
        """The parameters as the backward pass makes their gradients; without those that were not seen to be ready."""
        seen = [(parameter.ready, parameter) for parameter in self.parameters if parameter.ready is not None]
        return tuple(parameter for _, parameter in sorted(seen, key=lambda each: each[0]))

    @property
    def seconds_without(self) -> float:
        """The seconds of a step if synchronisation took no time at all: the bound that no scheme can beat."""
        return self.seconds_step - self.seconds_exposed

    @property
    def exposed_share(self) -> float:
        """The share of a step that is spent in waiting for synchronisation alone."""
        return self.seconds_exposed / self.seconds_step

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, as a file has it under ``model``."""
        found: dict[str, Any] = _CODEC.encode(self)
        found["parameters"] = found.pop("parameters")
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as a JSON file, which ``read_model_profile`` and ``zenc profile show`` read.

        Raises ZencError (``unwritable-file``).
        """
        write_text(path, dump_profiles(self.profiles.values(), self.to_json()))

    def __repr__(self) -> str:
        return (
            f"<zenc.ModelProfile of {len(self.parameters)} parameters on {self.ranks} ranks: "
            f"{self.seconds_step * 1e3:.3g} ms a step, {self.exposed_share:.0%} waiting for synchronisation>"
        )


_CODEC = Codec({ModelProfile: tuple("" if each.name == "profiles" else each.name for each in fields(ModelProfile))})


def read_model_profile(path: str | os.PathLike[str]) -> ModelProfile:
    """Read the model profile in a file, without trust; raises CostError (``bad-profile``)."""
    found = read_gradients(path)
    if not isinstance(found, ModelProfile):
        raise _bad(f"{path} holds no profile of a model")
    return found


def read_gradients(path: str | os.PathLike[str]) -> ModelProfile | dict[str, Profile]:
    """Read the model profile in a file, or else its profiles by name; raises CostError (``bad-profile``)."""
    data = parsed(path)
    if not isinstance(data, dict) or "model" not in data:
        return profiles_in(path, data)
    try:
        made: ModelProfile = _CODEC.item(data, "model", ModelProfile)
        made = replace(made, profiles=profiles_in(path, data, none=True))
    except ValueError as error:
        raise _bad(f"{path} holds a profile of a model that lacks what it should say ({error})") from error
    if not _is_sound(made):
        raise _bad(f"{path} holds a profile of a model with names or numbers that can't be")
    return made


def _is_shape(extents: tuple[int, ...]) -> bool:
    return len(extents) <= MOST_EXTENTS and all(extent >= 0 for extent in extents) and prod(extents) < 1 << 63


def _is_sound(of: ModelProfile) -> bool:
    times = [of.seconds_forward, of.seconds_backward, *(time for p in of.parameters for time in (p.ready, p.forward))]
    fits = 0 <= of.seconds_exposed <= of.seconds_synchronising < inf and of.seconds_exposed <= of.seconds_step < inf
    alike = all(p.name and p.layout in LAYOUTS and (p.density is None or 0 <= p.density <= 1) for p in of.parameters)
    seen = all(time is None or time >= 0 for time in times) and all(_is_shape(p.shape) for p in of.parameters)
    return fits and alike and seen and of.ranks >= 1 and of.steps >= 1 and of.seconds_step > 0


def _bad(message: str) -> CostError:
    help = "zenc.attach(ddp_model, dry_run=True) for some steps, and handle.save(FILE), write one"
    return CostError(Diagnostic("bad-profile", message, help=help))


@dataclass(frozen=True, slots=True)
class EmbeddingTable:
    """A gradient that is mostly rows of zeros; ``is_dense`` is None where it is unknown which tensor it is today."""

    profile: Profile
    is_dense: bool | None = None


@dataclass(frozen=True, slots=True)
class StepWorkload:
    """The gradients of a step.

    ``rest`` are bytes of all others, which DDP sums whole, ``computing`` seconds without waits.

    Raises CostError (``bad-load``) for impossible numbers.
    """

    tables: tuple[EmbeddingTable, ...]
    rest: float
    computing: float | None
    observed: ModelProfile | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rest < float("inf"):
            raise _bad_load(f"other gradients have 0 bytes or more, not {self.rest:g}")
        if self.computing is not None and not 0 <= self.computing < float("inf"):
            raise _bad_load(f"a step computes for 0 s or more, not {self.computing:g}")


def load_of(profiles: Iterable[Profile], rest: float = 0.0, computing: float | None = None) -> StepWorkload:
    """Return the workload of gradients alone; ``rest`` bytes of all others, ``computing`` seconds of a step."""
    return StepWorkload(tuple(EmbeddingTable(profile) for profile in profiles), rest, computing)


def load_of_model(model: ModelProfile, rest: float | None = None, computing: float | None = None) -> StepWorkload:
    """Return the workload of an observed model; ``rest`` and ``computing`` replace the observed values."""
    dense = {each.name: each.layout == "dense" for each in model.parameters}
    tables = tuple(EmbeddingTable(profile, dense.get(name)) for name, profile in model.profiles.items())
    others = float(sum(each.bytes for each in model.parameters if each.name not in model.profiles))
    seconds = model.seconds_without if computing is None else computing
    return StepWorkload(tables, others if rest is None else rest, seconds, model)


def _bad_load(message: str) -> CostError:
    return CostError(Diagnostic("bad-load", message, help="bytes and seconds of a training step are 0 or more"))
