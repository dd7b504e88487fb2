"""Memory of a GPU that calls take beside input and result: bitmaps beyond the payload (docs/reference/cuda.md)."""

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


QUICK = {"balanced": CASES[1:], "holders": CASES[2:]}
SPREAD = ("balanced", "dense_halving_doubling", "dense_ring", "omnireduce", "sparcml_split", "sparse_ps", "zen")
"""Schemes in which a rank gets pieces of its own part only, which are one bitmap together."""


def beyond_marks(found):
    """Return bytes beyond the payload and a bitmap; beside SPREAD one for each rank, each with ranks of an eighth."""
    most = found.bitmap if found.scheme in SPREAD else 9 / 8 * (found.size + 1) * found.bitmap + SMALL
    return max(0, found.taken - found.moved - most)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, marks=[] if case in QUICK.get(name, []) else [pytest.mark.slow])
        for name in SHIPPED
        for case in CASES
    ],
)
def test_it_is_marks_beyond_the_payload(name, case):
    assert beyond_marks(taken_of(name, case)) == 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["balanced", "agsparse", "hierarchical_centralization", "holders"])
def test_so_it_is_for_dense_tensors(name):
    assert beyond_marks(taken_of(name, (1 << 17, 1, 0.01, True))) == 0


def test_so_it_is_where_next_to_nothing_is_sent():
    found = taken_of("agsparse", (1 << 18, 1, 0.0005))
    assert found.moved < found.bitmap / 2
    assert beyond_marks(found) == 0


def test_balanced_needs_less_than_it_moves_where_rows_are_wide():
    found = taken("balanced", 4, 1 << 15, 64, 0.01)
    assert found.taken < found.moved


def test_duplicates_are_sorted_in_memory_that_is_used_again():
    """Sorting takes some 26 bytes an id, which received messages use later, so that not all of it adds up."""
    once, twice = (taken("balanced", 4, 1 << 16, 4, 0.02, times=times) for times in (1, 2))
    assert twice.ids == 2 * once.ids
    assert twice.taken - once.taken <= 24 * twice.ids + SMALL
