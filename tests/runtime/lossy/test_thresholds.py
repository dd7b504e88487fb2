"""Reused thresholds take their share of units, on average and after gradients change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import zenc
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from zenc.gradients.profile_generators import uniform
from zenc.runtime.call.collective import Collective
from zenc.simulator.predict import predict

SIZE, CALLS, DENSITY = 4, 100, 0.01


def normal() -> Iterator[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    while True:
        yield [torch.randn(20_000, generator=generator) for _ in range(SIZE)]


def rescaled() -> Iterator[list[torch.Tensor]]:
    for step, gradients in enumerate(normal()):
        yield [each * (100 if 30 <= step < 60 else 1) for each in gradients]


def of_a_model() -> Iterator[list[torch.Tensor]]:
    """Yield gradients of a classifier that trains on a part of the data on each rank."""
    torch.manual_seed(3)
    layers = [
        torch.nn.Linear(64, 200),
        torch.nn.ReLU(),
        torch.nn.Linear(200, 40),
        torch.nn.ReLU(),
        torch.nn.Linear(40, 5),
    ]
    model, teacher = torch.nn.Sequential(*layers), torch.randn(64, 5)
    while True:
        found = []
        for _ in range(SIZE):
            inputs = torch.randn(32, 64)
            loss = torch.nn.functional.cross_entropy(model(inputs), (inputs @ teacher).argmax(dim=1))
            found.append(torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))]))
        with torch.no_grad():
            mean, first = torch.stack(found).mean(dim=0), 0
            for parameter in model.parameters():
                parameter -= 0.1 * mean[first : first + parameter.numel()].view_as(parameter)
                first += parameter.numel()
        yield found


def played(
    ranks: list[Collective], gradients: Iterator[list[torch.Tensor]], calls: int
) -> tuple[list[float], list[float]]:
    """Return rank 0's bytes over the documented ones, and its units over their share, for each call."""
    sent, units = [], []
    for _, given in zip(range(calls), gradients, strict=False):
        run_all(ranks, [each.clone() for each in given], name="w")
        documented = (SIZE - 1) / SIZE * 4 * DENSITY * 4 * given[0].numel()
        sent.append(ranks[0].stats["bytes_sent"] / documented)
        units.append(ranks[0].stats["units_in"] / (DENSITY * given[0].numel()))
    return sent, units


@pytest.mark.parametrize("gradients", [normal, rescaled, of_a_model])
def test_ok_topk_sends_what_is_documented(gradients: Callable[[], Iterator[list[torch.Tensor]]]) -> None:
    ranks = collectives(zenc.compile("ok_topk", ranks=SIZE), SIZE)
    sent, units = played(ranks, gradients(), CALLS)
    assert sum(sent) / CALLS < 1.2 and sum(units) / CALLS < 1.2
    assert max(sent) < 2 and max(units) < 3
    assert sum(units) / CALLS > 0.7


def test_simulated_bytes_are_those_of_the_mean_call_or_some_more() -> None:
    """An owner's second selection keeps units and may select them again, which need not travel."""
    ranks = collectives(zenc.compile("ok_topk", ranks=SIZE), SIZE)
    sent = sum(played(ranks, normal(), CALLS)[0]) / CALLS * (SIZE - 1) / SIZE * 4 * DENSITY * 80_000
    told = predict(zenc.compile("ok_topk").plan, SIZE, uniform(1.0, 20_000)).sent
    assert 0.7 * told < sent <= told


def test_gpus_use_the_same_thresholds() -> None:
    host = collectives(zenc.compile("ok_topk", ranks=SIZE), SIZE)
    artifact = zenc.compile("ok_topk", ranks=SIZE, target="cuda", arch="none")
    gpus = [each.collective for each in emulated_ranks(artifact, SIZE)]
    for step, given in zip(range(6), normal(), strict=False):
        scaled = [each[:2000] * (100 if step > 3 else 1) for each in given]
        found = [run_all(ranks, [each.clone() for each in scaled], name="w")[0] for ranks in (host, gpus)]
        assert torch.equal(*found)
