"""Artifacts are data: a saved one loads equal, and a failed save leaves the old one."""

from __future__ import annotations

import errno
import json
import os

import pytest

import zenc
from tests.support.plans import explain
from zenc import api
from zenc.codegen.artifact import Artifact, load_artifact
from zenc.errors import ArtifactError
from zenc.gradients.spec import GradientSpec


@pytest.mark.parametrize("ranks", [None, 1, 5])
@pytest.mark.parametrize("target", ["cpu", "plan"])
@pytest.mark.parametrize("scheme", ["balanced", "agsparse", "dense_ring", "hierarchical_centralization"])
def test_what_is_saved_comes_back(scheme, target, ranks, tmp_path):
    artifact = zenc.compile(scheme, ranks=ranks, target=target)
    again = load_artifact(artifact.save(tmp_path / "out"))
    assert again == artifact and again.manifest == artifact.manifest
    assert again.plan.digest == artifact.plan.digest
    assert (again.sources == {}) == (target == "plan")


def test_the_files_are_those_of_the_manifest(saved):
    found = {str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file()}
    manifest = json.loads((saved / "manifest.json").read_text())
    assert found == {"manifest.json", *manifest["files"]} == {
        "manifest.json", "plan.json", "kernels.cpp", "sources/0.zen", "sources/1.zen",
    }  # fmt: skip
    assert manifest["texts"][0] == "mine.zen" and manifest["proved_sizes"] == [3] and manifest["size"] == 3


def test_saving_again_changes_nothing(saved, tmp_path):
    artifact = load_artifact(saved)
    twice = [artifact.save(tmp_path / "again") for _ in range(2)][1]
    for name in ("manifest.json", *artifact.files()):
        assert (twice / name).read_bytes() == (saved / name).read_bytes()
    assert not list(twice.glob(".*")), "nothing temporary is left"


def test_places_survive(saved):
    explained = explain(load_artifact(saved).plan, 3, 0, GradientSpec(10, 1, "f32", 0.5))
    assert all(":" in message.at and "patterns.zen" in message.at for message in explained.messages)


def test_another_size(saved):
    assert isinstance(api.artifact_for(3, saved, None), Artifact)
    with pytest.raises(ArtifactError, match="wrong-size"):
        api.artifact_for(4, saved, None)


def test_a_plan_alone_is_not_run(tmp_path):
    where = zenc.compile("balanced", target="plan").save(tmp_path / "plan")
    with pytest.raises(ArtifactError, match="artifact-without-code"):
        api.artifact_for(2, where, None)


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    artifact = zenc.compile("balanced", target="plan")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="artifact-not-written"):
        artifact.save(tmp_path / "file")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("zenc.common.resources.os.replace", read_only)
    with pytest.raises(ArtifactError, match="Read-only file system"):
        artifact.save(tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_disk_that_fills_up_leaves_the_old_artifact(copy, monkeypatch):
    """Files change whole or not at all, and no temporary file is left."""
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("zenc.common.resources.os.replace", full)
    with pytest.raises(ArtifactError, match="No space left"):
        zenc.compile("agsparse").save(copy)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
