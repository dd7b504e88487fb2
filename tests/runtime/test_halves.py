"""Push and pull as separate calls: owners get their part of the sum, and their results come to all ranks."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.cases import (
    COMBINATIONS,
    FORMATS,
    INNER,
    KINDS,
    dense_tensor,
    same_bits,
    scheme_text,
    sparse_tensor,
    tiered_text,
)
from tests.support.drawn import FORMAT, OP, SPARSE, gradients
from tests.support.fuzz import tried
from tests.support.local import collectives, ranks_of, run_all, run_each, sums
from tests.support.refusals import refusals
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.errors import SynchronisationError, TensorError
from zenc.plan.requirements import allowed

BALANCED = zenc.compile("balanced")


def scattered(ranks: list[zenc.Collective], inputs: list[torch.Tensor], **options: object) -> list[torch.Tensor]:
    return run_each([partial(rank.reduce_scatter, **options) for rank in ranks], inputs)


def gathered(ranks: list[zenc.Collective], parts: list[torch.Tensor]) -> list[torch.Tensor]:
    return run_each([rank.all_gather for rank in ranks], parts)


def of_units(tensor: torch.Tensor, owned: torch.Tensor) -> torch.Tensor:
    """Return the ``owned`` units [units] of a coalesced sparse tensor with one sparse dimension."""
    kept = owned[tensor._indices()[0]]
    return torch.sparse_coo_tensor(
        tensor._indices()[:, kept], tensor._values()[kept], tensor.shape, is_coalesced=True, check_invariants=False
    )


@settings(max_examples=tried(30), deadline=None)
@given(st.data(), st.sampled_from(COMBINATIONS), st.integers(1, 5), FORMAT, FORMAT, OP)
def test_the_halves_are_the_whole(data, combination, size, push, pull, op):
    ranks, inputs = ranks_of(scheme_text(*combination, push, pull), size), data.draw(gradients(size, dense=SPARSE))
    whole = sums(ranks, inputs, op)
    owned = [rank.owned(inputs[0].shape) for rank in ranks]
    assert all(own.shape == inputs[0].shape[:1] for own in owned) and torch.stack(owned).any(dim=0).all()
    parts = scattered(ranks, inputs, op=op)
    for part, own in zip(parts, owned, strict=True):
        assert same_bits([part, of_units(whole[0], own)])
    assert same_bits([*gathered(ranks, parts), whole[0]])


@pytest.mark.parametrize("name", [name for name in SHIPPED if not plan_of_shipped(name).announces])
def test_shipped_schemes(name):
    able = allowed(plan_of_shipped(name), range(1, 13))
    for size in (able[len(able) // 3],):
        ranks = collectives(zenc.compile(name, ranks=size), size)
        inputs = [sparse_tensor("random", r, size, 600, 8, torch.float32, size) for r in range(size)]
        whole, parts = run_all(ranks, inputs), scattered(ranks, inputs)
        for part, rank in zip(parts, ranks, strict=True):
            owned = rank.owned((600, 8))
            expected = whole[0].to_dense().reshape(len(owned), -1) * owned[:, None]
            assert torch.equal(part.to_dense().view_as(expected), expected)
        for result in gathered(ranks, parts):
            assert torch.equal(result.to_dense(), whole[0].to_dense())


@pytest.mark.parametrize("turn", range(6))
def test_tiers_with_formats_of_their_own(turn):
    formats = [(FORMATS[(turn + k) % 7], FORMATS[(3 * turn + 2 * k) % 7]) for k in range(2)]
    text = tiered_text((2,), (INNER[turn % len(INNER)], COMBINATIONS[5 * turn % 18]), formats)
    ranks = ranks_of(text, 4, "tiered")
    inputs = [sparse_tensor(KINDS[turn], r, 4, 130, 3, torch.float32, turn) for r in range(4)]
    whole, parts = run_all(ranks, inputs), scattered(ranks, inputs)
    for part, rank in zip(parts, ranks, strict=True):
        assert same_bits([part, of_units(whole[0], rank.owned((130, 3)))])
    assert same_bits([*gathered(ranks, parts), whole[0]])


@pytest.mark.parametrize("rows", [False, True])
def test_dense_tensors_keep_their_values(rows):
    ranks, size = collectives(BALANCED, 3), 3
    inputs = [dense_tensor("random", r, size, 90, 7, torch.float32, 1) for r in range(size)]
    before = [tensor.clone() for tensor in inputs]
    parts = scattered(ranks, inputs, rows=rows)
    assert all(torch.equal(tensor, old) for tensor, old in zip(inputs, before, strict=True))
    assert {part.sparse_dim() for part in parts} == {1 if rows else 2}
    total = run_all(ranks, [tensor.clone() for tensor in inputs], rows=rows)[0]
    for result in gathered(ranks, parts):
        assert torch.equal(result.to_dense(), total)
    nothing = scattered(ranks, [torch.zeros(0, 4)] * size)
    assert all(part.is_sparse and part.shape == (0, 4) for part in nothing)


def test_what_some_owners_do_not_give_is_not_there():
    ranks = collectives(BALANCED, 4)
    table = torch.randn(50, 3)
    owned = [rank.owned(table.shape) for rank in ranks]
    assert torch.stack(owned).sum(dim=0).eq(1).all(), "each row has one owner"
    chosen = [
        own & (torch.arange(50) % 3 == 0) if r else torch.zeros(50, dtype=torch.bool) for r, own in enumerate(owned)
    ]
    parts = [
        torch.sparse_coo_tensor(mask.nonzero().T, table[mask], table.shape, check_invariants=False) for mask in chosen
    ]
    rows = torch.stack(chosen).any(dim=0)
    for result in gathered(ranks, parts):
        assert torch.equal(result.indices()[0], rows.nonzero()[:, 0]) and torch.equal(result.values(), table[rows])


def test_one_rank_alone_owns_everything():
    (alone,) = collectives(BALANCED, 1)
    gradient = torch.eye(5).to_sparse(1)
    assert alone.owned((5, 5)).all()
    assert same_bits([alone.reduce_scatter(gradient), alone.all_gather(gradient), gradient])


def test_calls_under_way_and_their_statistics():
    ranks = collectives(BALANCED, 2)
    inputs = [sparse_tensor("everything", r, 2, 64, 4, torch.float32, 0) for r in range(2)]
    works = [
        rank.reduce_scatter(tensor, async_op=True, name="table") for rank, tensor in zip(ranks, inputs, strict=True)
    ]
    parts = [work.wait() for work in works]
    pushed = [rank.stats for rank in ranks]
    assert all(set(each["phases"]) == {"push"} and each["units_out"] == 32 for each in pushed)
    whole = run_all(ranks, inputs)[0]
    sent = ranks[0].stats["bytes_sent"]
    results = [
        work.wait() for work in [rank.all_gather(part, async_op=True) for rank, part in zip(ranks, parts, strict=True)]
    ]
    assert same_bits([*results, whole])
    pulled = ranks[0].stats
    assert set(pulled["phases"]) == {"pull"} and pulled["units_out"] == 64
    assert pushed[0]["bytes_sent"] + pulled["bytes_sent"] == sent


def test_ranks_in_different_halves_are_told():
    ranks = collectives(BALANCED, 2, deadline=5)
    part = torch.sparse_coo_tensor(torch.zeros(1, 0), torch.zeros(0, 4), (64, 4), check_invariants=False)
    with pytest.raises(SynchronisationError, match=r"error\[different-calls\]"):
        run_each([ranks[0].all_gather, ranks[1].reduce_scatter], [part, part])


@pytest.mark.parametrize("name", ["holders", "qsgd", "dgc", "ok_topk"])
def test_schemes_without_owners_beforehand(name):
    collective = collectives(zenc.compile(name, ranks=2), 2)[0]
    tensor = torch.ones(4, 4)
    for call in (
        collective.reduce_scatter,
        lambda t: collective.all_gather(t.to_sparse(1)),
        lambda t: collective.owned(t.shape),
    ):
        assert refusals(TensorError, call, tensor)[0].id == "phase-not-alone"


def test_rows_of_others_and_dense_parts():
    ranks = collectives(BALANCED, 2)
    assert refusals(TensorError, ranks[0].all_gather, torch.ones(4, 4))[0].id == "unsupported-layout"
    assert refusals(TensorError, ranks[0].reduce_scatter, torch.tensor(1.0))[0].id == "unsupported-layout"
    assert refusals(TensorError, gathered, ranks, [torch.eye(4).to_sparse(1)] * 2)[0].id == "not-owned"
