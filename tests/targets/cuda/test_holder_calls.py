"""Calls by holders over the emulator give the bits and counts of the CPU target."""

from __future__ import annotations

import pytest
import torch

from tests.emulator.build import kernels
from tests.support.both_targets import differences
from tests.support.cases import KINDS, same_bits, sparse_tensor
from tests.support.emulated import Emulated
from tests.support.local import collectives, run_all
from zenc.api import compile, compile_text
from zenc.codegen.render import render
from zenc.errors import SynchronisationError

COMMUNICATIONS = ("point_to_point then ring", "ring", "hierarchy", "point_to_point")
VARIANTS = [
    (communication, aggregation, announce)
    for communication in COMMUNICATIONS
    for aggregation, announce in (("incremental", "ring"), ("one_shot", "point_to_point"))
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_the_shipped_scheme(size):
    kinds = ("empty_on_one", "many_times", "everything", *KINDS[size % 3 :: 3])
    assert differences(compile("holders", ranks=size), size, kinds, turn=size) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 6, 7])
def test_the_shipped_scheme_among_other_numbers_of_ranks(size):
    for turn in range(12):
        assert differences(compile("holders", ranks=size), size, KINDS, turn) == []


@pytest.mark.parametrize("number", range(len(VARIANTS)))
def test_any_schedule_that_is_proved(number):
    """Schedules may sum on the way, so that rows of several ranks are forwarded to ranks that are not owners."""
    communication, aggregation, announce = VARIANTS[number]
    text = (
        f"scheme mine {{ communication: {communication} aggregation: {aggregation} partition: parallelism "
        f"balance: balanced by holders announce: {announce} }}"
    )
    size = 4 if "hierarchy" in text else 3 + number % 3
    assert differences(compile_text(text, ranks=size), size, KINDS[number % 2 :: 2], number) == []


def test_many_units_and_duplicates():
    """Everything has more than one block and tile, and choices depend on each other."""
    torch.manual_seed(3)
    artifact = compile("holders", ranks=3)
    indices = [torch.randint(0, 70_000, (1, 20_000)) // (rank + 1) for rank in range(3)]
    inputs = [torch.sparse_coo_tensor(ids, torch.randn(20_000, 2), (70_000, 2)) for ids in indices]
    hosts = collectives(artifact, 3)
    with Emulated(artifact.plan, 3) as ranks:
        for wanted, result in zip(run_all(hosts, inputs), ranks.run(inputs), strict=True):
            assert same_bits([wanted, result.tensor])


@pytest.mark.slow
def test_ranks_that_choose_other_owners_find_out():
    """Every rank names the one whose kernels disagree, before a value moves."""
    plan = compile("holders", ranks=2).plan
    sources = render(type(plan.mapping), "cuda")
    right = "zenc::digest_owners(tables(sets), known, masks, digest, counts, work);"
    assert right in sources["kernels.cu"]
    wrong = sources["kernels.cu"].replace(right, f"{right} if (zenc::thread_of_row() == 0) atomicAdd(digest, 1ULL);")
    image = bytes(kernels({**sources, "kernels.cu": wrong})) + b"\0"
    inputs = [sparse_tensor("random", rank, 2, 63, 3, torch.float32, 1) for rank in range(2)]

    def change_kernels(rank: int) -> None:
        if rank == 1:
            ranks.ranks[1].device.use()
            ranks.unit.unload_kernels(ranks.ranks[1].kernels)
            ranks.ranks[1].kernels = ranks.unit.load_kernels(image)

    with Emulated(plan, 2) as ranks:
        ranks.each(change_kernels)
        found = ranks.run(inputs)
    for rank, error in enumerate(found):
        assert isinstance(error, SynchronisationError)
        assert error.diagnostics[0].id == "different-calls"
        assert f"rank {1 - rank}" in str(error) and "other owners" in str(error)


def test_an_id_out_of_range_is_told():
    bad = torch.sparse_coo_tensor([[5, 63, 1]], torch.ones(3, 2), (63, 2), check_invariants=False)
    good = sparse_tensor("random", 1, 2, 63, 2, torch.float32, 1)
    with Emulated(compile("holders", ranks=2).plan, 2, deadline=5.0) as ranks:
        error, _ = ranks.run([bad, good])
    assert error.diagnostics[0].id == "unit-out-of-range" and "position 1" in str(error)
