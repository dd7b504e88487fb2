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


@pytest.mark.one_in(1)
@pytest.mark.parametrize(("size", "dtype", "beta"), [(2, torch.float32, 0.9), (3, torch.float16, 0.9), (4, None, 0.5)])
def test_majorities_are_those_of_momenta(size: int, dtype: torch.dtype | None, beta: float) -> None:
    """Signum (ICLR 2019): m = beta * m + (1 - beta) * g, of which nothing is taken out; ties are drawn.

    Each rank's own state, taken and loaded after every step, goes on with it.
    """
    artifact, momenta = zenc.compile("signum", ranks=size, params={"beta": beta}), torch.zeros(size, NUMEL).double()
    ranks: list[Collective] = collectives(artifact, size)
    for step in range(STEPS):
        given = torch.randn(size, NUMEL, generator=torch.Generator().manual_seed(step)).to(dtype) * 10.0 ** (1 - step)
        momenta = beta * momenta + (1 - beta) * given.double()
        found, *others = run_all(ranks, list(given.clone()), "mean", name="w")
        votes = momenta.sign().sum(0)
        assert found.abs().eq(1).all() and all(torch.equal(each, found) for each in others)
        assert torch.equal(found[votes != 0].double(), votes.sign()[votes != 0])
        kept = torch.stack([rank.residual("w") for rank in ranks]).double()
        torch.testing.assert_close(kept, beta / (1 - beta) * momenta, rtol=1e-6, atol=1e-6)
        states, ranks = [rank.state_dict() for rank in ranks], collectives(artifact, size)
        for rank, state in zip(ranks, states, strict=True):
            rank.load_state_dict(state)


def test_momentum_is_kept_of_finite_sums_alone() -> None:
    ranks = collectives(zenc.compile("signum", ranks=2), 2)
    run_all(ranks, [torch.ones(9), -torch.ones(9)], name="w")
    found = run_all(ranks, [torch.ones(9), torch.full((9,), torch.inf)], name="w")
    assert not any(bool(torch.isfinite(each).all()) for each in found)
    assert [rank.residual("w").tolist() for rank in ranks] == [
        [torch.tensor(sign * 0.9).item()] * 9 for sign in (1, -1)
    ]
