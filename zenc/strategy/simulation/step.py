"""A training step as a strategy sees it: tensors in the order in which the backward pass makes their gradients.

TrainingStep = name StepTensor* forward
StepTensor   = name numel gap                    # gap: seconds of the backward pass since the tensor before
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

VALUE_BYTES = 4
"""Bytes of a gradient's value: strategies are searched for float32."""


@dataclass(frozen=True, slots=True)
class StepTensor:
    """A tensor of ``numel`` float32 values, whose gradient is ready ``gap`` seconds after that of the one before."""

    name: str
    numel: int
    gap: float


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A step: ``tensors`` as the backward pass makes their gradients, after ``forward`` seconds of the forward pass."""

    name: str
    tensors: tuple[StepTensor, ...]
    forward: float = 0.0

    @property
    def computing(self) -> float:
        """Seconds of both passes: a step without any communication."""
        return self.forward + sum(tensor.gap for tensor in self.tensors)

    @property
    def ready(self) -> list[float]:
        """The seconds at which each gradient is ready, since the backward pass began."""
        return list(accumulate(tensor.gap for tensor in self.tensors))

    @property
    def numel(self) -> int:
        """Values of all gradients."""
        return sum(tensor.numel for tensor in self.tensors)

    def merged(self, ends: Iterable[int]) -> TrainingStep:
        """Return the step with tensors merged into groups that end before the indices ``ends``, and at the last tensor.

        A group is one tensor, ready when its last gradient is. ``ends`` ascend, from 1 to the number of tensors less 1.
        """
        cuts = [0, *ends, len(self.tensors)]
        groups = (self.tensors[start:end] for start, end in pairwise(cuts))
        return TrainingStep(self.name, tuple(_as_one(group) for group in groups), self.forward)


def _as_one(group: tuple[StepTensor, ...]) -> StepTensor:
    first, last = group[0], group[-1]
    name = first.name if len(group) == 1 else f"{first.name} ... {last.name}"
    return StepTensor(name, sum(each.numel for each in group), sum(each.gap for each in group))
