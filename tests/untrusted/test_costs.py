"""Costs of hostile files of a megabyte; and their table on the page about security."""

from __future__ import annotations

import json

import pytest

from tests.untrusted.costs import KEPT_AT, PAGE, cost_of, with_table
from tests.untrusted.megabytes import MEGABYTE, TRICKS
from zenc.common.diagnostics import DIAGNOSTICS

KEPT = json.loads(KEPT_AT.read_text("utf-8"))
SECOND, GIGABYTE = 1.0, 1e9
PATIENCE = 5.0
"""Factor by which a busy machine may be slower. Without a limit reading takes minutes, or all memory."""
SAMPLE = ("places of a plan", "an archive of zeros")


@pytest.mark.parametrize(
    "trick", [pytest.param(trick, marks=[] if trick in SAMPLE else pytest.mark.slow) for trick in TRICKS]
)
def test_a_megabyte_costs_a_second_and_a_gigabyte_at_most(trick: str) -> None:
    cost = cost_of(trick)
    assert cost.bytes <= 1.1 * MEGABYTE and cost.outcome == KEPT[trick]["outcome"]
    assert cost.seconds < PATIENCE * SECOND and cost.memory < GIGABYTE


def test_the_table_is_what_the_command_wrote() -> None:
    assert with_table(PAGE.read_text("utf-8"), KEPT) == PAGE.read_text("utf-8")


def test_every_trick_of_the_table_was_within_the_limits() -> None:
    assert list(KEPT) == list(TRICKS)
    assert {trick: of for trick, of in KEPT.items() if of["seconds"] > SECOND or of["memory"] > GIGABYTE} == {}
    assert {id for of in KEPT.values() for id in of["outcome"].split(", ")} <= {"read", *DIAGNOSTICS}
