"""Settings of one point: a table of bigrams, and the tokens of a rank and step.

Bigrams = a Run of training steps of a Table
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.lab.settings import Run

TORCH = "torch-coo"
WRITTEN, WRITTEN_ON_DEMAND = "all-to-all", "all-to-all, on demand"
ZENC, ZENC_ON_DEMAND = "zenc", "zenc, on demand"
LANES = (WRITTEN, WRITTEN_ON_DEMAND, TORCH, ZENC, ZENC_ON_DEMAND)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of ``rows`` x ``width`` float32; a rank takes ``tokens`` of its own in each step."""

    rows: int = 377_280
    width: int = 768
    tokens: int = 1024

    @property
    def bytes(self) -> int:
        return 4 * self.rows * self.width


@dataclass(frozen=True, slots=True)
class Bigrams(Run[Table]):
    """The settings of one point."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> Bigrams:
        return Bigrams(**{**data, "workload": Table(**data["workload"]), "peers": tuple(data["peers"])})
