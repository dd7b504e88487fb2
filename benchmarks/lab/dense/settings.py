"""Settings of one run of dense gradients, as data."""

from dataclasses import dataclass

from benchmarks.convergence.characters import Sizes
from benchmarks.lab.settings import Run

FP16, POWERSGD = "torch-fp16", "torch-powersgd"
TORCH = ("torch-dense", FP16, POWERSGD)
"""DDP's own ways: its all-reduce, its hook that casts to 16 bits, and its PowerSGD hook of rank 1."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A gradient of ``rows`` x ``columns`` float32, drawn evenly: of the one parameter of a model under DDP.

    Of several ``tensors`` there is no model: each has as many of the rows, and is a call, made before any has ended.
    """

    rows: int = 2000
    columns: int = 2000
    tensors: int = 1

    @property
    def bytes(self) -> int:
        return 4 * self.rows * self.columns

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows // self.tensors, self.columns


@dataclass(frozen=True, slots=True)
class Backwards(Run[Layer]):
    """The settings of one point. Its seed draws gradients, and the order of turns."""

    load = Layer

    @property
    def title(self) -> str:
        of = self.workload
        cut = f" in {of.tensors} tensors, whose calls overlap" if of.tensors > 1 else ""
        shape = f"{of.rows:,} x {of.columns:,} float32{cut}"
        return f"{self.ranks} ranks, {self.network()}; gradient: {shape}; seed {self.seed}"


@dataclass(frozen=True, slots=True)
class CharacterSteps(Run[Sizes]):
    """The settings of steps of the character model. Their seed draws weights, batches and the order of turns."""

    load = Sizes

    @property
    def title(self) -> str:
        batch = f"batches of {self.workload.batch} a rank"
        return f"{self.ranks} ranks, {self.network()}; steps of the character model, {batch}; seed {self.seed}"
