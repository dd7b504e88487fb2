"""Lookups that are announced when the forward pass ends give the tables of training without, to the bit."""

from __future__ import annotations

JOBS = "tests.torch.announce_jobs:"
RIGHT = ("", "accumulated", "two passes", "evaluated", "recomputed", "late zero", "targets", "tied", "dense")
"""Ways of training in which exactly the looked-up rows have a gradient."""
ORDINARY, ANNOUNCED = 1, 3
"""Numbers that a call takes: an announced one also those of the announcement, and of the call in its place."""


def test_announcements_that_are_right(two):
    for found in two.run(JOBS + "lookups", hows=[(how, False) for how in RIGHT]):
        for how in RIGHT:
            same, made_again, calls = found[how]
            assert same, how
            tables = 1 if how == "tied" else 2
            assert made_again == [[False] * tables] * 3, how
            assert calls == 3 * tables * ANNOUNCED, how


def test_announcements_that_are_wrong_cost_time_alone(two):
    """The announcements are of words, which stand behind bags among the names."""
    hows = [(how, False) for how in ("no gradient", "dropped", "reentrant", "function")] + [("function", True)]
    for found in two.run(JOBS + "lookups", hows=hows):
        assert all(same for same, _, _ in found.values())
        made_again = {how: again for how, (_, again, _) in found.items()}
        assert made_again["no gradient"] == [[True, False]] * 3
        assert made_again["dropped"] == [[True, False], [False, False], [False, False]], "then nothing is left of it"
        assert made_again["reentrant"] == [[True, False], [False, False], [False, False]], "then it is known"
        assert made_again["function"] == [*[[True, False]] * 3, *[[False, False]] * 2], "a table gives up"
        assert found["function"][2] == 8 * ANNOUNCED + 2 * ORDINARY
        assert made_again["function by hand"] == [[False, False]] * 5


def test_what_has_nothing_to_announce(two):
    assert two.run(JOBS + "refused") == [["not-announced", "not-announced", "unknown-parameter"]] * 2
