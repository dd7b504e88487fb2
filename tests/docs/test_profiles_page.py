"""The plot of the page about profiles is the one that its commands draw."""

from __future__ import annotations

from collections.abc import Callable

from zenc.draw.plots import profiles
from zenc.gradients.profile_generators import zipf


def test_the_plot_is_up_to_date(assert_plot: Callable[[str, str], None]) -> None:
    words = zipf(0.02, 1.05, 50_000, 64, name="words")
    assert_plot("images/profile-words.svg", profiles.svg({"words": words}, None))
