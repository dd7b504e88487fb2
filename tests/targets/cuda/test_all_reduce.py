"""Call sequences over the emulator give the bits and counts of the CPU target."""

import pytest
import torch

from tests.support.both_targets import differences
from tests.support.cases import COMBINATIONS, FORMATS, INNER, KINDS, same_bits, scheme_text, sparse_tensor, tiered_text
from tests.support.emulated import Emulated
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from zenc.api import compile, compile_text
from zenc.codegen.artifact import Artifact
from zenc.rank_ir.lower import lower_all
from zenc.runtime.gpu import library
from zenc.scheme.model import Holders

SIZES = (1, 3, 8)
OVER_A_CUT = [name for name in SHIPPED if not isinstance(plan_of_shipped(name).mapping, Holders)]


def differences_of(name: str, size: int) -> list[str]:
    """Return differences of a shipped scheme; kinds of inputs rotate."""
    turn = OVER_A_CUT.index(name) + size
    kinds = [KINDS[(turn + further) % len(KINDS)] for further in ((0,) if size in SIZES else (0, 3, 7))]
    return differences(compile(name, ranks=size), size, ("empty_on_one", "many_times", *kinds), turn)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=pytest.mark.slow if size == 8 and OVER_A_CUT.index(name) % 2 else [])
        for name, size in cases(SIZES, OVER_A_CUT)
    ],
)
def test_shipped_schemes(name, size):
    assert differences_of(name, size) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), cases((2, 4, 5, 6, 7), OVER_A_CUT))
def test_shipped_schemes_among_other_numbers_of_ranks(name, size):
    assert differences_of(name, size) == []


def combination(number: int) -> tuple[Artifact, int]:
    """Return a combination, with pairs of formats in rotation."""
    size, push = 2 + number % 4, FORMATS[number % 7]
    text = scheme_text(*COMBINATIONS[number], push, FORMATS[number * 3 % 7])
    return compile_text(text, ranks=size), size


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_combinations(number):
    artifact, size = combination(number)
    assert differences(artifact, size, KINDS[number % 2 :: 2], number) == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(0, len(INNER), 2))
def test_tiers(number):
    formats = [(FORMATS[number % 7], FORMATS[(number + 3) % 7]), (FORMATS[(number + 5) % 7], FORMATS[number % 4])]
    text = tiered_text([2], [INNER[number], COMBINATIONS[number]], formats)
    assert differences(compile_text(text, ranks=6, scheme="tiered"), 6, KINDS[number % 3 :: 3], number) == []


def test_large_parts_and_duplicates():
    """Everything has more than one block, tile and digit."""
    torch.manual_seed(3)
    artifact = compile("balanced", ranks=2)
    indices = [torch.randint(0, 70_000, (1, 20_000)) for _ in range(2)]
    inputs = [
        torch.sparse_coo_tensor(ids, torch.randn(20_000, 2), (70_000, 2), check_invariants=False) for ids in indices
    ]
    hosts = collectives(artifact, 2)
    with Emulated(artifact.plan, 2) as ranks:
        for wanted, result in zip(run_all(hosts, inputs), ranks.run(inputs), strict=True):
            assert same_bits([wanted, result.tensor])


def zeros_of_both_signs(rank: int) -> torch.Tensor:
    """Draw mostly -0, some +0, and numbers that cancel on other ranks."""
    generator = torch.Generator().manual_seed(rank)
    drawn = torch.tensor([-0.0, 0.0, 1.5, -1.5])
    return drawn[torch.multinomial(torch.tensor([0.8, 0.1, 0.05, 0.05]), 360, True, generator=generator)].view(120, 3)


@pytest.mark.parametrize("name", ["balanced", "dense_ring", "holders", "omnireduce"])
def test_zeros_of_both_signs_come_out_as_on_the_cpu(name):
    """A sum in place has +0 on all ranks where nobody has a unit."""
    artifact = compile(name, ranks=3)
    inputs = [zeros_of_both_signs(rank) for rank in range(3)]
    nobody = sum(tensor.abs() for tensor in inputs) == 0
    assert all(tensor[nobody].signbit().any() for tensor in inputs)
    if name == "holders":
        inputs = [tensor.to_sparse(1) for tensor in inputs]
    gpus = [rank.collective for rank in emulated_ranks(artifact, 3)]
    found = run_all(gpus, [tensor.clone() for tensor in inputs])
    assert same_bits([*found, *run_all(collectives(artifact, 3), inputs)])
    total = found[0].to_dense() if name == "holders" else found[0]
    alone = nobody.all(1, keepdim=True).expand_as(nobody) if name == "holders" else nobody
    assert alone.any() and not total[alone].signbit().any()


@pytest.mark.slow
def test_the_interpreter_is_built_through_the_cache():
    """The interpreter's flags are zenc's own for optimised code."""
    plan, unit = plan_of_shipped("sparcml_split"), library.interpreter()
    assert library.interpreter() is unit
    inputs = [sparse_tensor("random", rank, 2, 63, 3, torch.float64, 1) for rank in range(2)]
    with Emulated(plan, 2, programs=lower_all(plan, 2), unit=unit) as ranks:
        found = ranks.run(inputs)
    wanted = run_all(collectives(compile("sparcml_split", ranks=2), 2), inputs)
    assert same_bits([result.tensor for result in found] + wanted)


@pytest.mark.parametrize(("push", "pull"), [("dense", "coo"), ("block(8)", "bitmap"), ("coo", "auto")])
def test_what_cancels_is_zero_in_the_tensor_that_had_it(push, pull):
    """Sums without units that are all zero are passed on as well."""
    cut = "partition: parallelism balance: imbalanced"
    artifact = compile_text(scheme_text("point_to_point", "incremental", cut, push, pull), ranks=2)
    given = torch.tensor([5.0, 0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 3.0]).repeat(20)
    (found, _) = run_all([rank.collective for rank in emulated_ranks(artifact, 2)], [given.clone(), -given])
    assert not found.any()


def test_more_values_than_were_expected():
    """A first call, which knows of no other, gets a few more values than were packed for."""
    gpus = [rank.collective for rank in emulated_ranks(compile("balanced", ranks=2), 2)]
    hosts = collectives(compile("balanced", ranks=2), 2)
    for numel in (129, 133, 140):
        inputs = [torch.randn(numel, generator=torch.Generator().manual_seed(rank)) for rank in range(2)]
        on_gpus, on_hosts = (run_all(ranks, [tensor.clone() for tensor in inputs]) for ranks in (gpus, hosts))
        assert all(torch.equal(found, on_hosts[0]) for found in (*on_gpus, *on_hosts))


def test_an_arena_spares_allocations():
    inputs = [sparse_tensor("random", rank, 2, 200, 5, torch.float32, 1) for rank in range(2)]
    with Emulated(plan_of_shipped("balanced"), 2) as ranks:
        first = ranks.run(inputs)
        devices = [rank.device for rank in ranks.ranks]
        wanted = [result.call.arena_wanted for result in first]
        for device in devices:
            device.asked = 0
        arenas = [device.allocate(size) for device, size in zip(devices, wanted, strict=True)]
        second = ranks.run(inputs, arena=arenas, arena_bytes=wanted)
    assert [device.asked for device in devices] == [2, 2]
    assert all(result.call.arena_wanted <= size for result, size in zip(second, wanted, strict=True))
    assert same_bits([result.tensor for result in (*first, *second)])
