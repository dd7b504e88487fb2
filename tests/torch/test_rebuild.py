"""Handles that go on after a rank has died in a backward pass: among fewer ranks, and with a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.generations import lives

JOB = "tests.torch.rebuild_jobs:going_on"
SCHEDULE = "communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced"
TOPPED = f"scheme topped {{ {SCHEDULE} select: top_of_parts(0.1) push: coo pull: dense feedback: residual }}"
SIGNED = f"scheme signed {{ {SCHEDULE} push: dense as sign(64) pull: dense as sign(64) feedback: residual }}"
RULES = f'{TOPPED} {SIGNED} strategy tried {{ tensors "*.bias": signed others: topped }}'
CHOSEN = "scheme chosen { choose(every = 4, patience = 2, trials = 0) from [sparcml, balanced, dense_ring] }"
FEWER, ANOTHER = [(0, 1, 2), (0, 2)], [(0, 1, 2), (2, 3, 0)]


def alike(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state that all ranks share, after checking that it is the same."""
    shared = [{name: value for name, value in state.items() if name != "residuals"} for state in states]
    assert all(state == shared[0] for state in shared)
    return shared[0]


@pytest.mark.parametrize(
    ("text", "groups", "within"),
    [(TOPPED, ANOTHER, True), pytest.param(TOPPED, FEWER, False, marks=pytest.mark.slow), (RULES, FEWER, True)],
    ids=["scheme-another", "scheme-fewer", "strategy-fewer"],
)
def test_what_is_kept_is_that_of_before_the_step_that_failed(
    text: str, groups: list[tuple[int, ...]], within: bool, tmp_path: Path
) -> None:
    given = {"text": text, "sparse": False, "dying": 1, "within": within, "folder": str(tmp_path)}
    found = lives(JOB, groups, **given)
    assert set(found) == set(groups[1])
    for member in set(groups[1]) & set(groups[0]):
        ended, begun = found[member]["ended"][0]["residuals"], found[member]["begun"][1]["residuals"]
        assert ended.keys() == begun.keys() and all(torch.equal(ended[name], begun[name]) for name in ended)
        assert any(bool(each.any()) for each in ended.values())
        assert found[member]["errors"] in (["peer-lost"], ["group-broken"])
    alike([found[member]["begun"][-1] for member in groups[1]])
    assert len({str(found[member]["parameters"]) for member in groups[1]}) == 1


@pytest.mark.parametrize("groups", [FEWER, pytest.param(ANOTHER, marks=pytest.mark.slow)], ids=["fewer", "another"])
def test_decisions_stay(groups: list[tuple[int, ...]], tmp_path: Path) -> None:
    given = {"text": CHOSEN, "sparse": True, "dying": 1, "within": False, "folder": str(tmp_path)}
    found = lives(JOB, groups, **given)
    last = alike([found[member]["ended"][-1] for member in groups[1]])["decisions"]
    for member in (0, 2):
        (first,) = found[member]["ended"][0]["decisions"]
        assert (last[0]["scheme"], last[0]["predicted"]) == (first["scheme"], first["predicted"])
