"""Conservation: gradients and old residuals = result and new residuals, unit by unit, in float64.

Gradients are small integers, so that float32 adds them exactly and a mere selection has to agree bit for bit.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import zenc
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact
from zenc.runtime.call.collective import Collective
from zenc.runtime.lossy.lossy_collective import LossyCollective

SHAPES = {"a": (5, 7), "b": (13,), "c": (1,), "d": (8, 3)}
COMPOSITIONS = (("a", "b", "c", "d"), ("a",), ("b", "c", "d"), ("d", "a"), ("c", "b"))
"""Buckets of a model's calls, as DDP rebuilds them."""

SELECTIONS = (
    "top(0.1)", "top_of_parts(0.2)", "top_of_blocks(0.1, 16)", "above(3)", "random_each(0.3)",
    "top(0.1) then random_each(0.2)", "top(0.1) by sampled(0.2)", "top(0.1) by reused(3)",
    "top(0.1) by bisection(10)",
)  # fmt: skip
CUTS = (
    "partition: parallelism balance: imbalanced",
    "partition: parallelism balance: balanced by permutation",
    "partition: parallelism balance: balanced by hierarchical_hash",
    "partition: centralization",
)


def scheme(selection: str, cut: str = CUTS[0], feedback: str = "residual", more: str = "") -> str:
    moves = "point_to_point" if "centralization" in cut else "point_to_point then ring"
    return (
        f"scheme lossy {{ communication: {moves} aggregation: incremental {cut} push: coo pull: dense "
        f"select: {selection} feedback: {feedback} {more} }}"
    )


def compiled(text: str, size: int) -> Artifact:
    return zenc.compile_text(text, ranks=size)


def gradients(size: int, numel: int, seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(-8, 9, (numel,), generator=generator).to(dtype) for _ in range(size)]


def pieces_of(names: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, SHAPES[name]) for name in names]


def numel_of(names: Sequence[str]) -> int:
    return sum(torch.Size(SHAPES[name]).numel() for name in names)


class Books:
    """Sums of inputs and outputs, by name, in float64."""

    def __init__(self) -> None:
        self.due = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in SHAPES.items()}

    def call(self, ranks: list[Collective], names: Sequence[str], seed: int, dtype: torch.dtype, op: Any) -> None:
        given = gradients(len(ranks), numel_of(names), seed, dtype)
        found = run_all(ranks, [each.clone() for each in given], op, name=pieces_of(names))
        assert all(torch.equal(found[0], other) for other in found)
        total = found[0].double() * (len(ranks) if op == "mean" else 1)
        left = sum((each.double() for each in given), -total)
        for name, piece in zip(names, left.split([torch.Size(SHAPES[name]).numel() for name in names]), strict=True):
            self.due[name] += piece.view(SHAPES[name])

    def lost(self, ranks: list[Collective], names: Sequence[str]) -> list[str]:
        """Return the names with a loss that is in no sum and no residual."""
        kept = {name: torch.as_tensor(sum(rank.residual(name).double() for rank in ranks)) for name in names}
        return [name for name in names if not torch.equal(kept[name], self.due[name])]


@pytest.mark.parametrize(("turn", "selection"), list(enumerate(SELECTIONS)))
def test_selections_lose_nothing(turn: int, selection: str) -> None:
    """Pieces, numbers of ranks, cuts and dtypes change from call to call, in sums and means."""
    size, cut = (3, 4, 2, 9, 5, 1, 8, 6, 7)[turn], CUTS[turn % len(CUTS)]
    dtype = (torch.float32, torch.float16, torch.bfloat16)[turn % 3]
    ranks, books = collectives(compiled(scheme(selection, cut), size), size), Books()
    for step in range(10):
        names = COMPOSITIONS[step % len(COMPOSITIONS)]
        books.call(ranks, names, 100 * turn + step, dtype, "mean" if size in (2, 4, 8) and turn % 2 else "sum")
        assert books.lost(ranks, names) == []


def test_50_calls_with_rebuilt_buckets_and_another_number_of_ranks() -> None:
    """Residuals of four ranks go on with three, and then with one, which leaves nothing out."""
    books, state = Books(), None
    for size, first, calls in ((4, 0, 30), (3, 30, 19), (1, 49, 1)):
        ranks = collectives(compiled(scheme("top(0.05)"), size), size)
        if state is not None:
            for rank in ranks:
                rank.load_state_dict(state)
        for step in range(first, first + calls):
            names = COMPOSITIONS[step % len(COMPOSITIONS)] if size > 1 else COMPOSITIONS[0]
            books.call(ranks, names, step, torch.float32, "sum")
        if size > 1:
            state = summed([rank.state_dict() for rank in ranks])
    for name in SHAPES:
        torch.testing.assert_close(books.due[name], torch.zeros_like(books.due[name]), atol=1e-4, rtol=0)


def summed(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state that the ranks make together of their own."""
    tensors = {name: dict(entry) for name, entry in states[0]["tensors"].items()}
    for name, entry in tensors.items():
        entry["residual"] = sum(state["tensors"][name]["residual"].double() for state in states).float()
        entry["threshold"] = None
    return {**states[0], "rank": None, "tensors": tensors}


@pytest.mark.parametrize("warm", [0, 4])
def test_momentum_is_cleared_where_units_are_sent_after_the_warm_up(warm: int) -> None:
    """DGC in float64: u = m u + g, v = v + u; both are zeroed where sent, and during warm-up u only."""
    size, m = 2, 0.5
    more = f"warmup: falling({warm}, 0.5)" if warm else ""
    ranks = collectives(compiled(scheme("top(0.25)", feedback=f"momentum({m})", more=more), size), size)
    u, v = torch.zeros(2, 8, dtype=torch.float64), torch.zeros(2, 8, dtype=torch.float64)
    for step in range(6):
        given = gradients(size, 8, step)
        (found, _) = run_all(ranks, [each.clone() for each in given], name="w")
        u = m * u + torch.stack(given)
        v = v + u
        sent = torch.zeros_like(v)
        for rank in range(size):
            chosen = sorted(range(8), key=lambda unit, rank=rank: (-abs(float(v[rank, unit])), unit))
            chosen = chosen[: 4 if step < warm else 2]
            sent[rank, chosen] = v[rank, chosen]
            v[rank, chosen] = 0.0
            if step >= warm:
                u[rank, chosen] = 0.0
        assert torch.equal(found.double(), sent.sum(dim=0))
        assert torch.equal(ranks[1].residual("w").double(), v[1])


def test_warm_up_contributes_everything_then_ever_less() -> None:
    dense = collectives(compiled(scheme("top(0.1)", more="warmup: dense(2)"), 2), 2)
    falling = collectives(compiled(scheme("top(0.01)", more="warmup: falling(2, 0.5)"), 2), 2)
    found = []
    for ranks in (dense, falling):
        for step in range(3):
            run_all(ranks, [torch.arange(1.0, 101.0) for _ in ranks], name="w")
            found.append((step, ranks[0].stats["units_in"]))
    assert found == [(0, 100), (1, 100), (2, 10), (0, 50), (1, 12), (2, 1)]  # 12: a quarter of 50


@pytest.mark.parametrize("selection", ["top(0.1)", "random_each(0.1)", "above(3)"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_on_one_rank_is_seen_by_all_and_kept_by_none(selection: str, bad: float) -> None:
    ranks = collectives(compiled(scheme(selection), 3), 3)
    run_all(ranks, gradients(3, 40, 0), name="w")
    before = [rank.residual("w") for rank in ranks]
    given = gradients(3, 40, 1)
    given[1][17] = bad
    assert not any(bool(torch.isfinite(each).all()) for each in run_all(ranks, given, name="w"))
    assert all(torch.equal(rank.residual("w"), kept) for rank, kept in zip(ranks, before, strict=True))
    assert all(bool(torch.isfinite(each).all()) for each in run_all(ranks, gradients(3, 40, 2), name="w"))


def test_a_call_is_taken_back_and_what_is_kept_is_scaled() -> None:
    ranks = collectives(compiled(scheme("top(0.1)"), 2), 2)
    (of_rank_0, *_) = ranks
    assert isinstance(of_rank_0, LossyCollective)
    run_all(ranks, gradients(2, 40, 0), name="w")
    before = ranks[0].residual("w")
    run_all(ranks, gradients(2, 40, 1), name="w")
    for _ in range(2):  # the second time there is nothing to take back
        of_rank_0.take_back(["w"])
        assert torch.equal(ranks[0].residual("w"), before)
    of_rank_0.rescale(0.5)
    assert torch.equal(ranks[0].residual("w"), before / 2)


@pytest.mark.parametrize("cut", ["balanced by holders", "imbalanced", "balanced by permutation"])
@pytest.mark.parametrize(
    "selection", ["top(0.2)", "top_of_blocks(0.2, 8)", "above(7)", "top(0.1) then random_each(0.2)"]
)
def test_rows_are_selected_whole(selection: str, cut: str) -> None:
    text = (
        f"scheme lossy {{ communication: point_to_point aggregation: incremental partition: parallelism "
        f"balance: {cut} unit: row select: {selection} feedback: residual }}"
    )
    ranks, due = collectives(compiled(text, 3), 3), torch.zeros(50, 4, dtype=torch.float64)
    for step in range(4):
        given = [each.view(50, 4) for each in gradients(3, 200, step)]
        found = run_all(ranks, [each.clone() for each in given], name="w")[0]
        due += torch.stack(given).double().sum(dim=0) - found.double()
        kept = torch.stack([rank.residual("w") for rank in ranks])
        assert torch.equal(kept.double().sum(dim=0), due)
        assert ((kept != 0).any(dim=2).sum(dim=1) < 50).all()
    assert ranks[0].stats["units_in"] < 50
