"""Settings of one run, as data that the lab, its workers and the JSON of a report share.

    Run      = ranks x (rate burst queue | topology burst queue | loopback) x workload x peers x rounds x seed
    Settings = a Run of all-reduces         # a Run of training steps: benchmarks.lab.training.report

Nothing here imports more than Python has.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

TRACES = Path(__file__).parent / "traces"
"""Rows of real training steps; ``benchmarks.lab.record`` makes them."""


class LabError(Exception):
    """A failure of the lab; the message says why, and what would help."""


DDP = ("ddp-dense", "ddp-sparse")
"""DDP's own ways to train; all other peers but the next are schemes of zenc."""
NO_SYNC = "no-sync"
"""The way that sums nothing, a bound of all ways. It is no training, so its losses are compared with none."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A gradient of ``units`` of ``width`` float32 values, of which a rank holds the share ``density``.

    ``kind`` is ``rows``, ``elements``, ``dense`` (a dense tensor) or ``trace``.
    ``zipf`` is the exponent of the law by which units are drawn, 0 for evenly; ``permuted``: not in order of it.
    ``indices`` is the file, from ``ROOT``, with the units of a trace, which are not drawn.
    """

    kind: str
    units: int
    width: int
    density: float
    zipf: float
    permuted: bool = False
    indices: str = ""


Load = TypeVar("Load")
AnyRun = TypeVar("AnyRun", bound="Run[Any]")


@dataclass(frozen=True, slots=True)
class Run(Generic[Load]):
    """Peers that take turns, and where. ``rate`` is empty on loopback, and where a ``topology`` names the links.

    ``burst`` is in bytes, ``queue`` as tc takes it.

    ``dense_rounds``: in how many of the ``rounds`` dense all-reduces take part, which send the whole tensor.
    """

    load: ClassVar[type[Any]] = dict
    """The class of the workload."""

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
    topology: str = ""

    def network(self) -> str:
        links = self.rate or self.topology
        return f"{links}, burst {self.burst} B, queue {self.queue}" if links else "loopback"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls: type[AnyRun], data: Mapping[str, Any]) -> AnyRun:
        return cls(**{**data, "workload": cls.load(**data["workload"]), "peers": tuple(data["peers"])})


@dataclass(frozen=True, slots=True)
class Settings(Run[Workload]):
    """The settings of one point of the lab."""

    load = Workload
