"""Combinations and hashing sum exactly: every rank count, unit, format, dtype and shape of input; ranks as threads."""

import itertools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.runtime.test_holders import scheme
from tests.support.cases import (
    AGGREGATIONS,
    COMBINATIONS,
    COMMUNICATIONS,
    DTYPES,
    FILLING,
    FORMATS,
    KINDS,
    dense_tensor,
    same_units,
    scheme_text,
    sparse_tensor,
    wrong_sums,
)
from tests.support.drawn import FORMAT, OP, UNIT, gradients
from tests.support.fuzz import tried
from tests.support.local import collectives, faults_of, ranks_of, run_all, sums
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from zenc.language.files import locate
from zenc.plan.requirements import allowed

WIDTHS = (1, 3, 64, 1000)
UNITS = (1, 2, 7, 64, 65, 130, 257)


HASHED = "partition: parallelism balance: balanced by hierarchical_hash(seed = 7)"
FLAT = [*COMBINATIONS, *((*pattern, HASHED) for pattern in itertools.product(COMMUNICATIONS, AGGREGATIONS))]


@pytest.mark.one_in(19)
@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("combination", FLAT, ids=lambda c: "-".join(str(x).split()[-1] for x in c))
@pytest.mark.parametrize("size", range(1, 10))
def test_every_format_and_kind_of_input(combination, size, all_of_them):
    """Pairs of formats come with dtypes, widths, units and kinds of input in rotation.

    Every fourth push comes with one of the seven pulls, or in the slow tests each with three, in rotation too.
    """
    turn = FLAT.index(combination) * 9 + size
    first, step, further_ones = (0, 1, (0, 1, 3)) if all_of_them else (turn % 4, 4, (0,))
    for row, further in itertools.product(range(first, len(FORMATS), step), further_ones):
        push, pull = FORMATS[row], FORMATS[(turn + row + further) % len(FORMATS)]
        ranks = ranks_of(scheme_text(*combination, push, pull), size)
        for kind in (KINDS[turn % len(KINDS)], KINDS[(turn + 4) % len(KINDS)]):
            dtype, width = DTYPES[turn % len(DTYPES)], WIDTHS[turn // 3 % len(WIDTHS)]
            units = UNITS[turn % len(UNITS)]
            inputs = [sparse_tensor(kind, r, size, units, width, dtype, turn) for r in range(size)]
            results = sums(ranks, inputs)
            if not push.startswith("block") and pull not in FILLING:
                assert same_units(results, inputs)
            turn += 1


@pytest.mark.one_in(14)
@pytest.mark.parametrize("turn", [0, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 2, 3))])
@pytest.mark.parametrize("unit", ["row", "element"])
@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(str(x).split()[-1] for x in c))
def test_dense_tensors_in_place(combination, unit, turn):
    """Each number of ranks is tried with one pair of formats, in rotation."""
    pairs = (("auto", "auto"), ("coo", "bitmap"), ("elias_fano", "coo"), ("block(8)", "dense"))
    for size in range(1, 10):
        push, pull = pairs[(size + COMBINATIONS.index(combination) + turn) % len(pairs)]
        kind, dtype = KINDS[size % len(KINDS)], DTYPES[size % len(DTYPES)]
        ranks = ranks_of(scheme_text(*combination, push, pull, unit), size)
        inputs = [dense_tensor(kind, r, size, 41, 3, dtype, size) for r in range(size)]
        given = [tensor.clone() for tensor in inputs]
        results = run_all(ranks, given)
        assert all(result is tensor for result, tensor in zip(results, given, strict=True))
        assert wrong_sums(results, inputs) == []


@settings(max_examples=tried(140), deadline=None)
@given(st.data(), st.sampled_from(FLAT), st.integers(1, 9), FORMAT, FORMAT, UNIT, OP)
def test_any_input_on_any_rank(data, combination, size, push, pull, unit, op):
    assert not faults_of(ranks_of(scheme_text(*combination, push, pull, unit), size), data.draw(gradients(size)), op)


@pytest.mark.parametrize("text", [scheme_text(*COMBINATIONS[-1]), scheme()], ids=["permutation", "holders"])
def test_negative_zero_and_nan_payloads_travel_unchanged(text):
    """Units that only one rank has keep their bits."""
    bits = torch.tensor([0x7FC12345, -0x3EDCBB, 1, -0x80000000], dtype=torch.int64).to(torch.int32)
    values = bits.view(torch.float32)[:, None]
    first = torch.sparse_coo_tensor(torch.arange(4)[None], values, (50, 1), check_invariants=False)
    for size in (1, 2, 5):
        for result in run_all(ranks_of(text, size), [first, *[torch.zeros(50, 1).to_sparse(1)] * (size - 1)]):
            assert torch.equal(result._values().view(torch.int32)[:, 0], bits)


def test_dense_units_of_signed_zeros_alone_are_absent():
    ranks = ranks_of(scheme_text(*COMBINATIONS[-1], "coo", "coo", "row"), 2)
    tensor = torch.zeros(10, 2)
    tensor[3, 1], tensor[4] = -0.0, float("nan")
    run_all(ranks, [tensor.clone(), torch.zeros(10, 2)])
    assert ranks[0].stats["units_in"] == 1 and ranks[1].stats["units_in"] == 0


@settings(max_examples=tried(40), deadline=None)
@given(
    formats=st.sampled_from([("auto", "auto"), ("coo", "bitmap"), ("elias_fano", "coo"), ("block(8)", "dense")]),
    unit=st.sampled_from(["row", "element"]),
    dtype=st.sampled_from(DTYPES),
    shape=st.tuples(st.integers(1, 200), st.integers(1, 3)),
    zeros=st.sampled_from([0.0, 0.7, 1.0]),
    step=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_zeros_of_either_sign_become_positive_where_nobody_has_a_unit(formats, unit, dtype, shape, zeros, step, seed):
    """Ranks get the same bits, though each has other zeros: in place, with NaN, and in a tensor with gaps."""
    ranks, drawn = ranks_of(scheme_text(*COMBINATIONS[-1], *formats, unit), 3), torch.Generator().manual_seed(seed)
    inputs = []
    for _ in ranks:
        tensor = torch.randn(shape, generator=drawn).where(torch.rand(shape, generator=drawn) > 0.9, -0.0)
        tensor[0, 0] = float("nan")
        tensor = tensor.where(torch.rand(shape, generator=drawn) >= zeros, 0.0)
        inputs.append(tensor.to(dtype).repeat_interleave(step, 0)[::step])
    units = 1 if unit == "element" else shape[1]
    held = torch.stack([tensor.contiguous().view(-1, units) != 0 for tensor in inputs]).any(0).any(1)
    results = [result.contiguous().view(-1, units) for result in run_all(ranks, inputs)]
    bits = [result.view(torch.uint8) for result in results]
    assert all(torch.equal(each, bits[0]) for each in bits)
    assert not bits[0].view(len(held), -1)[~held].any()


@pytest.mark.parametrize("unit", ["row", "element"])
def test_units_that_are_not_the_tensors_own(unit):
    """A COO tensor with two sparse dimensions has row units, and one with rows has element units."""
    size = 3
    ranks = ranks_of(scheme_text(*COMBINATIONS[-1], unit=unit), size)
    flat = [dense_tensor("random", r, size, 20, 6, torch.float32, 5).to_sparse() for r in range(size)]
    rows = [sparse_tensor("random", r, size, 20, 6, torch.float32, 6) for r in range(size)]
    for inputs in (flat, rows):
        results = sums(ranks, inputs)
        assert all(result.sparse_dim() == inputs[0].sparse_dim() for result in results)


JOBS = "tests.runtime.jobs:"
PARAMETERS = [
    ("balanced", {"seed": 1}), ("double_binary_tree", {"chunks": 1}), ("double_binary_tree", {"chunks": 9}),
    ("kylix", {"d2": 1}), ("kylix", {"d2": 3}), ("kylix", {"d2": 2, "d3": 2}), ("torus2d", {"columns": 3}),
    ("torus2d", {"columns": 9}), ("zen_cluster", {"gpus": 1}), ("zen_cluster", {"gpus": 2}),
    ("zen_cluster", {"gpus": 3}),
]  # fmt: skip
"""Values of parameters other than the defaults."""


@pytest.mark.one_in(12)
@pytest.mark.parametrize("third", [0, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 2))])
@pytest.mark.parametrize(("name", "size"), cases((*range(1, 10), 16)))
def test_it_sums(name, size, third):
    """Ranks are threads; a third of the kinds of input is tried, in rotation with scheme and size."""
    ranks = collectives(zenc.compile(name, ranks=size), size)
    for turn in range((SHIPPED.index(name) + size + third) % 3, len(KINDS), 3):
        kind = KINDS[turn]
        width, units = (1, 5, 64)[turn % 3], (1, 63, 200)[(turn + size) % 3]
        make = dense_tensor if turn % 4 == 3 else sparse_tensor
        inputs = [make(kind, rank, size, units, width, torch.float32, turn) for rank in range(size)]
        assert faults_of(ranks, inputs, "mean" if turn % 2 else "sum") == []


WITHOUT_TIERS = [name for name in SHIPPED if len(plan_of_shipped(name).tiers) == 1]


WITH_FORMATS = [name for name in WITHOUT_TIERS if not plan_of_shipped(name).announces]
"""Schemes with formats: by holders values travel without an index."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), cases(range(1, 10), WITH_FORMATS))
def test_processes_with_every_format(nine, name, size):
    """Every pair of formats replaces those in the scheme's text, with inputs in rotation."""
    texts = [reformatted(name, push, pull) for push in FORMATS for pull in FORMATS]
    results = nine.run(JOBS + "combinations", size=size, texts=texts, turn=size, seconds=600)
    assert all(result == results[0] for result in results)


def reformatted(name: str, push: str, pull: str) -> str:
    text = locate(name).read_text(encoding="utf-8")
    for phase, format in (("push", push), ("pull", pull)):
        text, changed = re.subn(rf"^    {phase}: .*$", f"    {phase}: {format}", text, flags=re.MULTILINE)
        assert changed == 1
    return text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), PARAMETERS)
def test_processes_with_other_parameters(nine, name, parameters):
    for size in allowed(plan_of_shipped(name, **parameters), range(1, 10)):
        results = nine.run(JOBS + "shipped", size=size, schemes=[(name, parameters)], turn=size, seconds=600)
        assert all(result == results[0] for result in results)
