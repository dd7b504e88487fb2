"""Capacity mode: the sums of exact mode without waiting for the device, and exact mode where there is no room."""

import pytest
import torch

from tests.support.both_targets import differences
from tests.support.cases import COMBINATIONS, FORMATS, INNER, KINDS, same_bits, scheme_text, sparse_tensor, tiered_text
from tests.support.emulated import Emulated, Result
from tests.support.local import collectives, run_all
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from zenc.api import compile, compile_text
from zenc.codegen.artifact import Artifact
from zenc.scheme.model import Holders

OVER_A_CUT = [name for name in SHIPPED if not isinstance(plan_of_shipped(name).mapping, Holders)]


def with_ample_room(artifact: Artifact, size: int, kinds: tuple[str, ...], turn: int) -> list[str]:
    return differences(artifact, size, kinds, turn, own_share=[1.0] * size, sum_share=[1.0] * size)


AMONG_FEW = cases((3,), OVER_A_CUT)
OTHERS = [case for case in cases((8,), OVER_A_CUT) if (case[0], 3) in AMONG_FEW]


@pytest.mark.parametrize(
    ("name", "size"),
    [pytest.param(*case, marks=[pytest.mark.slow] if case in OTHERS else []) for case in cases((3, 8), OVER_A_CUT)],
)
def test_shipped_schemes(name, size):
    turn = OVER_A_CUT.index(name)
    assert with_ample_room(compile(name, ranks=size), size, KINDS[turn % 3 :: 3], turn) == []


@pytest.mark.parametrize("number", range(0, len(COMBINATIONS), 3))
def test_combinations(number):
    size = 2 + number % 4
    text = scheme_text(*COMBINATIONS[number], FORMATS[number % 7], FORMATS[number * 3 % 7])
    artifact = compile_text(text, ranks=size)
    assert with_ample_room(artifact, size, KINDS[number % 2 :: 2], number) == []


@pytest.mark.parametrize("number", range(0, len(INNER), 4))
def test_tiers(number):
    formats = [(FORMATS[number % 7], FORMATS[(number + 3) % 7]), (FORMATS[(number + 5) % 7], FORMATS[number % 4])]
    text = tiered_text([2], [INNER[number], COMBINATIONS[number]], formats)
    artifact = compile_text(text, ranks=6, scheme="tiered")
    assert with_ample_room(artifact, 6, KINDS[number % 3 :: 3], number) == []


@pytest.mark.parametrize("number", range(1, len(COMBINATIONS), 3))
def test_room_for_just_what_comes_suffices(number):
    """Each rank has separate units, so that sums have as many as all their ranks."""
    size, units = 3 + number % 2, 500
    text = scheme_text(*COMBINATIONS[number], FORMATS[number % 7], FORMATS[(number + 3) % 7])
    inputs = []
    for rank in range(size):
        ids = torch.arange(rank, units, size)[:: 1 + number % 3]
        inputs.append(torch.sparse_coo_tensor(ids[None], torch.randn(len(ids), 3), (units, 3), check_invariants=False))
    artifact = compile_text(text, ranks=size)
    hosts = collectives(artifact, size)
    wanted = run_all(hosts, inputs)
    with Emulated(artifact.plan, size) as ranks:
        exact = ranks.run(inputs)
        parts = artifact.plan.parts(size)
        slots = -(-units // parts)
        share = max(max(result.counts_in) for result in exact) / slots
        found = ranks.run(inputs, own_share=[share] * size, sum_share=[1.0] * size)
    assert same_bits([*wanted, *(result.tensor for result in found)])
    assert [result.call.made_again for result in found] == [0] * size


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["random", "everything"])
@pytest.mark.parametrize("shares", [(0.01, 1.0), (0.4, 0.4)], ids=["own", "sum"])
@pytest.mark.parametrize("name", ["agsparse", "balanced", "dense_ring", "omnireduce", "sparcml", "zen"])
def test_without_room_calls_are_made_again(name, shares, kind):
    """Every rank repeats the call, whichever had no room, and no sum is wrong; dense tensors have all slots anyway."""
    artifact = compile(name, ranks=3)
    inputs = [sparse_tensor(kind, rank, 3, 400, 5, torch.float16, 2) for rank in range(3)]
    wanted = run_all(collectives(artifact, 3), inputs, "mean")
    with Emulated(artifact.plan, 3) as ranks:
        found = ranks.run(inputs, "mean", own_share=[shares[0]] * 3, sum_share=[shares[1]] * 3)
    assert same_bits([*wanted, *(result.tensor for result in found)])
    fits = name in ("dense_ring", "omnireduce") and (kind, shares[0]) == ("random", 0.4)
    assert [result.call.made_again for result in found] == [0 if fits else 1] * 3


def test_after_a_call_that_was_made_again_the_next_one_is_as_ever():
    artifact = compile("balanced", ranks=3)
    inputs = [sparse_tensor("random", rank, 3, 300, 4, torch.float32, 9) for rank in range(3)]
    few = [torch.sparse_coo_tensor([[rank]], torch.ones(1, 4), (300, 4), check_invariants=False) for rank in range(3)]
    shares = {"own_share": [0.05] * 3, "sum_share": [0.2] * 3}
    with Emulated(artifact.plan, 3) as ranks:
        made_again = [ranks.run(each, **shares)[0].call.made_again for each in (few, inputs, few)]
    assert made_again == [0, 1, 0]


def test_one_rank_without_room_is_heard_of_by_all():
    full = [torch.ones(300, 2) if rank == 1 else torch.zeros(300, 2) for rank in range(4)]
    with Emulated(compile("balanced", ranks=4).plan, 4) as ranks:
        found = ranks.run(full, own_share=[0.1] * 4, sum_share=[1.0] * 4)
    assert [result.call.made_again for result in found] == [1] * 4
    assert same_bits([torch.ones(300, 2), *(result.tensor for result in found)])


@pytest.mark.parametrize(("share", "waits"), [(0.0, 4), (1.0, 1)])
def test_nothing_crosses_to_the_host_before_the_end(share, waits):
    """The number of steps does not matter; in exact mode counts cross with each."""
    inputs = [sparse_tensor("random", rank, 4, 200, 2, torch.float32, 3) for rank in range(4)]
    with Emulated(compile("sparcml", ranks=4).plan, 4) as ranks:
        libraries = ranks.ranks[0].device.libraries
        before = libraries.calls("wait", 0)
        found = ranks.run(inputs, own_share=[share] * 4, sum_share=[share] * 4)
        assert isinstance(found[0], Result)
        assert libraries.calls("wait", 0) - before == waits


def test_an_id_out_of_range_is_found():
    """The repeated call finds it; nothing is written outside of its memory."""
    bad = torch.sparse_coo_tensor([[1, 200, 3]], torch.ones(3, 2), (200, 2), check_invariants=False)
    inputs = [bad if rank == 1 else torch.ones(200, 2).to_sparse(1) for rank in range(3)]
    with Emulated(compile("balanced", ranks=3).plan, 3, deadline=5) as ranks:
        found = ranks.run(inputs, own_share=[1.0] * 3, sum_share=[1.0] * 3)
    assert [type(each).__name__ for each in found] == ["SynchronisationError", "TensorError", "SynchronisationError"]
    assert found[1].diagnostics[0].id == "unit-out-of-range"
    assert "position 1 " in str(found[1])


@pytest.mark.parametrize("name", ["balanced", "dense_ring"])
def test_ranks_in_different_calls_are_told_so(name):
    """Calls have the same size, so that no message shows the difference."""
    inputs = [torch.ones(200, 2) for _ in range(3)]
    with Emulated(compile(name, ranks=3).plan, 3, deadline=5) as ranks:
        found = ranks.run(inputs, own_share=[1.0] * 3, sum_share=[1.0] * 3, signature=[7, 8, 7])
    assert {each.diagnostics[0].id for each in found} <= {"different-calls", "peer-lost", "deadline"}
    assert "different-calls" in {each.diagnostics[0].id for each in found}
