"""Selections on CPUs and on emulated GPUs, which are the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import zenc
from tests.runtime.lossy.test_codes import coded
from tests.runtime.lossy.test_conservation import compiled, gradients, scheme
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from zenc.errors import BuildError
from zenc.pipeline import backend

SELECTED = ("top_of_parts(0.2)", "top(0.1) by reused(2)", "above(7) then top(0.1)", "top(0.1) then random_each(0.1)")
LINEAR = ("random(0.1)", "probable(0.1) then random(0.1) then sketch(3, 0.3)", "sketch(4, 1)", "heavy(0.1, 3, 0.3)")
UNITS = {"sketch(4, 1)": 5000}
"""Units where 300 are too few: for several groups of a sketch, whose last run is not whole."""


@pytest.mark.parametrize("selection", [*SELECTED, *LINEAR])
def test_calls_of_gpus_sum_what_was_selected(selection: str) -> None:
    linear = selection in LINEAR
    text = scheme(selection, feedback="residual" if linear else "momentum(0.5)")
    text = text.replace("coo", "dense") if linear else text
    gpus = [rank.collective for rank in emulated_ranks(zenc.compile_text(text, ranks=2, target="cuda", arch=[]), 2)]
    cpus = collectives(compiled(text, 2), 2)
    for step in range(2):
        given = gradients(2, UNITS.get(selection, 300), step)
        of_gpus, of_cpus = (run_all(ranks, [*map(torch.clone, given)], "mean", name="w") for ranks in (gpus, cpus))
        assert all(torch.equal(a, b) for a, b in zip(of_gpus, of_cpus, strict=True))
        assert all(torch.equal(a.residual("w"), b.residual("w")) for a, b in zip(gpus, cpus, strict=True))
    assert gpus[0].stats["loss"]["residual_norm"] == pytest.approx(cpus[0].stats["loss"]["residual_norm"])


def test_sums_that_float32_can_not_hold_are_refused() -> None:
    artifact = compiled(coded("fixed(16)", "owners"), 2)
    many: Any = SimpleNamespace(size=1025, rank=0)
    with pytest.raises(BuildError, match="1025 values of 16 bits have more than 25"):
        backend(artifact, torch.device("cpu"), many, 1.0)
