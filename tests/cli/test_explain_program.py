"""``zenc explain --program``: what one rank does, in words and as JSON."""

from __future__ import annotations

import json


def test_the_program_of_a_rank(zenc):
    shown = zenc("explain", "balanced", "--ranks", "4", "--rank", "1", "--program")
    assert shown.stdout.startswith("balanced on rank 1 of 4: 4 parts, 11 segments\n") and "  merge " in shown.stdout
    (data,) = json.loads(zenc("explain", "balanced", "--ranks", "4", "--rank", "1", "--program", "--json").stdout)[
        "programs"
    ]
    assert [phase["name"] for phase in data["phases"]] == ["push", "pull"]
