"""Integers: their sums are those of torch to the bit, wrapped ones too, dense and sparse, under lossless schemes."""

from __future__ import annotations

import pytest

from tests.support.ranks import Ranks

JOBS = "tests.runtime.integer_jobs:"


@pytest.mark.parametrize("scheme", ["balanced", "holders", "dense_ring", "agsparse", "auto", "omnireduce", "sparcml"])
def test_integers_have_exact_sums(four, scheme):
    assert four.run(JOBS + "summed", scheme=scheme) == [[]] * 4


def test_what_has_no_exact_sum_is_refused(two):
    assert two.run(JOBS + "refused") == [["unsupported-dtype"] * 4] * 2


def test_integers_of_another_dtype_are_another_call():
    with Ranks(2) as ranks:
        assert "different-calls" in ranks.run(JOBS + "of_two_dtypes")
