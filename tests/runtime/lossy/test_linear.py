"""Linear selections: a shorter dense tensor goes through the plan, and all losses are in residuals."""

from __future__ import annotations

import pytest
import torch

import zenc
from tests.runtime.lossy.test_codes import MOVES, unaccounted
from tests.runtime.lossy.test_conservation import compiled
from tests.support.local import collectives, run_all


def linear(select: str, moves: str = "hops", how: str = "", more: str = "") -> str:
    return (
        f"scheme linear {{ {MOVES[moves]} partition: parallelism balance: imbalanced select: {select} "
        f"feedback: residual push: dense {how} pull: dense {how} {more} }}"
    )


CASES = [
    ("random(0.1)", "hops", ""),
    ("sketch(3, 0.1)", "owners", ""),
    ("probable(0.1)", "one-shot", ""),
    ("probable(0.05) then sketch(3, 0.1)", "hops", ""),
    ("probable(0.05) then random(0.1)", "owners", "as sign(16)"),
    ("random(0.3)", "hops", "as fixed(8) by asc"),
    ("probable(0.1) then sketch(5, 0.2)", "hops", "as bf16"),
    ("heavy(0.1, 3, 0.2)", "hops", ""),
    ("heavy(0.05, 3, 0.3) then random(0.1)", "owners", "as bf16"),
]


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
