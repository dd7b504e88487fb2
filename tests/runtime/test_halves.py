"""Push and pull as separate calls: owners get their part of the sum, and their results come to all ranks.

On emulated GPUs bits and counts are those of the CPU's.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.cases import (
    COMBINATIONS,
    DTYPES,
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
from tests.support.emulated_gpu import emulated_ranks
from tests.support.fuzz import tried
from tests.support.local import collectives, ranks_of, run_all, run_each, sums
from tests.support.refusals import refusals
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.errors import SynchronisationError, TensorError, ZencError
from zenc.plan.requirements import allowed
from zenc.runtime.gpu.capacity import FixedCapacity
from zenc.tables.optimizer import OptimizerClass

BALANCED = zenc.compile("balanced")
WITH_OWNERS = [name for name in SHIPPED if not plan_of_shipped(name).announces]


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


@pytest.mark.parametrize("name", WITH_OWNERS)
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


def on_gpus(artifact: zenc.Artifact, size: int, **options: Any) -> list[zenc.Collective]:
    return [rank.collective for rank in emulated_ranks(artifact, size, **options)]


def counted(rank: zenc.Collective) -> dict[str, Any]:
    """Return the counts of a call that both targets share; messages of GPUs have other headers."""
    stats = rank.stats
    phases: Any = stats["phases"].items()
    same = "messages_sent", "messages_received", "imbalance"
    ways = "formats_sent", "formats_received"
    sizes = {(name, way): {f: size for f, size in of[way].items() if size} for name, of in phases for way in ways}
    return {
        **{key: stats[key] for key in ("units", "units_in", "units_out", "call")},  # type: ignore[literal-required]
        **{(name, key): of[key] for name, of in phases for key in same},
        **sizes,
    }


def differences(artifact: zenc.Artifact, size: int, kinds: tuple[str, ...], turn: int, **options: Any) -> list[str]:
    """Return differences of both halves between CPUs and GPUs, of the same tensors: in bits and counts."""
    cpus, gpus, wrong = collectives(artifact, size), on_gpus(artifact, size, **options), list[str]()
    for kind in kinds:
        make = dense_tensor if turn % 3 == 2 else sparse_tensor
        units, width = (1, 63, 200)[(turn + size) % 3], (1, 5, 64)[turn % 3]
        inputs = [make(kind, rank, size, units, width, DTYPES[turn % 4], turn) for rank in range(size)]
        before = [tensor.clone() for tensor in inputs]
        options_of = {"op": "mean" if turn % 2 else "sum", "rows": turn % 2 == 0}
        parts = [run_each([partial(r.reduce_scatter, **options_of) for r in ranks], inputs) for ranks in (cpus, gpus)]
        pushed = [[counted(rank) for rank in ranks] for ranks in (cpus, gpus)]
        whole = [run_each([r.all_gather for r in ranks], of) for ranks, of in zip((cpus, gpus), parts, strict=True)]
        pulled = [[counted(rank) for rank in ranks] for ranks in (cpus, gpus)]
        same = {
            "inputs": make is sparse_tensor or all(same_bits([*pair]) for pair in zip(inputs, before, strict=True)),
            "sums": all(same_bits([*pair]) for pair in zip(*parts, strict=True)),
            "rows": same_bits([*whole[0], *whole[1]]),
            "counts of pushes": pushed[0] == pushed[1],
            "counts of pulls": pulled[0] == pulled[1],
        }
        wrong += [f"{kind}, turn {turn}: other {what}" for what, equal in same.items() if not equal]
        turn += 1
    return wrong


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=pytest.mark.slow if number % 2 else []) for number in range(18)]
)
def test_combinations_on_gpus(number):
    size, push = 2 + number % 4, FORMATS[number % 7]
    text = scheme_text(*COMBINATIONS[number], push, FORMATS[number * 3 % 7])
    assert differences(zenc.compile_text(text, ranks=size), size, KINDS[number % 3 :: 3], number) == []


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", WITH_OWNERS)
def test_shipped_schemes_on_gpus(name):
    able = allowed(plan_of_shipped(name), range(1, 9))
    size, turn = able[len(able) // 3], WITH_OWNERS.index(name)
    assert differences(zenc.compile(name, ranks=size), size, ("random", KINDS[turn % len(KINDS)]), turn) == []


@pytest.mark.parametrize("number", range(0, len(INNER), 3))
def test_tiers_with_formats_of_their_own_on_gpus(number):
    formats = [(FORMATS[(number + k) % 7], FORMATS[(3 * number + 2 * k) % 7]) for k in range(2)]
    text = tiered_text((2,), (INNER[number], COMBINATIONS[5 * number % 18]), formats)
    artifact = zenc.compile_text(text, ranks=4, scheme="tiered")
    assert differences(artifact, 4, KINDS[number % 4 :: 4], number) == []


@pytest.mark.parametrize("number", range(0, len(COMBINATIONS), 5))
@pytest.mark.parametrize("shares", [(1.0, 1.0), (0.01, 0.02)], ids=["room", "no room"])
def test_capacity(number, shares):
    text = scheme_text(*COMBINATIONS[number], FORMATS[(number + 1) % 7], FORMATS[(number + 4) % 7])
    artifact, size = zenc.compile_text(text, ranks=3), 3
    inputs = [sparse_tensor("random", rank, size, 300, 3, torch.float32, number) for rank in range(size)]
    cpus, gpus = collectives(artifact, size), on_gpus(artifact, size, capacity=FixedCapacity(*shares))
    parts, found = (run_each([rank.reduce_scatter for rank in ranks], inputs) for ranks in (cpus, gpus))
    assert all(same_bits([*pair]) for pair in zip(parts, found, strict=True))
    results = [run_each([rank.all_gather for rank in ranks], parts) for ranks in (cpus, gpus)]
    assert same_bits([*results[0], *results[1]])
    if shares[0] == 1.0:
        assert not any(rank.stats["made_again"] for rank in gpus)


@pytest.mark.slow
def test_calls_under_way_and_compiled_sequences(monkeypatch):
    """Halves are tables even where whole calls are compiled."""
    monkeypatch.setenv("ZENC_SEQUENCE", "compiled")
    artifact, size = zenc.compile("balanced", ranks=2, target="cuda", arch="none"), 2
    ranks = on_gpus(artifact, size)
    inputs = [sparse_tensor("everything", rank, size, 64, 4, torch.float32, 0) for rank in range(size)]
    works = [rank.reduce_scatter(tensor, async_op=True) for rank, tensor in zip(ranks, inputs, strict=True)]
    parts = [work.wait() for work in works]
    assert all(rank.stats["units_out"] == 32 and set(rank.stats["phases"]) == {"push"} for rank in ranks)
    works = [rank.all_gather(part, async_op=True) for rank, part in zip(ranks, parts, strict=True)]
    whole = run_each([rank.all_reduce for rank in ranks], inputs)
    assert same_bits([*(work.wait() for work in works), *whole])


def ends_of(calls: list[Callable[[], object]]) -> list[str]:
    """Return the ids of the errors that calls of all ranks end with, or "" for those that do not."""

    def end(call: Callable[[], object]) -> str:
        try:
            call()
        except ZencError as error:
            return error.diagnostics[0].id
        return ""

    return run_each([lambda call: end(call)] * len(calls), calls)  # type: ignore[list-item]


@pytest.mark.parametrize("capacity", [None, FixedCapacity(0.5, 1.0)], ids=["exact", "capacity"])
def test_rows_of_others_are_refused(capacity):
    ranks = on_gpus(zenc.compile("balanced", ranks=2), 2, deadline=3, capacity=capacity)
    whole = torch.eye(64).to_sparse(1)
    own = ranks[0].owned(whole.shape).nonzero()[:, 0]
    part = whole.index_select(0, own)
    part = torch.sparse_coo_tensor(
        own[None][:, part._indices()[0]], part._values(), whole.shape, check_invariants=False
    )
    ends = ends_of([partial(ranks[0].all_gather, part), partial(ranks[1].all_gather, whole)])
    assert ends[1] == "not-owned" and ends[0] in ("peer-lost", "deadline")
    with pytest.raises(SynchronisationError, match="group-broken"):
        ranks[1].all_gather(part)


def test_ranks_in_different_halves_are_told_on_gpus():
    ranks = on_gpus(zenc.compile("balanced", ranks=2), 2, deadline=5)
    part = torch.sparse_coo_tensor(torch.zeros(1, 0), torch.zeros(0, 4), (64, 4), check_invariants=False)
    assert "different-calls" in ends_of([partial(ranks[0].all_gather, part), partial(ranks[1].reduce_scatter, part)])


def trained(ranks: list[zenc.Collective], optimizer: OptimizerClass) -> list[torch.Tensor]:
    """Return the table of each rank after some steps of the sharded optimizer."""

    def train(rank: zenc.Collective) -> torch.Tensor:
        table = torch.nn.Parameter(torch.ones(90, 5))
        sharded = zenc.ShardedTableOptimizer([table], optimizer, rank, init_sync=False, lr=0.1)
        for step in range(6):
            table.grad = sparse_tensor(KINDS[step], rank.rank, rank.size, 90, 5, torch.float32, step)
            sharded.step()
        sharded.load_state_dict(sharded.state_dict(whole=True))
        table.grad = sparse_tensor("random", rank.rank, rank.size, 90, 5, torch.float32, 7)
        sharded.step()
        return table.detach()

    return run_each([train] * len(ranks), ranks)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, zenc.RowwiseAdagrad])
def test_the_sharded_optimizer_trains_as_on_cpus(optimizer):
    artifact = zenc.compile("balanced", ranks=2)
    found, expected = (trained(ranks, optimizer) for ranks in (on_gpus(artifact, 2), collectives(artifact, 2)))
    assert all(torch.equal(table, expected[0]) for table in (*found, *expected))
    assert not torch.equal(expected[0], torch.ones(90, 5))
