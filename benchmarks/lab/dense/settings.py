"""What one run of dense gradients measures. Data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.convergence.characters import Sizes
from benchmarks.lab.settings import Run

TORCH = ("torch-dense", "torch-fp16", "torch-powersgd")
"""DDP's own ways: its all-reduce, its hook that casts to 16 bits, and its PowerSGD hook of rank 1."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The one parameter of the model, [``rows``, ``columns``] float32, whose gradient is drawn evenly."""

    rows: int = 2000
    columns: int = 2000

    @property
    def bytes(self) -> int:
        """Of its gradient."""
        return 4 * self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Backwards(Run[Layer]):
    """One point. Its seed draws gradients, and the order of turns."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> Backwards:
        return Backwards(**{**data, "workload": Layer(**data["workload"]), "peers": tuple(data["peers"])})

    @property
    def title(self) -> str:
        """In words."""
        of = self.workload
        return f"{self.ranks} ranks, {self.network()}; gradient: {of.rows:,} x {of.columns:,} float32; seed {self.seed}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CharacterSteps(Run[Sizes]):
    """One point of training steps of the character model. Its seed draws weights, batches, and the order of turns."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> CharacterSteps:
        return CharacterSteps(**{**data, "workload": Sizes(**data["workload"]), "peers": tuple(data["peers"])})

    @property
    def title(self) -> str:
        """In words."""
        batch = f"batches of {self.workload.batch} a rank"
        return f"{self.ranks} ranks, {self.network()}; steps of the character model, {batch}; seed {self.seed}"
