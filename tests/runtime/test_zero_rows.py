"""A unit is never left out because of its values: all pairs of formats, on the CPU and on emulated GPUs."""

from __future__ import annotations

import itertools

import pytest
import torch

import zenc
from tests.support.cases import FILLING, dense_tensor, same_bits, scheme_text, tiered_text, wrong_sums
from tests.support.emulated import Emulated
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact

WORDS = ("dense", "coo", "bitmap", "elias_fano", "block(8)", "auto")
PAIRS = tuple(itertools.product(WORDS, WORDS))
SIZE = 3
COMBINATION = ("point_to_point", "incremental", "partition: parallelism balance: imbalanced")


def announced(rank: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Return units of all kinds of zeros, one that ranks cancel, one with a -0, and one whose mean underflows."""
    negative = torch.tensor(-0.0)
    rows = {
        1: torch.zeros(width),
        5: torch.ones(width),
        7: torch.full((width,), (1.0, -1.0, 0.0)[rank]),
        9 + rank: torch.zeros(width),
        17: negative.expand(width),
        30 + rank: negative.expand(width),
    }
    values = torch.stack([value if rank or unit != 5 else value * 2 for unit, value in rows.items()]).to(dtype)
    return torch.sparse_coo_tensor(torch.tensor([list(rows)]), values, (40, width), check_invariants=False)


EVERY = sorted({unit for rank in range(SIZE) for unit in announced(rank, 1, torch.float32)._indices()[0].tolist()})


def played(artifact: Artifact, inputs: list[torch.Tensor], op: str) -> list[torch.Tensor]:
    """Return the sums of both targets: ranks of the CPU, then of emulated GPUs."""
    host = run_all(collectives(artifact, len(inputs)), [tensor.clone() for tensor in inputs], op)
    with Emulated(artifact.plan, len(inputs)) as ranks:
        return [*host, *(found.tensor for found in ranks.run(inputs, op))]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("unit", ["row", "element"])
@pytest.mark.parametrize("push, pull", PAIRS)
def test_what_a_rank_announces_is_in_the_sum(push, pull, unit):
    turn, width = PAIRS.index((push, pull)), 1 if unit == "element" else 3
    dtype = (torch.float32, torch.bfloat16, torch.float64, torch.float16)[turn % 4]
    artifact = zenc.compile_text(scheme_text(*COMBINATION, push, pull, unit), ranks=SIZE)
    inputs = [announced(rank, width, dtype) for rank in range(SIZE)]
    sums = played(artifact, inputs, "sum")
    assert wrong_sums(sums, inputs) == [] and same_bits(sums)
    (units,) = {tuple(each._indices()[0].tolist()) for each in sums}
    fills = pull in FILLING or push == "block(8)"
    assert set(units) >= set(EVERY) if fills else list(units) == EVERY


@pytest.mark.parametrize("pull", ["coo", "block(8)", "dense"])
def test_zeros_of_dense_tensors_do_not_travel_and_come_back_as_they_are(pull):
    artifact = zenc.compile_text(scheme_text(*COMBINATION, "dense", pull, "row"), ranks=SIZE)
    inputs = [dense_tensor("random", rank, SIZE, 41, 3, torch.float32, 1) for rank in range(SIZE)]
    inputs[0][40] = -0.0
    sums = played(artifact, inputs, "mean")
    assert same_bits(sums)
    assert not torch.signbit(sums[0][sums[0] == 0]).any()


@pytest.mark.parametrize("inner", [("dense", "coo"), ("coo", "dense"), ("dense", "dense")])
@pytest.mark.parametrize("outer", [("dense", "coo"), ("coo", "coo"), ("dense", "dense")])
def test_tiers_announce_too(inner, outer):
    text = tiered_text((2,), [COMBINATION, COMBINATION], [inner, outer])
    inputs = [announced(rank % 3, 3, torch.float32) for rank in range(4)]
    sums = played(zenc.compile_text(text, ranks=4, scheme="tiered"), inputs, "sum")
    assert wrong_sums(sums, inputs) == [] and same_bits(sums)
    assert all(set(EVERY) <= set(each._indices()[0].tolist()) for each in sums)
    if inner[1] == "coo":
        assert all(each._indices()[0].tolist() == EVERY for each in sums)
