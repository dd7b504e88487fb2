"""Whole calls of several ranks that share a GPU: bits and counts are those of the CPU target."""

import pytest
import torch

from tests.gpu.machine import Machine, emulated_gpu, gpu, is_emulated, lacks_several_ranks, real_gpu_and_nccl
from tests.support.both_targets import differences
from tests.support.cases import KINDS, same_bits, scheme_text, sparse_tensor
from tests.support.emulated import Emulated
from tests.support.local import collectives, run_all
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from zenc.api import compile, compile_text
from zenc.errors import ZencError
from zenc.runtime.gpu.driver import find_nccl

EVERY = tuple(KINDS)
FEW = ("empty_on_one", "many_times", "random")
SOON = 4.0
F32 = torch.float32


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu)])
def machine(request) -> Machine:
    return emulated_gpu() if request.param == "emulated" else gpu()


@pytest.fixture
def with_nccl() -> Machine:
    if is_emulated():
        pytest.skip("an emulated GPU has no NCCL of its own: ZENC_TEST_GPU is set")
    if why := lacks_several_ranks(find_nccl()):
        pytest.skip(why)
    return real_gpu_and_nccl()


SHARED = [
    ("balanced", 3),
    ("holders", 4),
    *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ("dense_ring", "zen")),
]


@pytest.mark.parametrize(("name", "size"), SHARED)
def test_ranks_share_a_gpu(machine, name, size):
    assert differences(compile(name, ranks=size), size, FEW, 2, machine) == []


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "size"), cases((1, 2, 4, 8), SHIPPED))
def test_shipped_schemes(name, size):
    assert differences(compile(name, ranks=size), size, EVERY, SHIPPED.index(name), gpu()) == []


@pytest.mark.gpu
@pytest.mark.parametrize("push", ["dense", "coo", "bitmap", "elias_fano", "block(8)"])
def test_formats(push):
    text = scheme_text("ring", "incremental", "partition: parallelism balance: imbalanced", push, push)
    assert differences(compile_text(text, ranks=3), 3, EVERY, 1, gpu()) == []


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "size"), [("balanced", 2), ("dense_ring", 2), ("holders", 2), ("balanced", 4)])
def test_real_nccl(with_nccl, name, size):
    assert differences(compile(name, ranks=size), size, EVERY, 1, with_nccl) == []


@pytest.mark.parametrize(("share", "again"), [(1.0, 0), (0.01, 1)])
def test_capacity_mode(machine, share, again):
    """Calls with room for all run once, and those with too little are made again."""
    artifact, inputs = compile("balanced", ranks=3), [sparse_tensor("random", r, 3, 400, 5, F32, 2) for r in range(3)]
    wanted = run_all(collectives(artifact, 3), [tensor.clone() for tensor in inputs])
    with Emulated(artifact.plan, 3, machine=machine) as ranks:
        found = ranks.run(inputs, own_share=[share] * 3, sum_share=[share] * 3)
    assert same_bits([*wanted, *(result.tensor for result in found)])
    assert [result.call.made_again for result in found] == [again] * 3


def test_ranks_in_different_calls_are_told_and_the_next_group_is_whole(machine):
    plan, inputs = (plan_of_shipped("balanced"), [sparse_tensor("random", r, 3, 63, 3, F32, 1) for r in range(3)])
    with Emulated(plan, 3, SOON, machine=machine) as ranks:
        errors = ranks.run(inputs, number=[5, 6, 5])
        assert all(isinstance(error, ZencError) for error in errors)
        assert {error.diagnostics[0].id for error in errors} <= {"different-calls", "peer-lost"}
        assert [error.diagnostics[0].id for error in ranks.run(inputs)] == ["group-broken"] * 3
    with Emulated(plan, 3, machine=machine) as ranks:
        found = [result.tensor for result in ranks.run(inputs)]
    assert same_bits([*run_all(collectives(compile("balanced", ranks=3), 3), inputs), *found])
