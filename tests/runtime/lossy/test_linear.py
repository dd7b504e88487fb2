"""Linear selections and reused thresholds: nothing is lost that is not kept, and shares of units are those asked."""

from collections.abc import Callable, Iterator

import pytest
import torch

import zenc
from tests.runtime.lossy.test_codes import MOVES, unaccounted
from tests.runtime.lossy.test_conservation import compiled
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from zenc.gradients.profile_generators import uniform
from zenc.runtime.call.collective import Collective
from zenc.simulator.predict import predict


def linear(select: str, moves: str = "hops", how: str = "", more: str = "") -> str:
    return (
        f"scheme linear {{ {MOVES[moves]} partition: parallelism balance: imbalanced select: {select} "
        f"feedback: residual push: dense {how} pull: dense {how} {more} }}"
    )


CASES = [
    ("random(0.1)", "hops", ""), ("sketch(3, 0.1)", "owners", ""), ("probable(0.1)", "one-shot", ""),
    ("probable(0.05) then sketch(3, 0.1)", "hops", ""), ("probable(0.05) then random(0.1)", "owners", "as sign(16)"),
    ("random(0.3)", "hops", "as fixed(8) by asc"), ("probable(0.1) then sketch(5, 0.2)", "hops", "as bf16"),
    ("heavy(0.1, 3, 0.2)", "hops", ""), ("heavy(0.05, 3, 0.3) then random(0.1)", "owners", "as bf16"),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)))
def test_nothing_is_lost(turn: int, case: tuple[str, str, str]) -> None:
    for size, numel, dtype in ((1 + turn, 333, torch.float32), (4, 1 + turn, torch.float32), (3, 70, torch.bfloat16)):
        assert unaccounted(linear(*case), size, numel, dtype, calls=4) <= 1


def test_random_units_are_others_in_each_call_and_the_same_on_all_ranks() -> None:
    ranks = collectives(compiled(linear("random(0.1)"), 3), 3)
    seen = []
    for _ in range(3):
        (found, *_) = run_all(ranks, [torch.ones(100) for _ in ranks], name="w")
        seen.append(frozenset(found.nonzero()[:, 0].tolist()))
        assert ranks[0].stats["units_in"] == len(seen[-1]) == 10
    assert len(set(seen)) == 3


def test_probable_units_are_those_that_were_great() -> None:
    """The sketch finds large units, which the next call sends exactly, with their residuals."""
    given = torch.zeros(200)
    given[[17, 150]] = torch.tensor([100.0, -50.0])
    ranks = collectives(compiled(linear("probable(0.01) then sketch(3, 0.5)"), 2), 2)
    for _ in range(3):
        (found, *_) = run_all(ranks, [given.clone(), given.clone()], name="w")
    assert found[[17, 150]].tolist() == [200.0, -100.0]


def test_heavy_units_come_exactly_once_the_sum_of_sketches_has_found_them() -> None:
    ranks = collectives(compiled(linear("heavy(0.01, 5, 0.5)"), 2), 2)
    given = [torch.full((400,), 0.01), torch.full((400,), 0.01)]
    given[0][[17, 150, 300]] = torch.tensor([60.0, 50.0, 1e3])
    given[1][[17, 150, 300]] = torch.tensor([60.0, -49.0, -1e3])
    first, second = (run_all(ranks, [each.clone() for each in given], name="w")[0].clone() for _ in range(2))
    assert first.nonzero()[:, 0].tolist() == [0, 1, 2, 3] and int(second.count_nonzero()) <= 4
    assert (second[17], second[300]) == (240.0, 0.0), "both calls' values; units that cancel out are not great"
    kept = ranks[0].residual("w") + ranks[1].residual("w")
    assert torch.allclose(first + second + kept, 2 * (given[0] + given[1]))


@pytest.mark.parametrize("feedback", ["residual", "none"])
def test_what_was_summed_is_remembered_with_and_without_residuals(feedback: str) -> None:
    text = linear("probable(0.01) then random(0.5)").replace("residual", feedback)
    given = torch.zeros(100)
    given[90] = 5.0
    ranks = collectives(compiled(text, 2), 2)
    sent = [float(run_all(ranks, [given.clone(), given.clone()], name="w")[0][90]) for _ in range(8)]
    first = next(step for step, value in enumerate(sent) if value)
    assert first < 7 and all(value >= 10.0 for value in sent[first:])


def test_a_warm_up_sends_everything() -> None:
    ranks = collectives(compiled(linear("random(0.1)", more="warmup: dense(1)"), 2), 2)
    for units in (100, 10):
        (found, *_) = run_all(ranks, [torch.ones(100), torch.ones(100)], name="w")
        assert int(found.count_nonzero()) == units


def test_what_is_not_finite_is_seen_by_all() -> None:
    for select in ("random(0.1)", "sketch(3, 0.1)", "probable(0.1)", "heavy(0.1)"):
        ranks = collectives(compiled(linear(select), 2), 2)
        run_all(ranks, [torch.ones(100), torch.ones(100)], name="w")
        before = ranks[1].residual("w")
        given = torch.ones(100)
        given[99] = torch.nan
        assert not any(bool(each.isfinite().all()) for each in run_all(ranks, [torch.ones(100), given], name="w"))
        assert torch.equal(ranks[1].residual("w"), before)
        assert isinstance(ranks[0], zenc.Collective)


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
        torch.nn.Linear(64, 200), torch.nn.ReLU(), torch.nn.Linear(200, 40), torch.nn.ReLU(), torch.nn.Linear(40, 5),
    ]  # fmt: skip
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
