"""Settings of one run of training, as data.

Training = a Run of training steps, with the sizes of the model and its batches as the workload
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.lab.settings import Run
from examples.language_model.model import Sizes

DDP = ("ddp-dense", "ddp-sparse")
"""DDP's own ways; all other peers but the next are schemes of zenc."""
NO_SYNC = "no-sync"
"""The way that sums nothing, a bound of all ways. It is no training, so its losses are compared with none."""


@dataclass(frozen=True, slots=True)
class Training(Run[Sizes]):
    """The settings of one training. Its seed draws the order of turns; weights and batches are the demonstration's."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> Training:
        return Training(**{**data, "workload": Sizes(**data["workload"]), "peers": tuple(data["peers"])})
