"""Schemes of tiers sum exactly: all numbers of ranks that tiers allow, formats on every boundary, dtypes, inputs."""

import itertools
from collections.abc import Sequence
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.cases import (
    COMBINATIONS,
    FILLING,
    FORMATS,
    INNER,
    KINDS,
    dense_tensor,
    same_bits,
    same_units,
    sparse_tensor,
    tiered_text,
    wrong_sums,
)
from tests.support.drawn import FORMAT, OP, gradients
from tests.support.fuzz import tried
from tests.support.local import collectives, ranks_of, run_all, sums
from tests.support.packets import Damage, flipped, outcome, right
from tests.support.plans import explain
from zenc.gradients.spec import GradientSpec
from zenc.wire.structs import MESSAGE_HEADER_BYTES

JOBS = "tests.runtime.jobs:"
SIZES = ((1, 1), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2), (4, 2), (2, 4), (3, 3), (2, 2, 2), (5, 1), (7, 1))
"""Members of each tier: 1 to 9 ranks in all."""


def of_tiers(
    sizes: tuple[int, ...], tiers: Sequence[tuple[str, str, str]], formats: Sequence[tuple[str, str]]
) -> list[zenc.Collective]:
    return ranks_of(tiered_text(sizes[:-1], tiers, formats), prod(sizes), "tiered")


@settings(max_examples=tried(50), deadline=None)
@given(st.data(), st.sampled_from(SIZES), OP)
def test_any_tiers_with_any_input(data, sizes, op):
    tiers = [*(data.draw(st.sampled_from(INNER)) for _ in sizes[1:]), data.draw(st.sampled_from(COMBINATIONS))]
    formats = [data.draw(st.tuples(FORMAT, FORMAT)) for _ in sizes]
    inputs = data.draw(gradients(prod(sizes)))
    results = sums(of_tiers(sizes, tiers, formats), inputs, op)
    if inputs[0].is_sparse and not any(format in FILLING for pair in formats for format in pair):
        assert same_units(results, inputs)


CUT = ("point_to_point", "incremental", "partition: parallelism balance: balanced by permutation(7)")


BOUNDARIES = list(itertools.product(itertools.product(FORMATS, FORMATS), repeat=2))
SOME = [
    ((first, second), (FORMATS[(i + j) % 7], FORMATS[(i + 2 * j) % 7]))
    for (i, first), (j, second) in itertools.product(enumerate(FORMATS), repeat=2)
]
"""Formats of four phases in an orthogonal array: each pair of formats on two phases comes once."""


def test_every_pair_of_formats_is_tried() -> None:
    phases = [(*inner, *outer) for inner, outer in SOME]
    for first, second in itertools.combinations(range(4), 2):
        assert len({(phase[first], phase[second]) for phase in phases}) == len(FORMATS) ** 2 == len(SOME)


@pytest.mark.parametrize(("inner", "outer"), SOME)
def test_boundaries_between_formats(inner, outer):
    assert wrong_across(inner, outer) == []


@pytest.mark.slow
@pytest.mark.parametrize(("inner", "outer"), [pairs for pairs in BOUNDARIES if pairs not in SOME])
def test_all_other_boundaries(inner, outer):
    assert wrong_across(inner, outer) == []


def wrong_across(inner: tuple[str, str], outer: tuple[str, str]) -> list[str]:
    """Return faults of push and pull of two tiers, between which segments are filled up and thinned out."""
    turn, found = FORMATS.index(inner[0]) + 5 * FORMATS.index(outer[1]), list[str]()
    ranks = of_tiers((2, 2), (CUT, CUT), (inner, outer))
    for make in (sparse_tensor, dense_tensor):
        inputs = [make(KINDS[turn % len(KINDS)], r, 4, 70, 2, torch.float32, turn) for r in range(4)]
        found += wrong_sums(run_all(ranks, [tensor.clone() for tensor in inputs]), inputs)
    return found


def test_what_a_dense_tier_fills_in_is_left_out_again():
    """Across tiers only nonzero units travel, and the sum has those alone, whoever held which."""
    tiers, formats = (CUT, CUT), (("dense", "bitmap"), ("coo", "bitmap"))
    ranks = of_tiers((2, 3), tiers, formats)
    inputs = [torch.zeros(1000, 4) for _ in range(6)]
    for rank, tensor in enumerate(inputs):
        tensor[7 * rank] = rank + 1.0
        tensor[500, 1] = -0.0
    results = run_all(ranks, [tensor.clone() for tensor in inputs])
    assert wrong_sums(results, inputs) == []
    assert [rank.stats["units_out"] for rank in ranks] == [6 * 4] * 6, "values are the units of a dense tensor"


@pytest.mark.parametrize("formats", [(("dense", "coo"), ("coo", "coo")), (("dense", "dense"), ("auto", "bitmap")),
                                     (("dense", "auto"), ("dense", "auto"))])  # fmt: skip
def test_nothing_that_is_not_zero_is_lost(formats):
    """NaN, infinities and denormals have a row each; others are sums that cancel, and zeros of both signs."""
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e-45, -1e-45, 2.0**-149, 1e-38, 3.0])
    ranks = of_tiers((2, 2), (CUT, CUT), formats)
    inputs = [torch.zeros(64, 3) for _ in range(4)]
    for place, value in enumerate(special):
        inputs[place % 4][5 * place, place % 3] = value
    inputs[0][50], inputs[1][50], inputs[2][51] = 1.0, -1.0, -0.0
    rows = [tensor.clone().to_sparse(1) for tensor in inputs]
    for given_ in ([tensor.clone() for tensor in inputs], rows):
        results = [result.to_dense() for result in run_all(ranks, given_)]
        assert same_bits(results)
        for place, value in enumerate(special):
            found = results[0][5 * place, place % 3]
            assert torch.equal(found, value) or (found.isnan() and value.isnan())
        assert int((results[0] != 0).sum()) == len(special)


def test_zen_cluster_sends_densely_inside_and_sparsely_across():
    """The bytes of each tier are those of its formats, and those predicted for the ranks' gradients."""
    artifact = zenc.compile("zen_cluster", ranks=8, params={"gpus": 4})
    ranks = collectives(artifact, 8)
    for density in (0.0, 1.0):
        ids = torch.arange(400)[: round(400 * density)]
        inputs = [
            torch.sparse_coo_tensor(ids[None], torch.ones(len(ids), 8), (400, 8), check_invariants=False)
            for _ in range(8)
        ]
        assert wrong_sums(run_all(ranks, inputs), inputs) == []
        for rank in range(8):
            predicted = explain(artifact.plan, 8, rank, GradientSpec(400, 8, "f32", density)).traffic
            for phase in ("push", "pull"):
                stats, wanted = ranks[rank].stats["phases"][phase], predicted[phase]
                assert (stats["bytes_sent"], stats["bytes_received"]) == (wanted.sent, wanted.received)
            formats = set(ranks[rank].stats["phases"]["push"]["formats_sent"])
            assert "dense" in formats and (density == 1.0 or len(formats) == 2)


UNMERGED = [c for c in COMBINATIONS if c[1] == "one_shot"]


@pytest.mark.parametrize("inner", [c for c in INNER if c[1] == "one_shot"])
@pytest.mark.parametrize("turn", [0, 7, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 4))])
def test_a_piece_under_another_name(inner, turn):
    """Headers of a one-shot tier name the rank that held a piece; a wrong name is an error or changes nothing."""
    text, place = tiered_text((2,), (inner, UNMERGED[turn % len(UNMERGED)])), MESSAGE_HEADER_BYTES + 5
    artifact = zenc.compile_text(text, ranks=4, scheme="tiered")
    for flip in (1, 2, 3, 128):
        found = outcome(artifact, 4, Damage(turn, flipped(place, flip)), "corrupt-message")
        if found is not None:
            assert same_bits([*right(artifact, 4), *found])


def process_texts(sizes: tuple[int, ...], turn: int, count: int) -> list[str]:
    """Return some tiers among these sizes, with formats; ``turn`` rotates them."""
    texts = []
    for place in range(turn, turn + 7 * count, 7):
        inner = [INNER[(place + 3 * k) % len(INNER)] for k in range(len(sizes) - 1)]
        formats = [(FORMATS[(place + k) % 5], FORMATS[(place // 5 + 2 * k) % 5]) for k in range(len(sizes))]
        texts.append(tiered_text(sizes[:-1], [*inner, COMBINATIONS[place % len(COMBINATIONS)]], formats))
    return texts


@pytest.mark.parametrize("sizes", SIZES)
def test_processes(nine, sizes):
    turn = SIZES.index(sizes)
    texts = process_texts(sizes, turn, 1)
    results = nine.run(JOBS + "combinations", size=prod(sizes), texts=texts, turn=turn, scheme="tiered")
    assert all(result == results[0] for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
def test_many_tiers_on_processes(nine, sizes):
    texts = process_texts(sizes, SIZES.index(sizes) + 1, 40)
    results = nine.run(JOBS + "combinations", size=prod(sizes), texts=texts, turn=1, scheme="tiered", seconds=600)
    assert all(result == results[0] for result in results)
