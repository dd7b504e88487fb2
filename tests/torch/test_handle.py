"""Handles on real gloo processes: they stay out of pickles and copies, let go of a model, and wait as long as it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ranks import Ranks

JOBS = "tests.torch.handle_jobs:"


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    with Ranks(2) as ranks:
        yield ranks


def test_an_attached_model_is_saved_and_copied(two):
    for shown, copy in two.run(JOBS + "copied"):
        assert shown.startswith("<zenc.Attachment words.weight, bags.weight: <zenc.ZencState of <zenc.Collective ")
        assert "a copy, with no scheme" in copy and "\n" not in shown + copy


def test_a_model_with_the_hook_alone_is_saved(two):
    two.run(JOBS + "hook_idiom_copied")


def test_ddp_has_its_own_way_again_after_detach(two):
    for shown, summed in two.run(JOBS + "detached"):
        assert shown.endswith("(detached)>") and summed == ["bags.weight", "words.weight"]


def test_waits_take_as_long_as_those_of_the_group(two):
    """Unless the environment, or above it the caller, says otherwise; torch's own default is 30 minutes."""
    assert two.run(JOBS + "deadlines") == [[7.0, 33.0, 44.0, 1800.0]] * 2
