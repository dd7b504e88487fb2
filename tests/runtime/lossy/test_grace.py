"""Steps of the compressors of GRACE (sands-lab/grace, revision fd3a7f4, by their descriptions): results and residuals.

Values are within 2.5 deviations, beyond which GRACE's TernGrad clips them. Blocks are whole tensors, as GRACE's are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import zenc
from tests.support.local import collectives, run_all
from zenc.runtime.call.collective import Collective

NUMEL, STEPS = 200, 3


def steps(rules: str, push: str, momentum: float | None = None) -> list[tuple[Tensor, Tensor]]:
    """Return what one rank compresses and what the other receives in each step, [NUMEL]."""
    feedback = "residual" if momentum is None else f"momentum({momentum})"
    text = (
        "scheme s { communication: point_to_point aggregation: incremental partition: centralization "
        f"{rules} feedback: {feedback} push: {push} pull: dense }}"
    )
    ranks: list[Collective] = collectives(zenc.compile_text(text, ranks=2), 2)
    kept, velocity, made = torch.zeros(NUMEL), torch.zeros(NUMEL), []
    for step in range(STEPS):
        given = torch.rand(NUMEL, generator=torch.Generator().manual_seed(step)) * 2 - 1
        velocity = velocity * (momentum or 0) + given
        whole = kept + velocity
        found, other = run_all(ranks, [torch.zeros(NUMEL), given], name="w")
        assert torch.equal(found, other)
        kept = ranks[1].residual("w")
        torch.testing.assert_close(kept, whole - found, rtol=0, atol=1e-6)
        velocity = velocity * (kept != 0)  # GRACE's `dgc` forgets momentum of what it has sent
        made.append((whole, found))
    return made


def top(whole: Tensor) -> Tensor:
    chosen = whole.abs().topk(NUMEL // 10).indices
    return torch.zeros_like(whole).scatter(0, chosen, whole[chosen])


def signs(whole: Tensor) -> Tensor:
    return torch.where(whole >= 0, 1.0, -1.0) * whole.abs().mean()


def one_bit(whole: Tensor) -> Tensor:
    below = whole < 0
    return torch.where(below, whole[below].mean(), whole[~below].mean())


COMPRESSORS: dict[str, tuple[str, str, float | None, Callable[[Tensor], Tensor]]] = {
    "topk": ("select: top(0.1)", "coo", None, top),
    "dgc": ("select: top(0.1)", "coo", 0.9, top),
    "threshold": ("select: above(0.7)", "coo", None, lambda whole: whole * (whole.abs() > 0.7)),
    "efsignsgd": ("", "dense as sign(4096)", None, signs),
    "onebit": ("", "dense as onebit(4096)", None, one_bit),
    "fp16": ("", "dense as f16", None, lambda whole: whole.half().float()),
}


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressors_are_those_of_grace(name: str) -> None:
    rules, push, momentum, compress = COMPRESSORS[name]
    for whole, found in steps(rules, push, momentum):
        torch.testing.assert_close(found, compress(whole), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("push", "levels"), [("dense as levels(4, 4096)", 4), ("dense as ternary(4096)", 1)])
def test_levels_are_those_of_grace(push: str, levels: int) -> None:
    """QSGD's are of the norm, TernGrad's of the greatest: a value goes to one of the two beside it, by chance."""
    for whole, found in steps("", push):
        scale = (whole.norm() if levels > 1 else whole.abs().max()) / levels
        level = (found / scale).round()
        torch.testing.assert_close(found, level * scale, rtol=0, atol=4e-6)
        assert float((level - whole / scale).abs().max()) < 1 and 0 < int(level.count_nonzero()) < NUMEL


def test_majorities_are_those_of_grace() -> None:
    """Signum's majority of signs, but that GRACE decides a tie for 1."""
    given = torch.randn(3, NUMEL, generator=torch.Generator().manual_seed(9))
    found, *_ = run_all(collectives(zenc.compile("signum", ranks=3), 3), list(given.clone()), "mean", name="w")
    assert torch.equal(found, ((given >= 0).sum(0) >= 1.5) * 2.0 - 1.0)
