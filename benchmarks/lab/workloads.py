"""The gradients of a run: which units each rank holds, and their values. The same everywhere, for the same settings.

Units are drawn by a law (KINDS), or recorded (``trace``).
"""

from pathlib import Path

import numpy as np
import torch

from benchmarks.lab.settings import TRACES, LabError, Workload
from benchmarks.pages import ROOT
from zenc.errors import SchemeError
from zenc.gradients.index_sets import Gradients, drawn, gradients, read_gradients
from zenc.gradients.spec import GradientSpec

KINDS = {
    "rows": Workload("rows", units=200_000, width=64, density=0.02, zipf=1.05),
    "elements": Workload("elements", units=4_000_000, width=1, density=0.01, zipf=0.0),
    "dense": Workload("dense", units=200_000, width=64, density=1.0, zipf=0.0),
}
"""Workloads: rows of an embedding, drawn as words of a corpus are, or single elements, drawn evenly."""
TRACE = TRACES / "language_model-1.npz"
"""Rows that the first step of the demonstration's training touched."""


def units_of(workload: Workload, size: int, seed: int) -> Gradients:
    """Return the units that ``zenc explain --units --width --density --zipf --seed`` draws, unless permuted.

    Of a trace the recorded units of the first ``size`` ranks.
    """
    if workload.indices:
        of = recorded(workload.indices, size)
    else:
        load = GradientSpec(workload.units, workload.width, "f32", workload.density, workload.zipf or None, None, seed)
        of = drawn(load, size)
    if not workload.permuted:
        return of
    to = np.random.default_rng([seed, size, workload.units]).permutation(workload.units)
    return gradients(of.units, of.width, of.dtype, [np.sort(to[ids]) for ids in of.held])


def recorded(indices: str, size: int) -> Gradients:
    """Return the units of the first ``size`` ranks in a file that ``zenc explain --indices`` takes, from ``ROOT``."""
    try:
        of = read_gradients(ROOT / indices)
    except SchemeError as error:
        raise LabError(str(error)) from error
    if size > of.size:
        raise LabError(f"{indices} has the units of {of.size} ranks, not of {size}; benchmarks.lab.record records more")
    return gradients(of.units, of.width, "f32", list(of.held[:size]))


def values_of(of: Gradients, rank: int, seed: int) -> torch.Tensor:
    """Return [units of ``rank``, width] float32, from the normal distribution."""
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    return torch.randn(len(of.held[rank]), of.width, generator=generator)


def sparse_gradient(of: Gradients, rank: int, seed: int) -> torch.Tensor:
    """Return coalesced COO: [units, width] with one sparse dimension; [units] where a unit is one value."""
    values = values_of(of, rank, seed)
    shape = (of.units, of.width) if of.width > 1 else (of.units,)
    indices = torch.from_numpy(of.held[rank])[None]
    return torch.sparse_coo_tensor(
        indices, values if of.width > 1 else values[:, 0], shape, is_coalesced=True, check_invariants=False
    )


def gradient_of(workload: Workload, of: Gradients, rank: int, seed: int) -> torch.Tensor:
    """Return the gradient of ``rank``: a dense tensor where the workload is one, else as ``sparse_gradient``."""
    found = sparse_gradient(of, rank, seed)
    return found.to_dense() if workload.kind == "dense" else found


class Expected:
    """The sum over all ranks in float64, and how far a sum in float32 can be from it, whatever its order."""

    def __init__(self, of: Gradients, seed: int) -> None:
        self.size = of.size
        self.units = torch.from_numpy(np.unique(np.concatenate(of.held)))
        self.sums = torch.zeros(len(self.units), of.width, dtype=torch.float64)
        self.magnitudes = torch.zeros_like(self.sums)
        for rank, ids in enumerate(of.held):
            values, places = values_of(of, rank, seed).double(), torch.searchsorted(self.units, torch.from_numpy(ids))
            self.sums.index_add_(0, places, values)
            self.magnitudes.index_add_(0, places, values.abs())

    def check(self, result: torch.Tensor, peer: str) -> None:
        """Raise LabError unless ``result``, dense or sparse, is the sum: its units, and every value of them."""
        found = result.to_dense().reshape(result.shape[0], -1)
        units = found.any(1).nonzero()[:, 0]
        if not torch.equal(units, self.units):
            raise LabError(f"{peer} sums {len(units)} units, and there are {len(self.units)}, or they are others")
        error = (found[units].double() - self.sums).abs()
        if (error > 2 * self.size * 2.0**-24 * self.magnitudes).any():
            raise LabError(f"{peer} is wrong: a value is {float(error.max()):g} from the sum in float64")


def workload_of(kind: str, density: float | None, zipf: float | None, units: int | None, permuted: bool) -> Workload:
    """Return the standard workload of ``kind`` with the given changes."""
    base = KINDS[kind]
    return Workload(
        kind,
        units or base.units,
        base.width,
        base.density if density is None else density,
        base.zipf if zipf is None else zipf,
        permuted,
    )


def named(file: Path) -> str:
    """Return ``file`` from ``ROOT``, if it is within."""
    full = file.resolve()
    return str(full.relative_to(ROOT) if full.is_relative_to(ROOT) else full)


def trace_of(file: Path, size: int, permuted: bool) -> Workload:
    """Return the recorded units of the first ``size`` ranks in ``file``."""
    of = recorded(named(file), size)
    return Workload("trace", of.units, of.width, of.density, 0.0, permuted, named(file))
