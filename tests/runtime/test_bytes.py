"""Bytes counted by real calls are exactly those that ``zenc.analysis.exact_traffic`` predicts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.support.cases import COMBINATIONS, DTYPES, FORMATS, KINDS, dense_tensor, scheme_text, sparse_tensor
from tests.support.drawn import FORMAT, UNIT, gradients
from tests.support.exact import miscounted, positive
from tests.support.fuzz import tried
from tests.support.local import collectives, ranks_of, run_all
from tests.support.ranks import Ranks
from tests.support.shipped import cases
from zenc.language.files import locate

JOB = "tests.runtime.jobs:counted"


@settings(max_examples=tried(80), deadline=None)
@given(st.data(), st.sampled_from(COMBINATIONS), st.integers(1, 9), FORMAT, FORMAT, UNIT)
def test_any_gradient(data, combination, size, push, pull, unit):
    inputs = [positive(tensor) for tensor in data.draw(gradients(size, width=st.integers(1, 70)))]
    ranks = ranks_of(scheme_text(*combination, push, pull, unit), size)
    run_all(ranks, [tensor.clone() for tensor in inputs])
    assert miscounted(ranks[0].artifact.plan, inputs, [rank.stats for rank in ranks]) == []


SIZES = (1, 3, 4, 8, 16)
OTHER_SIZES = (2, 5, 6, 7, 9)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("name", "size"), [*cases(SIZES), *(pytest.param(*case, marks=pytest.mark.slow) for case in cases(OTHER_SIZES))]
)
def test_shipped_schemes(name, size):
    ranks = collectives(zenc.compile(name, ranks=size), size)
    for turn, kind in enumerate(KINDS[:6]):
        units, width = (63, 500)[turn % 2], (1, 5)[turn // 2 % 2]
        case = (units, width, torch.float32, turn)
        inputs = [positive(sparse_tensor(kind, rank, size, *case)) for rank in range(size)]
        run_all(ranks, inputs)
        assert miscounted(ranks[0].artifact.plan, inputs, [rank.stats for rank in ranks]) == []


def miscounted_on_gloo(nine: Ranks, text: str, size: int, turn: int) -> list[tuple[object, ...]]:
    case = {
        "kind": KINDS[turn % len(KINDS)],
        "units": (1, 65, 301, 2000)[turn % 4],
        "width": (1, 3, 64)[turn % 3],
        "dtype": DTYPES[turn // 2 % 4],
        "dense": turn % 3 == 2,
        "seed": turn,
    }
    stats = nine.run(JOB, size=size, text=text, **case)
    make = dense_tensor if case.pop("dense") else sparse_tensor
    inputs = [positive(make(rank=rank, size=size, **case)) for rank in range(size)]
    return miscounted(zenc.compile_text(text, ranks=size, target="plan").plan, inputs, stats)


def text_of(name: str) -> str:
    return locate(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("size", range(1, 10))
def test_combinations_on_gloo(nine, size):
    for turn in range(size, size + 6):
        formats = FORMATS[turn % len(FORMATS)], FORMATS[turn // 2 % len(FORMATS)]
        text = scheme_text(*COMBINATIONS[turn * 5 % 18], *formats, ("auto", "row", "element")[turn % 3])
        assert miscounted_on_gloo(nine, text, size, turn) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", range(1, 10))
@pytest.mark.parametrize("push", FORMATS)
def test_every_combination_and_format_on_gloo(nine, size, push):
    for turn, combination in enumerate(COMBINATIONS):
        for pull in FORMATS:
            for unit in ("row", "element"):
                text = scheme_text(*combination, push, pull, unit)
                assert miscounted_on_gloo(nine, text, size, turn * 7 + size) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), cases(range(1, 10)))
def test_every_shipped_scheme_and_size_on_gloo(nine, name, size):
    for turn in range(12):
        assert miscounted_on_gloo(nine, text_of(name), size, turn) == []
