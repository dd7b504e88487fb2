"""Codes on the wire: losses are in residuals, all ranks hold the same bits, and fixed points come back."""

from typing import Any

import pytest
import torch

import zenc
from tests.runtime.lossy.test_conservation import compiled
from tests.support.local import collectives, run_all
from tests.support.refusals import refusals
from zenc.errors import SynchronisationError

CODED = ("int(8, 16)", "int(3, 8)", "levels(4, 8)", "sign(16)", "onebit(8)", "ternary(16)", "fp8(16)")
ROUNDED = ("f16", "bf16")
CUTS = ("imbalanced", "balanced by permutation", "balanced by hierarchical_hash")
MOVES = {
    "owners": "communication: point_to_point aggregation: incremental",
    "one-shot": "communication: point_to_point then ring aggregation: one_shot",
    "ring": "communication: ring aggregation: one_shot",
    "hops": "communication: ring aggregation: incremental",
    "hierarchy": "communication: hierarchy aggregation: incremental",
}
TIERS = (
    "scheme coded { tier node(2): inner tier cluster: outer }"
    "scheme inner { communication: point_to_point aggregation: incremental partition: parallelism "
    "balance: imbalanced push: dense as bf16 pull: dense as bf16 }"
    "scheme outer { communication: point_to_point then ring aggregation: one_shot partition: parallelism "
    "balance: imbalanced push: coo as sign(16) pull: coo as int(8, 16) select: top(0.2) feedback: residual }"
)


def coded(
    code: str, moves: str, cut: str = CUTS[0], format: str = "dense", select: str = "", feedback: str = "residual"
) -> str:
    return (
        f"scheme coded {{ {MOVES[moves]} partition: parallelism balance: {cut} {select} feedback: {feedback} "
        f"push: {format} as {code} pull: {format} as {code} }}"
    )


def unaccounted(text: str, size: int, numel: int, dtype: torch.dtype, calls: int = 3, **options: Any) -> float:
    """Return the greatest value of gradients in no result and no residual, over the allowed rounding: at most 1."""
    ranks = collectives(zenc.compile_text(text, ranks=size, **options), size)
    due, scale = torch.zeros(numel, dtype=torch.float64), 0.0
    for step in range(calls):
        generator = torch.Generator().manual_seed(step)
        given = [torch.randn(numel, generator=generator).to(dtype) for _ in range(size)]
        found = run_all(ranks, [each.clone() for each in given], name="w")
        assert all(torch.equal(found[0], other) for other in found)
        due += torch.stack(given).double().sum(dim=0) - found[0].double()
        scale += float(torch.stack(given).abs().sum(dim=0).max())
    kept = sum(rank.residual("w").double() for rank in ranks)
    coarse = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]  # a sum is rounded to its dtype
    return float((kept - due).abs().max()) / (coarse * scale)


CASES = [
    (code, moves, CUTS[turn % 3], ("dense", "coo", "auto", "block(8)")[turn % 4], 1 + turn % 9)
    for turn, (code, moves) in enumerate(
        [(code, moves) for code in CODED for moves in ("owners", "one-shot", "ring")]
        + [(code, moves) for code in ROUNDED for moves in MOVES]
    )
]


@pytest.mark.parametrize(("code", "moves", "cut", "format", "size"), CASES)
def test_what_codes_lose_is_in_residuals(code: str, moves: str, cut: str, format: str, size: int) -> None:
    turn = CASES.index((code, moves, cut, format, size))
    dtype = (torch.float32, torch.float32, torch.float16, torch.bfloat16)[turn % 4]
    assert unaccounted(coded(code, moves, cut, format), size, (1, 37, 130, 5000)[turn // 4 % 4], dtype) <= 1


def test_selections_codes_and_owners_that_select_again() -> None:
    select = "select: top(0.1) reselect: top_of_blocks(0.1, 32)"
    for size, cut in ((2, CUTS[0]), (5, CUTS[1]), (4, CUTS[2])):
        assert unaccounted(coded("sign(16)", "owners", cut, "coo", select), size, 1000, torch.float32) <= 1


def test_long_messages_and_several_segments_a_message() -> None:
    assert unaccounted(coded("int(8, 64)", "one-shot"), 3, 100_000, torch.float32, calls=1) <= 1
    assert unaccounted(coded("bf16", "hierarchy"), 5, 100_000, torch.float32, calls=1) <= 1


def test_tiers() -> None:
    """A node's sum is selected and encoded again on its way to the others."""
    assert unaccounted(TIERS, 6, 500, torch.float32, scheme="coded") <= 1


@pytest.mark.parametrize("code", [code for code in (*CODED, *ROUNDED) if "levels" not in code])
def test_fixed_points_come_back(code: str) -> None:
    """Values of one rank are fixed points, and those of the others are 0, for which every block has a scale."""
    magnitude = {"int(8, 16)": 127.0, "int(3, 8)": 3.0}.get(code, 1.0) / 4
    given = [torch.full((64,), magnitude), *[torch.zeros(64)] * 2]
    given[0][::2] *= -1
    ranks = collectives(compiled(coded(code, "owners"), 3), 3)
    (found, *_) = run_all(ranks, [each.clone() for each in given], name="w")
    assert torch.equal(found, given[0])
    assert not ranks[0].residual("w").any()


CODES = [(code, "") for code in ("int(8, 16)", "sign(16)", "ternary(16)", "bf16", "onebit(8)", "fp8(16)")]


@pytest.mark.parametrize(("code", "select"), [*CODES, ("fixed(8)", "select: random(0.3)")])
def test_what_is_not_finite_is_seen_by_all(code: str, select: str) -> None:
    """A selection may leave it out, and ranks have the same numbers beside it."""
    ranks = collectives(compiled(coded(code, "owners", select=select), 3), 3)
    run_all(ranks, [torch.ones(40) * rank for rank in range(3)], name="w")
    before = [rank.residual("w") for rank in ranks]
    given = [torch.ones(40) for _ in ranks]
    given[0][9] = torch.inf
    found = run_all(ranks, given, name="w")
    assert all(torch.equal(each.isfinite(), found[0].isfinite()) and not each.isfinite().all() for each in found)
    assert all(torch.equal(rank.residual("w"), kept) for rank, kept in zip(ranks, before, strict=True))


@pytest.mark.parametrize("size", [3, 50, 120, -8])
def test_messages_of_other_lengths_are_refused(size: int) -> None:
    def change(packet: torch.Tensor) -> torch.Tensor:
        length = packet.numel() + size if size < 0 else min(size, packet.numel())
        changed = packet[:length].clone()
        if length >= 24:
            changed[16:24].view(torch.int64)[0] = length
        return changed

    ranks = collectives(compiled(coded("sign(16)", "owners"), 2), 2, deadline=2.0, on_send=change)
    refused = refusals(SynchronisationError, run_all, ranks, [torch.ones(4000), torch.ones(4000)], name="w")
    assert refused[0].id in ("corrupt-message", "different-calls", "corrupt-segment", "deadline")


@pytest.mark.parametrize("code", ["fixed(8)", "fixed(3)", "fixed(8) by asc", "fixed(12) by asc"])
@pytest.mark.parametrize(("moves", "size"), [("hops", 4), ("owners", 3), ("hierarchy", 5)])
def test_integers_of_one_scale_add_without_loss(code: str, moves: str, size: int) -> None:
    for turn, dtype in enumerate((torch.float32, torch.bfloat16)):
        assert unaccounted(coded(code, moves, CUTS[turn % 2]), size, (40_000, 333)[turn], dtype) <= 1


def test_the_scale_is_that_of_the_greatest_of_any_rank() -> None:
    ranks = collectives(compiled(coded("fixed(4)", "hops"), 2), 2)
    found = run_all(ranks, [torch.tensor([7.0, 0.0, 3.0]), torch.tensor([0.25, -0.75, 0.5])], name="w")
    assert found[0].tolist() == [7.0, -1.0, 3.0]  # a step of 1: 0.25 and -0.25 are left, and 0.5, which is even at 0
    assert ranks[1].residual("w").tolist() == [0.25, 0.25, 0.5]


def test_sparse_gradients_travel_encoded() -> None:
    text = coded("bf16", "owners", format="auto", feedback="none")
    ranks = collectives(compiled(text, 3), 3)
    given = [torch.eye(40)[:, ::4].mul(rank + 1).to_sparse(1) for rank in range(3)]
    for op, total in (("sum", 6.0), ("mean", 2.0)):
        for found in run_all(ranks, given, op):
            assert torch.equal(found.to_dense(), torch.eye(40)[:, ::4] * total)


def test_a_rank_that_is_alone_loses_nothing() -> None:
    text = coded("sign(16)", "owners", CUTS[1], "coo", "select: top(0.1) reselect: top(0.1)")
    (alone,) = collectives(compiled(text, 1), 1)
    given = torch.randn(500)
    assert torch.equal(alone.all_reduce(given.clone(), name="w"), given)
    assert not alone.residual("w").any()


@pytest.mark.parametrize("feedback", ["residual", "none"])
def test_tensors_with_gaps_are_summed_in_place(feedback: str) -> None:
    ranks = collectives(compiled(coded("bf16", "owners", feedback=feedback), 2), 2)
    given = [torch.ones(8, 6).t().requires_grad_(), torch.ones(8, 12)[:, ::2].t()]
    found = run_all(ranks, given, "mean", name="w")
    assert all(one is other and torch.equal(one, torch.ones(6, 8)) for one, other in zip(found, given, strict=True))


@pytest.mark.one_in(1)
@pytest.mark.parametrize(("size", "dtype"), [(3, torch.float32), (4, torch.bfloat16)])
def test_votes_are_a_majority_and_ties_are_drawn(size: int, dtype: torch.dtype) -> None:
    """A mean is 1 or -1, whatever magnitudes are; where votes are equal it is either, the same on all ranks."""
    drawn = torch.randn(size, 2000, generator=torch.Generator().manual_seed(0))
    given = [(drawn[rank] * 10**rank).to(dtype) for rank in range(size)]
    ranks = collectives(zenc.compile("signum", ranks=size, params={"beta": 0, "block": 64}), size)
    found, *others = run_all(ranks, [each.clone() for each in given], "mean", name="w")
    votes = torch.stack(given).sign().sum(0)
    assert found.abs().eq(1).all() and all(torch.equal(each, found) for each in others)
    assert torch.equal(found[votes != 0], votes.sign()[votes != 0])
    ties = found[votes == 0].float()
    assert (len(ties) > 0) == (size % 2 == 0) and abs(float(ties.sum())) < 4 * max(1, len(ties)) ** 0.5
    assert ranks[0].state_dict()["feedback"] == "none"


def test_tiers_vote_by_their_sums() -> None:
    """Across nodes a sum has as many votes as ranks made it."""
    text = (
        f"scheme nodes {{ tier node(2): dense_ring tier cluster: across }} scheme across {{ {MOVES['owners']} "
        "partition: parallelism balance: imbalanced push: dense as vote(8) pull: dense as vote(8) feedback: none }"
    )
    given = [torch.tensor([5.0, -1.0, 1.0])] * 2 + [torch.tensor([-1.0, -1.0, 9.0])] * 4
    ranks = collectives(zenc.compile_text(text, ranks=6, scheme="nodes"), 6)
    assert [each.tolist() for each in run_all(ranks, [each.clone() for each in given])] == [[-6.0, -6.0, 6.0]] * 6
