"""The load of a training step: the gradients that it synchronises, and the time that it computes.

StepWorkload = Table* rest computing? observed?
Table        = profile is_dense                    # its gradient as it is today: a dense tensor, or a sparse one
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zenc.errors import CostError, Diagnostic
from zenc.gradients.profile import Profile
from zenc.simulator.training.model_profile import ModelProfile


@dataclass(frozen=True, slots=True)
class EmbeddingTable:
    """A gradient that is mostly rows of zeros; ``is_dense`` None: nobody said which tensor it is today."""

    profile: Profile
    is_dense: bool | None = None


@dataclass(frozen=True, slots=True)
class StepWorkload:
    """``rest``: bytes of all other gradients, which DDP sums whole. ``computing``: seconds of a step without any wait.

    Raises CostError (``bad-load``) for numbers that can't be.
    """

    tables: tuple[EmbeddingTable, ...]
    rest: float
    computing: float | None
    observed: ModelProfile | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rest < float("inf"):
            raise _bad(f"other gradients have 0 bytes or more, not {self.rest:g}")
        if self.computing is not None and not 0 <= self.computing < float("inf"):
            raise _bad(f"a step computes for 0 s or more, not {self.computing:g}")


def load_of(profiles: Iterable[Profile], rest: float = 0.0, computing: float | None = None) -> StepWorkload:
    """The workload of gradients alone; ``rest`` bytes of all others, ``computing`` seconds of a step."""
    return StepWorkload(tuple(EmbeddingTable(profile) for profile in profiles), rest, computing)


def load_of_model(model: ModelProfile, rest: float | None = None, computing: float | None = None) -> StepWorkload:
    """Of a model that was observed; ``rest`` and ``computing`` in place of what was seen."""
    dense = {each.name: each.layout == "dense" for each in model.parameters}
    tables = tuple(EmbeddingTable(profile, dense.get(name)) for name, profile in model.profiles.items())
    others = float(sum(each.bytes for each in model.parameters if each.name not in model.profiles))
    seconds = model.seconds_without if computing is None else computing
    return StepWorkload(tables, others if rest is None else rest, seconds, model)


def _bad(message: str) -> CostError:
    return CostError(Diagnostic("bad-load", message, help="bytes and seconds of a training step are 0 or more"))
