"""The same selection on every device: compiled kernels on CPUs, torch's operations on GPUs, which are emulated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import zenc
from tests.runtime.compression.test_codes import coded
from tests.runtime.compression.test_conservation import CUTS, compiled, gradients, scheme
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from zenc.errors import BuildError
from zenc.pipeline import backend
from zenc.runtime.compression.lossy_call import LossyCall

EXACT = (
    "top(0.1)",
    "top(0.1) by reused(2)",
    "top_of_parts(0.2)",
    "top_of_blocks(0.1, 16)",
    "above(3)",
    "above(7) then top(0.1)",
)


def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LossyCall, "kernels", property(lambda _: None))


@pytest.mark.parametrize("selection", EXACT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torch_selects_what_the_kernels_select(
    selection: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[torch.Tensor, ...]] = []
    text = scheme(selection, CUTS[1], feedback="momentum(0.5)")  # parts are not contiguous
    for patch in (lambda _: None, as_on_gpus):
        patch(monkeypatch)
        ranks = collectives(compiled(text, 2), 2)
        for step in range(3):
            result = run_all(ranks, gradients(2, 333, step, dtype), name="w")[0]
            found.append((result, *[rank.residual("w") for rank in ranks]))
    for by_kernels, by_torch in zip(found[:3], found[3:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(by_kernels, by_torch, strict=True))


def test_calls_of_gpus_sum_what_was_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_gpus(monkeypatch)
    artifact = zenc.compile_text(scheme("top_of_parts(0.2)"), ranks=2, target="cuda", arch=[])
    gpus = [rank.collective for rank in emulated_ranks(artifact, 2)]
    cpus = collectives(compiled(scheme("top_of_parts(0.2)"), 2), 2)
    for step in range(2):
        of_gpus, of_cpus = (run_all(ranks, gradients(2, 300, step), "mean", name="w") for ranks in (gpus, cpus))
        assert all(torch.equal(a, b) for a, b in zip(of_gpus, of_cpus, strict=True))
        assert all(torch.equal(a.residual("w"), b.residual("w")) for a, b in zip(gpus, cpus, strict=True))
    assert gpus[0].stats["loss"]["residual_norm"] > 0


RESELECTED = "select: top(0.1) reselect: top(0.1)"
WITHIN = (coded("fixed(8)", "hops"), coded("sign(8)", "owners", format="coo", select=RESELECTED))


@pytest.mark.parametrize("text", [*WITHIN, scheme("random(0.1)").replace("coo", "dense")])
def test_what_calls_on_gpus_can_not_do_is_said(text: str) -> None:
    (alone,) = collectives(compiled(text, 1), 1)
    with pytest.raises(BuildError) as raised:
        backend(alone.artifact, torch.device("cuda", 0), alone.communicator, 1.0)
    with pytest.raises(BuildError) as when_compiled:
        zenc.compile_text(text, ranks=2, target="cuda", arch=[])
    for error in (raised, when_compiled):
        assert error.value.diagnostics[0].id == "no-compression"


def test_sums_that_float32_can_not_hold_are_refused() -> None:
    artifact = compiled(coded("fixed(16)", "owners"), 2)
    many: Any = SimpleNamespace(size=1025, rank=0)
    with pytest.raises(BuildError, match="1025 values of 16 bits have more than 25"):
        backend(artifact, torch.device("cpu"), many, 1.0)
