"""Push and pull as separate calls on emulated GPUs: bits and counts are those of the CPU's."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

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
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_each
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.errors import SynchronisationError, TensorError, ZencError
from zenc.plan.requirements import allowed
from zenc.runtime.gpu.capacity import FixedCapacity
from zenc.tables.optimizer import OptimizerClass

WITH_OWNERS = [name for name in SHIPPED if not plan_of_shipped(name).announces]


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
        options_of = {"op": "mean" if turn % 2 else "sum", "rows": turn % 2 == 0}
        parts = [run_each([partial(r.reduce_scatter, **options_of) for r in ranks], inputs) for ranks in (cpus, gpus)]
        pushed = [[counted(rank) for rank in ranks] for ranks in (cpus, gpus)]
        whole = [run_each([r.all_gather for r in ranks], of) for ranks, of in zip((cpus, gpus), parts, strict=True)]
        pulled = [[counted(rank) for rank in ranks] for ranks in (cpus, gpus)]
        same = {
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
def test_combinations(number):
    size, push = 2 + number % 4, FORMATS[number % 7]
    text = scheme_text(*COMBINATIONS[number], push, FORMATS[number * 3 % 7])
    assert differences(zenc.compile_text(text, ranks=size), size, KINDS[number % 3 :: 3], number) == []


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", WITH_OWNERS)
def test_shipped_schemes(name):
    able = allowed(plan_of_shipped(name), range(1, 9))
    size, turn = able[len(able) // 3], WITH_OWNERS.index(name)
    assert differences(zenc.compile(name, ranks=size), size, ("random", KINDS[turn % len(KINDS)]), turn) == []


@pytest.mark.parametrize("number", range(0, len(INNER), 3))
def test_tiers_with_formats_of_their_own(number):
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


@pytest.mark.parametrize("rows", [False, True])
def test_dense_tensors_keep_their_values(rows):
    artifact, size = zenc.compile("balanced", ranks=3), 3
    inputs = [dense_tensor("random", rank, size, 90, 7, torch.float32, 1) for rank in range(size)]
    before = [tensor.clone() for tensor in inputs]
    parts = run_each([partial(rank.reduce_scatter, rows=rows) for rank in on_gpus(artifact, size)], inputs)
    assert all(torch.equal(tensor, old) for tensor, old in zip(inputs, before, strict=True))
    expected = run_each([partial(rank.reduce_scatter, rows=rows) for rank in collectives(artifact, size)], inputs)
    assert all(same_bits([*pair]) for pair in zip(parts, expected, strict=True))
    assert {part.sparse_dim() for part in parts} == {1 if rows else 2}


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


def test_ranks_in_different_halves_are_told():
    ranks = on_gpus(zenc.compile("balanced", ranks=2), 2, deadline=5)
    part = torch.sparse_coo_tensor(torch.zeros(1, 0), torch.zeros(0, 4), (64, 4), check_invariants=False)
    assert "different-calls" in ends_of([partial(ranks[0].all_gather, part), partial(ranks[1].reduce_scatter, part)])


def test_schemes_without_owners_beforehand():
    (rank,) = on_gpus(zenc.compile("holders", ranks=1), 1)
    with pytest.raises(TensorError, match="phase-not-alone"):
        rank.reduce_scatter(torch.ones(4, 4))


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
