"""Artifacts with random changes, which load unchanged or are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support.artifacts import rewrite
from tests.support.damage import damaged_bytes, damaged_json
from tests.support.fuzz import fuzzed
from tests.support.survival import artifact_faults, error_faults
from zenc.codegen.artifact import load_artifact
from zenc.errors import ArtifactError
from zenc.plan.from_json import plan_from_json

WORDS = ["plan.json", "kernels.cpp", "sources/0.zen", "../plan.json", "a" * 300, "\0", "\ud800", "cpu", "rank", "all"]


@fuzzed(50)
@given(data=st.data())
def test_any_bit_that_flips_is_found(saved, tmp_path, data):
    where = Path(shutil.copytree(saved, tmp_path / "flipped", dirs_exist_ok=True))
    names = sorted(str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file())
    name = data.draw(st.sampled_from(names))
    content = bytearray((saved / name).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (where / name).write_bytes(content)
    try:
        found = load_artifact(where)
    except ArtifactError:
        return
    assert name == "manifest.json" and found.plan == load_artifact(saved).plan


@fuzzed(50)
@given(data=st.data())
def test_a_manifest_that_says_anything(saved, tmp_path, data):
    where = Path(shutil.copytree(saved, tmp_path / "said", dirs_exist_ok=True))
    manifest = data.draw(damaged_json(json.loads((saved / "manifest.json").read_text()), WORDS))
    (where / "manifest.json").write_text(json.dumps(manifest))
    assert artifact_faults(where) == []


@fuzzed(50)
@given(data=st.data())
def test_a_plan_that_says_anything(saved, tmp_path, data):
    """The changed plan has a right checksum, as if its author meant it."""
    where = Path(shutil.copytree(saved, tmp_path / "said", dirs_exist_ok=True))
    plan = data.draw(damaged_json(json.loads((saved / "plan.json").read_text()), WORDS))
    rewrite(where, "plan.json", json.dumps(plan))
    manifest = json.loads((where / "manifest.json").read_text())
    try:
        digest = plan_from_json(plan).digest
    except ArtifactError as error:
        assert error_faults(error) == []
    else:
        (where / "manifest.json").write_text(json.dumps({**manifest, "digest": digest}))
    assert artifact_faults(where) == []


@fuzzed(50)
@given(data=st.data())
def test_files_with_any_bytes(saved, tmp_path, data):
    where = Path(shutil.copytree(saved, tmp_path / "said", dirs_exist_ok=True))
    name = data.draw(st.sampled_from(["manifest.json", "plan.json", "sources/0.zen"]))
    (where / name).write_bytes(data.draw(damaged_bytes([(saved / name).read_bytes()], WORDS[:4]) | st.binary()))
    assert artifact_faults(where) == []
