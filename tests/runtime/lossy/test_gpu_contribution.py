"""Contributions on emulated GPUs: gradient, residuals and thresholds are the CPU's, bit for bit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import zenc
from tests.runtime.lossy.test_conservation import scheme
from tests.support.emulated_gpu import EmulatedGpu
from zenc.runtime.lossy.cpu_contribution import CpuContribution
from zenc.runtime.lossy.gpu_contribution import GpuContribution
from zenc.runtime.lossy.gpu_kernels import GpuCompression
from zenc.runtime.lossy.kernels import compression_kernels
from zenc.runtime.lossy.residual_store import FlatState, NamedPiece
from zenc.runtime.lossy.supports import Draw
from zenc.scheme.compression import (
    Above,
    Bisection,
    RandomEach,
    Reused,
    Sampled,
    Selection,
    Top,
    TopOfBlocks,
    TopOfParts,
)

SELECTIONS: dict[str, tuple[Selection, ...]] = {
    "all": (),
    "top": (Top(0.03),),
    "half": (Top(0.5),),
    "sampled": (Top(0.03, Sampled(0.2)),),
    "reused": (Top(0.03, Reused(2)),),
    "bisection": (Top(0.03, Bisection(9)),),
    "parts": (TopOfParts(0.03),),
    "blocks": (TopOfBlocks(0.1, 48),),
    "large blocks": (TopOfBlocks(0.02, 9000),),
    "above": (Above(2.0),),
    "random": (RandomEach(0.1, 5),),
    "several": (Above(2.5), TopOfParts(0.05), TopOfBlocks(0.02, 100), Top(0.02)),
    "several more": (Top(0.02, Sampled(0.2)), Top(0.02, Bisection(9)), RandomEach(0.1, 5), Top(0.02, Reused(2))),
}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
PERMUTED = torch.randperm(10007, generator=torch.Generator().manual_seed(1))


@cache
def on_gpu() -> GpuCompression:
    return GpuCompression(EmulatedGpu(0), zenc.compile_text(scheme("top(0.1)"), target="cuda", arch=[]), 60.0)


def drawn(kind: str, units: int, width: int, dtype: str, seed: int) -> torch.Tensor:
    values = torch.randn(units, width, generator=torch.Generator().manual_seed(seed))
    if kind == "ties":
        values = (values * 2).round()
    if kind == "zeros":
        values[values.abs() < 2] = 0.0
    return values.to(DTYPES[dtype])


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize(
    ("units", "width", "dtype", "kind"),
    [(10007, 1, "f32", "normal"), (3000, 1, "bf16", "ties"), (700, 5, "f16", "zeros"), (2000, 1, "f32", "zeros")],
)
def test_contributions_are_those_of_the_cpu(name: str, units: int, width: int, dtype: str, kind: str) -> None:
    selections = SELECTIONS[name]
    third, pieces = units // 3, (NamedPiece("w", (units, width)),)
    permuted = [PERMUTED[units > PERMUTED][:third], PERMUTED[units > PERMUTED][third:]]
    parts = permuted if kind == "ties" else [range(third), range(third, third), range(third, units)]
    cpu, gpu = FlatState(pieces, torch.device("cpu")), FlatState(pieces, torch.device("cpu"))
    for step in range(2):
        draw = Draw(step, 77 + step, 1, parts)
        wanted, gradient = drawn(kind, units, width, dtype, step), drawn(kind, units, width, dtype, step)
        total, own = (state.room("residual").view_as(gradient) for state in (gpu, cpu))
        known = CpuContribution(compression_kernels(), wanted, cpu, own).contribute(0.5, selections, draw)
        found = GpuContribution(on_gpu(), gradient, gpu, total).contribute(0.5, selections, draw)
        assert torch.equal(gradient, wanted) and gpu.threshold == cpu.threshold
        assert torch.equal(gpu.next.residual, cpu.next.residual) and torch.equal(gpu.next.velocity, cpu.next.velocity)
        assert found.finite and known.finite
        assert found.gradient == pytest.approx(known.gradient) and found.residual == pytest.approx(known.residual)
        cpu.commit(), gpu.commit()


def picked(work: GpuContribution) -> torch.Tensor:
    """Return the contribution: values that have bits, or all of the gradient."""
    if work.taken is None:
        return work.gradient
    bits = torch.from_numpy(np.unpackbits(work.taken.numpy(), bitorder="little")[: work.gradient.numel()])
    return torch.where(bits.view(-1, 1) != 0, work.gradient, torch.zeros_like(work.gradient))


@pytest.mark.parametrize("name", ["top", "half", "sampled", "reused", "parts", "large blocks", "above"])
@pytest.mark.parametrize(("dtype", "kind"), [("f32", "normal"), ("f16", "normal"), ("f32", "ties"), ("bf16", "zeros")])
def test_bits_say_what_is_taken(name: str, dtype: str, kind: str) -> None:
    units, selections = 70_001, SELECTIONS[name]
    parts, pieces = [range(9000), range(9000, 9000), range(9000, units)], (NamedPiece("w", (units, 1)),)
    cpu, gpu = FlatState(pieces, torch.device("cpu")), FlatState(pieces, torch.device("cpu"))
    for step in range(2):
        draw = Draw(step, 77 + step, 1, parts)
        wanted, gradient = drawn(kind, units, 1, dtype, step), drawn(kind, units, 1, dtype, step)
        total, own = (state.room("residual").view_as(gradient) for state in (gpu, cpu))
        known = CpuContribution(compression_kernels(), wanted, cpu, own).contribute(None, selections, draw)
        work = GpuContribution(on_gpu(), gradient, gpu, total, picks=True)
        found = work.contribute(None, selections, draw)
        assert torch.equal(picked(work), wanted) and gpu.threshold == cpu.threshold
        assert torch.equal(gpu.next.residual, cpu.next.residual) and found.residual == pytest.approx(known.residual)
        cpu.commit(), gpu.commit()


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_what_is_not_finite_is_taken_first_and_told(bad: float) -> None:
    gradient = drawn("normal", 500, 1, "f32", 3)
    gradient[17] = bad
    total = torch.empty_like(gradient)
    found = GpuContribution(on_gpu(), gradient, None, total).contribute(None, (Top(0.01),), Draw(0, 1, 0, ()))
    assert not found.finite and not gradient[17].isfinite() and int((gradient != 0).sum()) == 5
