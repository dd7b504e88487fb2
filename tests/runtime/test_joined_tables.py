"""Several tables in one call: the bits of separate calls, the messages of one, and errors for lists that differ."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import zenc
from tests.runtime.jobs import bits
from tests.support.cases import dense_tensor, sparse_tensor
from tests.support.fuzz import fuzzed
from tests.support.local import collectives

SCHEMES = ("balanced", "agsparse", "holders", "hierarchical_centralization")


def on_all(ranks: list[Any], call: Any) -> list[Any]:
    """Return the result of ``call`` on each rank, or the error that it raises."""

    def of(rank: int) -> Any:
        try:
            return call(ranks[rank], rank)
        except zenc.ZencError as error:
            return error.diagnostics[0].id

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(of, range(len(ranks))))


def tensors_of(made: list[tuple[str, int, int]], rank: int, size: int) -> list[torch.Tensor]:
    return [
        dense_tensor("random", rank, size, rows, 1, torch.float32, seed)
        if kind == "dense"
        else sparse_tensor("random", rank, size, rows, width, torch.float16 if kind == "half" else torch.float32, seed)
        for seed, (kind, rows, width) in enumerate(made)
    ]


tables = st.tuples(
    st.sampled_from(["rows", "rows", "rows", "half", "dense"]), st.sampled_from([1, 63, 700]), st.sampled_from([1, 4])
)


@fuzzed(12)
@given(st.integers(1, 4), st.lists(tables, max_size=6), st.sampled_from(SCHEMES), st.sampled_from(["sum", "mean"]))
def test_tables_in_one_call_have_the_bits_of_their_own(
    size: int, made: list[tuple[str, int, int]], scheme: str, op: str
) -> None:
    ranks = collectives(zenc.compile(scheme, ranks=size), size)
    together = on_all(ranks, lambda one, rank: one.all_reduce_coalesced(tensors_of(made, rank, size), op))
    alone = on_all(ranks, lambda one, rank: [one.all_reduce(each, op) for each in tensors_of(made, rank, size)])
    assert [[bits(each) for each in sums] for sums in together] == [[bits(each) for each in sums] for sums in alone]
    shapes = [each.shape for each in tensors_of(made, 0, size)]
    assert all([each.shape for each in sums] == shapes for sums in together)
    assert all(each.is_coalesced() for sums in together for each in sums if each.is_sparse)


def test_ten_tables_send_the_messages_of_one() -> None:
    ranks = collectives(zenc.compile("balanced", ranks=3), 3)
    on_all(ranks, lambda one, rank: one.all_reduce_coalesced(tensors_of([("rows", 100, 4)] * 10, rank, 3)))
    found = [ranks[0].stats["phases"][phase]["messages_sent"] for phase in ("push", "pull")]
    assert found == [2, 2] and ranks[0].communicator.calls == 1


@pytest.mark.parametrize(
    ("rows", "ids", "expected"),
    [
        ([(40, 60), (50, 50)], None, {"different-calls", "deadline"}),
        ([(40, 60), (40, 60)], 40, {"unit-out-of-range", "deadline"}),
    ],
)
def test_lists_that_differ_and_rows_of_other_tables_are_errors(
    rows: list[tuple[int, int]], ids: int | None, expected: set[str]
) -> None:
    """The signature tells lists with equal sums of rows apart; a row beyond a table's end is not one of the next."""
    ranks = collectives(zenc.compile("balanced", ranks=2), 2, deadline=0.5)

    def tables_of(rank: int) -> list[torch.Tensor]:
        found = [torch.ones(each, 2).to_sparse(1) for each in rows[rank]]
        if ids is not None and rank:
            wrong = torch.tensor([[ids]])
            found[0] = torch.sparse_coo_tensor(wrong, torch.ones(1, 2), found[0].shape, check_invariants=False)
        return found

    found = on_all(ranks, lambda one, rank: one.all_reduce_coalesced(tables_of(rank)))
    assert set(found) <= expected and found[1] == min(expected - {"deadline"})


def test_what_keeps_or_decides_sums_each_table_alone() -> None:
    ranks = collectives(zenc.compile("topk_a2a", ranks=2, params={"density": 0.5}), 2)
    tensors = [torch.ones(64), torch.ones(32)]
    found = on_all(ranks, lambda one, rank: one.all_reduce_coalesced([each.clone() for each in tensors]))
    assert [[each.numel() for each in sums] for sums in found] == [[64, 32]] * 2
    assert ranks[0].communicator.calls == 2 and ranks[0].names == ("0", "1")
