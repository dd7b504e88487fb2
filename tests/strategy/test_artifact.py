"""Compiled strategies: written, read again, and refused where a file was changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zenc.errors import ArtifactError
from zenc.kinds import open as open_text
from zenc.strategy.artifact import MANIFEST, is_compiled_strategy, load_compiled_strategy
from zenc.strategy.pipeline import StrategyArtifacts

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
