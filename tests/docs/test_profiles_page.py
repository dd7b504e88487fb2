"""The plot of the page about profiles is the one that its commands draw."""

from __future__ import annotations

from collections.abc import Callable

from zenc.cost.characteristics import plot
from zenc.cost.synthetic import zipf


def test_the_plot_is_up_to_date(assert_golden: Callable[[str, str], None]) -> None:
    words = zipf(0.02, 1.05, 50_000, 64, name="words")
    assert_golden("../../docs/images/profile-words.svg", plot({"words": words}, None))
