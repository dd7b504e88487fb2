"""Settings of one run, as data that the lab, its workers and the JSON of a report share.

    Run      = ranks x (rate burst queue | loopback) x workload x peers x rounds x seed
    Settings = a Run of all-reduces         # a Run of training steps: benchmarks.lab.training.settings

Nothing here imports more than Python has.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

ROOT = Path(__file__).resolve().parents[2]
TRACES = Path(__file__).parent / "traces"
"""Rows of real training steps; ``benchmarks.lab.record`` makes them."""


class LabError(Exception):
    """A failure of the lab; the message says why, and what would help."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A gradient of ``units`` of ``width`` float32 values, of which a rank holds the share ``density``.

    ``kind`` is ``rows``, ``elements``, ``profile`` or ``trace``.
    ``zipf`` is the exponent of the law by which units are drawn, 0 for evenly; ``permuted``: not in order of it.
    ``indices`` is the file, from ``ROOT``, with the units of a trace, which are not drawn, or with a profile.
    """

    kind: str
    units: int
    width: int
    density: float
    zipf: float
    permuted: bool = False
    indices: str = ""


Load = TypeVar("Load")


@dataclass(frozen=True, slots=True)
class Run(Generic[Load]):
    """Peers that take turns, and where. ``rate`` is empty on loopback; ``burst`` in bytes, ``queue`` as tc takes it.

    ``dense_rounds``: in how many of the ``rounds`` dense all-reduces take part, which send the whole tensor.
    """

    ranks: int
    rate: str
    burst: int
    queue: str
    workload: Load
    peers: tuple[str, ...]
    reference: str
    rounds: int
    dense_rounds: int
    warm_up: int
    seed: int

    def network(self) -> str:
        """Return the network in words."""
        return f"{self.rate}, burst {self.burst} B, queue {self.queue}" if self.rate else "loopback"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Settings(Run[Workload]):
    """The settings of one point of the lab."""

    @staticmethod
    def from_json(data: dict[str, Any]) -> Settings:
        return Settings(**{**data, "workload": Workload(**data["workload"]), "peers": tuple(data["peers"])})
