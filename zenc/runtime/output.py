"""What a call ends with: all parts of the sum, complete, and what makes a tensor of them.

Summed = Part* Expander        # Segment* and a Workshop; by holders Rows* and the HolderExchange
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch


class Held(Protocol):
    """A part that is there; ``count`` of its slots are occupied."""

    count: int


PartT = TypeVar("PartT", bound=Held)
PartT_contra = TypeVar("PartT_contra", bound=Held, contravariant=True)


class Expander(Protocol[PartT_contra]):
    """Makes tensors of complete parts."""

    def expand_into(self, complete: Sequence[PartT_contra], tensor: torch.Tensor) -> None: ...

    def expand_units(self, complete: Sequence[PartT_contra]) -> tuple[torch.Tensor, torch.Tensor]: ...


@dataclass(slots=True)  # not frozen, as segments are not: one is made in every call
class Summed(Generic[PartT]):
    """``parts`` in ascending order; ``expander`` is of the same kind as they are."""

    parts: list[PartT]
    expander: Expander[PartT]

    @property
    def counts(self) -> list[int]:
        """The occupied units of each part."""
        return [part.count for part in self.parts]

    def into(self, tensor: torch.Tensor) -> None:
        """Write the sum to ``tensor``, dense and contiguous; absent units become +0."""
        self.expander.expand_into(self.parts, tensor)

    def units(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum as ascending unit ids [k] int64 and values [k, width]."""
        return self.expander.expand_units(self.parts)
