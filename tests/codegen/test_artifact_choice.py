"""Artifacts of schemes that choose: one directory with all candidates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import zenc
from tests.support.artifacts import refused
from zenc.codegen.artifact import load_artifact
from zenc.errors import ArtifactError


def test_a_choice_is_one_directory_with_all_candidates(tmp_path: Path) -> None:
    made = zenc.compile("auto", params={"every": 7})
    found = load_artifact(made.save(tmp_path / "auto"))
    assert found == made
    assert found.digest == made.digest != made.plan.digest
    assert found.choosing is not None and found.choosing.settings.every == 7
    assert list(found.choosing.candidates) == ["balanced", "holders", "hierarchical_centralization", "dense_ring"]
    assert found.plan == found.choosing.candidates["balanced"].plan, "the first runs until one is chosen"
    assert made.digest != zenc.compile("auto").digest, "ranks that would look at other calls differ"
    assert list(found.choosing.able(3)) == list(found.choosing.candidates)


def test_a_choice_for_some_ranks_is_made_among_those_that_fit(tmp_path: Path) -> None:
    made = zenc.compile_text("scheme mine { choose from [torus2d(columns = 4), balanced] }")
    found = load_artifact(made.save(tmp_path / "mine"))
    assert found.choosing is not None
    assert list(found.choosing.able(8)) == ["torus2d(columns = 4)", "balanced"]
    assert list(found.choosing.able(6)) == ["balanced"]
    only = zenc.compile_text("scheme mine { choose from [torus2d(columns = 4)] }")
    with pytest.raises(ArtifactError) as caught:
        only.ensure_size(6)
    assert caught.value.diagnostics[0].id == "wrong-size"


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"every": 0, "margin": 0.1, "patience": 2, "trials": 3}},
        {"settings": {"every": 5.5, "margin": 0.1, "patience": 2, "trials": 3}},
        {"settings": {"every": 5, "margin": float("nan"), "patience": 2, "trials": 3}},
        {"settings": {"every": 5}, "candidates": {}},
        {"candidates": {"balanced": "0" * 64}},
        {"candidates": [0]},
        {"settings": None},
    ],
)
def test_a_choice_that_was_edited_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    where = zenc.compile("auto").save(tmp_path / "auto")
    manifest = json.loads((where / "manifest.json").read_text())
    manifest["choice"].update(change)
    (where / "manifest.json").write_text(json.dumps(manifest))
    assert refused(where) == "artifact-damaged"
