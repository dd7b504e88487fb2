"""Memory of a GPU that calls take beside input and result: one bitmap over the payload (docs/reference/cuda.md)."""

from __future__ import annotations

import pytest

from tests.support.device_memory import taken
from tests.support.shipped import SHIPPED, plan_of_shipped
from zenc.plan.requirements import allowed

SMALL = 16_384
"""Bytes of tables, counts and scans, whatever the gradient."""

CASES = [(1 << 18, 1, 0.01), (1 << 14, 64, 0.01), (1 << 15, 1, 0.3)]
"""Units, width, density."""


def taken_of(name, case):
    return taken(name, allowed(plan_of_shipped(name), (4, 8))[0], *case)


QUICK = ("balanced", "dense_ring", "holders", "zen")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in SHIPPED]
)
def test_it_is_one_bitmap_beyond_the_payload(name):
    for case in CASES:
        found = taken_of(name, case)
        assert found.beyond <= 1, (case, found)


@pytest.mark.parametrize("name", ["agsparse", "balanced", "hierarchical_centralization", "holders"])
def test_so_it_is_for_dense_tensors(name):
    assert taken_of(name, (1 << 17, 1, 0.01, True)).beyond <= 1


@pytest.mark.parametrize("name", ["agsparse", "hierarchical_centralization", "kylix"])
def test_where_next_to_nothing_is_sent_it_is_the_marks_of_one_tensor(name):
    """A bitmap with its ranks, those of what is summed on the way, and tables."""
    found = taken_of(name, (1 << 18, 1, 0.0005))
    assert found.moved < found.bitmap / 2
    assert found.beyond <= 1.5


def test_balanced_needs_less_than_it_moves_where_rows_are_wide():
    found = taken("balanced", 4, 1 << 15, 64, 0.01)
    assert found.taken < found.moved


def test_duplicates_are_sorted_in_memory_that_is_used_again():
    """In some 26 bytes an id, which what is received lies in later: not all of them add up."""
    once, twice = (taken("balanced", 4, 1 << 16, 4, 0.02, times=times) for times in (1, 2))
    assert twice.ids == 2 * once.ids
    assert twice.taken - once.taken <= 24 * twice.ids + SMALL
