"""Unbiased schemes: the mean of many sums is the exact one, and sums are equal on all ranks."""

from __future__ import annotations

import pytest
import torch

import zenc
from tests.support.cases import same_bits
from tests.support.local import collectives, run_all
from tests.support.shipped import LOSSY, plan_of_shipped
from zenc.analysis.compression_text import sentences


def says_so(name: str) -> bool:
    return any("right in the mean" in line for line in sentences(plan_of_shipped(name)))


CHOSEN = [name for name in LOSSY if says_so(name)]


def test_these_say_so():
    assert CHOSEN == ["qsgd", "terngrad"]
    assert not any("but for rounding" in line for name in CHOSEN for line in sentences(plan_of_shipped(name)))


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("name", CHOSEN)
def test_the_mean_of_many_sums_is_right(name: str, op: str) -> None:
    """Rounding to nearest would move all of the values one way: sums of 2.01 became 2.0156 in bf16."""
    size, calls, n = 2, 40, 4096
    values = torch.tensor([1.005, -1.005, 0.5012, 1.0]).repeat(n // 4)
    exact = values.double() * (size if op == "sum" else 1)
    ranks, sums = collectives(zenc.compile(name, ranks=size), size), []
    for _ in range(calls):
        found = run_all(ranks, [values.clone() for _ in ranks], op)
        assert same_bits(found)
        sums.append(found[0].double())
    errors = torch.stack(sums).view(calls, n // 4, 4) - exact.view(n // 4, 4)
    for error in errors.permute(2, 0, 1).reshape(4, -1):
        assert abs(error.mean()) <= 5.5 * error.std() / len(error) ** 0.5 + 1e-7
