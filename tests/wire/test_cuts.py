"""Cuts by encoded sizes: even densities are cut evenly, in integers, and no part grows beyond a bound."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from zenc.wire.cuts import LEAST_SHARE, ends_by_size, even_ends


@st.composite
def measured(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int]]:
    """Draw ends of up to nine parts, some of them empty, and their sizes."""
    units = draw(st.integers(0, 1 << 40))
    ends = sorted(draw(st.lists(st.integers(0, units), min_size=0, max_size=8)))
    sizes = draw(st.lists(st.integers(0, 1 << 40), min_size=len(ends) + 1, max_size=len(ends) + 1))
    return (*ends, units), sizes


@given(measured())
@example(((500, 1000), [0, 0]))
@example(((0, 0, 7), [9, 0, 0]))
def test_parts_stay_a_cut_and_none_is_longer_than_the_bound(of: tuple[tuple[int, ...], list[int]]) -> None:
    ends, sizes = of
    found = ends_by_size(ends, sizes)
    assert len(found) == len(ends) and found[-1] == ends[-1] and list(found) == sorted(found)
    longest = max(end - first for first, end in pairwise((0, *found)))
    assert longest * len(ends) <= (LEAST_SHARE + 1) * ends[-1] + 2 * len(ends)


def test_bytes_are_shared_evenly() -> None:
    ends = even_ends(1000, 4)
    assert ends == (250, 500, 750, 1000)
    assert ends_by_size(ends, [250, 250, 250, 250]) == ends
    assert ends_by_size(ends, [600, 200, 100, 100]) == (104, 208, 437, 1000)
    assert even_ends(5, 4) == (2, 4, 5, 5)
