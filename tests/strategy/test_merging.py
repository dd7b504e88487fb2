"""Cuts of a step into groups that are as good as brute force finds, and strategies that are saved as artifacts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenc.errors import ArtifactError
from zenc.kinds import open as open_text
from zenc.strategy.artifact import MANIFEST, is_compiled_strategy, load_compiled_strategy
from zenc.strategy.merging import fused, search_fusion, search_groups
from zenc.strategy.pipeline import StrategyArtifacts
from zenc.strategy.simulation.step import StepTensor, TrainingStep

steps = st.lists(st.integers(1, 1 << 22), min_size=2, max_size=40).map(
    lambda drawn: TrainingStep("drawn", tuple(StepTensor(str(i), n, n * 2e-9) for i, n in enumerate(drawn)))
)


def modelled(step: TrainingStep, start: float = 4e-4) -> Callable[[tuple[int, ...]], float]:
    """Return a step's time if groups are encoded and sent one after another: a constant, and by size."""

    def seconds(ends: tuple[int, ...]) -> float:
        ready = free = 0.0
        for group in step.merged(ends).tensors:
            ready += group.gap
            free = max(ready, free) + start + group.numel * 3e-9
        return free

    return seconds


@given(steps)
@settings(deadline=None)
def test_the_search_finds_the_best_cut(step: TrainingStep) -> None:
    count, seconds = len(step.tensors), modelled(step)
    found = search_groups(count, seconds, least_gain=0.0)
    best = min(map(seconds, [(), *((cut,) for cut in range(1, count))]))
    assert found.seconds == pytest.approx(best, rel=0.02)
    assert found.asked <= 3 + 2 * count.bit_length()


@given(steps, st.integers(1, 5))
@settings(deadline=None)
def test_more_groups_are_never_worse_and_each_is_asked_for_once(step: TrainingStep, most: int) -> None:
    asked: list[tuple[int, ...]] = []
    seconds = modelled(step)

    def watched(ends: tuple[int, ...]) -> float:
        asked.append(ends)
        return seconds(ends)

    found = search_groups(len(step.tensors), watched, most)
    assert len(asked) == len(set(asked)) == found.asked
    assert found.seconds == seconds(found.ends) <= seconds(())
    assert len(found.ends) < most


@given(steps, st.integers(1 << 10, 1 << 24))
@settings(deadline=None)
def test_buffers_are_filled_in_order_and_hold_no_more_than_they_may(step: TrainingStep, bytes: int) -> None:
    groups = step.merged(fused(step, bytes)).tensors
    assert sum(group.numel for group in groups) == step.numel
    alone = {tensor.numel for tensor in step.tensors}
    assert all(4 * group.numel <= bytes or group.numel in alone for group in groups)


@given(steps)
@settings(deadline=None)
def test_a_fusion_is_at_least_as_good_as_one_buffer_for_all(step: TrainingStep) -> None:
    seconds = modelled(step)
    found = search_fusion(step, seconds)
    assert found.seconds == seconds(found.ends) <= seconds(())


RULES = """tensors "h.*": dense_ring  tensors above 1 MB: dense_ring on host
    others: choose from [dense_ring, double_binary_tree]"""
GROUPS = ("", "groups: cuts(2, 5)", "groups: search(3)", "groups: fused(4 MB)", "groups: fused")
OTHERS = {"tensors": {"is": "others"}, "device": "", "digest": ""}


def made(folder: Path, groups: str = "") -> StrategyArtifacts:
    """Return a compiled strategy of three rules, two of which share an artifact."""
    text = folder / "step.zen"
    text.write_text(f"strategy mine {{ {groups} {RULES} }}")
    return open_text(text, ranks=4).compile("cpu")


@pytest.mark.parametrize("groups", GROUPS)
def test_what_is_written_is_read_again(tmp_path: Path, groups: str) -> None:
    before = made(tmp_path, groups)
    saved = before.save(tmp_path / "out")
    assert saved.keys() == before.distinct.keys() and is_compiled_strategy(tmp_path / "out")
    found = load_compiled_strategy(tmp_path / "out")
    assert (found.name, found.groups) == ("mine", before.strategy.groups)
    pairs = list(zip(found.rules, before.strategy.rules, strict=True))
    assert all((rule.tensors, rule.device) == (of.tensors, of.device) for rule, of in pairs)
    assert [rule.artifact.digest for rule in found.rules] == [each.digest for each in before.artifacts]
    assert [rule.artifact.choosing is not None for rule in found.rules] == [False, False, True]
    assert found.matching("h.0", 4) is found.rules[0] and found.matching("w", 4) is found.rules[2]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"zenc": "0.0"}, "other-version"),
        ({"rules": []}, "artifact-damaged"),
        ({"groups": {"is": "cuts", "ends": ["two"]}}, "artifact-damaged"),
        ({"groups": {"is": "folds"}}, "artifact-damaged"),
        ({"rules": [{**OTHERS, "directory": "../out"}]}, "artifact-damaged"),
        ({"rules": [{**OTHERS, "directory": "dense_ring"}]}, "artifact-damaged"),
    ],
    ids=["version", "no rules", "no numbers", "no groups", "outside", "another scheme"],
)
def test_an_edited_strategy_is_refused(tmp_path: Path, change: dict[str, Any], error: str) -> None:
    made(tmp_path).save(tmp_path / "out")
    file = tmp_path / "out" / MANIFEST
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ArtifactError) as caught:
        load_compiled_strategy(tmp_path / "out")
    assert [each.id for each in caught.value.diagnostics] == [error]
