"""Artifacts are data: a saved one loads equal, a failed save leaves the old one, and any change is refused by name."""

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zenc
from tests.support.artifacts import CUBINS, edit, refused, rewrite
from tests.support.fuzz import fuzzed
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
    with pytest.raises(ArtifactError, match=r"error\[wrong-size\]"):
        only.ensure_size(6)


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


def test_kernels_for_gpus_come_back(saved_cuda, tmp_path):
    again = load_artifact(saved_cuda)
    assert again.cubins == CUBINS
    assert again.sources == zenc.compile("agsparse", target="cuda", arch="none").sources
    assert load_artifact(again.save(tmp_path / "again")) == again
    found = {str(path.relative_to(saved_cuda)) for path in saved_cuda.rglob("*") if path.is_file()}
    assert found == {"manifest.json", *again.manifest["files"]} >= {"kernels.cu", "sm_80.cubin", "sm_90.cubin"}


def test_kernels_for_gpus_that_are_edited_cut_short_or_gone(copy_cuda):
    path = copy_cuda / "sm_90.cubin"
    whole = path.read_bytes()
    for damaged in (whole + b"\0", whole[:-1], whole[:4096], b"", whole[::-1]):
        path.write_bytes(damaged)
        assert refused(copy_cuda) == "artifact-damaged"
    path.unlink()
    assert refused(copy_cuda) == "artifact-damaged"


@pytest.mark.parametrize(
    "cubins",
    [
        None, [], 3, {}, {"sm_90": {}}, {"sm_90": {"compiler": "x"}}, {"../sm_90": {"compiler": "x", "cuda": 13}},
        {"sm_80": {"compiler": "x", "cuda": 13}, "sm_86": {"compiler": "x", "cuda": 13}},
        {"sm_80": {"compiler": "x", "cuda": 13}, "sm_90": {"compiler": "x", "cuda": "?"}},
        {"sm_80": {"compiler": "x", "cuda": 13}, "sm_90": 7}, {"sm_80": {"compiler": "x", "cuda": 13}},
    ],
)  # fmt: skip
def test_a_manifest_that_says_something_else_of_its_cubins(copy_cuda, cubins):
    edit(copy_cuda, lambda manifest: manifest.update(cubins=cubins))
    assert refused(copy_cuda) == "artifact-damaged"


def test_only_kernels_for_gpus_have_architectures():
    for target in ("cpu", "plan"):
        with pytest.raises(zenc.BuildError, match=f"the target {target} is not compiled for GPU") as caught:
            zenc.compile("agsparse", target=target, arch=["sm_90"])
        assert caught.value.diagnostics[0].id == "unknown-arch"


@pytest.mark.parametrize("name", ["plan.json", "kernels.cpp", "sources/0.zen", "sources/1.zen"])
def test_files_that_are_edited_cut_short_or_gone(copy, name):
    whole = (copy / name).read_bytes()
    for damaged in (whole + b" ", whole[:-1], b"", whole[:5] + b"\xff\xfe"):
        (copy / name).write_bytes(damaged)
        assert refused(copy) == "artifact-damaged"
    (copy / name).unlink()
    assert refused(copy) == "artifact-damaged"
    (copy / name).mkdir()
    assert refused(copy) == "artifact-damaged"


def test_a_link_to_itself_is_no_file(copy):
    for name, id in (("plan.json", "artifact-damaged"), ("manifest.json", "not-an-artifact")):
        (copy / name).unlink()
        (copy / name).symlink_to(name)
        assert refused(copy) == id


def test_a_path_that_cannot_be_holds_nothing():
    assert refused(Path("a" * 300)) == "not-an-artifact"


def test_a_pipe_is_no_file(copy):
    (copy / "plan.json").unlink()
    os.mkfifo(copy / "plan.json")
    assert refused(copy) == "artifact-damaged"


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"zenc_artifact": 1', "[" * 100_000, "\0"])
def test_a_manifest_that_is_none(copy, text):
    (copy / "manifest.json").write_text(text)
    assert refused(copy) == "artifact-damaged"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("digest", "0" * 64), ("files", []), ("files", {"plan.json": 3}), ("files", {}), ("texts", 3),
        ("texts", ["a", "b", "c"]), ("proved_sizes", 3), ("proved_sizes", ["3"]), ("target", "fpga"), ("target", None),
        ("scheme", "x"), ("size", "x"), ("texts", []), ("more", 1),
    ],
)  # fmt: skip
def test_a_manifest_that_says_something_else(copy, key, value):
    edit(copy, lambda manifest: manifest.update({key: value}))
    assert refused(copy) == "artifact-damaged"


@pytest.mark.parametrize(("key", "value"), [("zenc_artifact", 1), ("zenc", "0.0.0"), ("zenc", None)])
def test_another_version(copy, key, value):
    edit(copy, lambda manifest: manifest.update({key: value}))
    assert refused(copy) == "other-version"


@pytest.mark.parametrize("name", ["../secret.txt", "sources/../../secret.txt", "/etc/hostname", ".", ""])
def test_no_file_outside_is_read(copy, name):
    text = "not for you"
    (copy.parent / "secret.txt").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    edit(copy, lambda manifest: manifest["files"].update({name: digest}))
    assert refused(copy) == "artifact-damaged"


def test_a_link_that_leads_out_is_not_followed(copy):
    (copy / "kernels.cpp").rename(copy.parent / "kernels.cpp")
    (copy / "kernels.cpp").symlink_to(copy.parent / "kernels.cpp")
    assert refused(copy) == "artifact-damaged"


@pytest.mark.parametrize("name", ["kernels.cpp", "more.cpp"])
def test_code_that_is_not_of_the_plan_is_never_run(copy, name):
    rewrite(copy, name, "int main() { return 1; }")
    load_artifact(copy)
    with pytest.raises(ArtifactError, match="artifact-damaged"):
        api.artifact_for(3, copy, None)


def test_a_plan_that_is_edited_with_its_checksum(copy):
    plan = json.loads((copy / "plan.json").read_text())
    rewrite(copy, "plan.json", json.dumps({**plan, "tiers": [{**plan["tiers"][0], "aggregation": "incremental"}]}))
    assert refused(copy) == "artifact-damaged", "the digest in the manifest is of another plan"
    rewrite(copy, "plan.json", json.dumps({**plan, "zenc_plan": 1}))
    assert refused(copy) == "other-version"
    rewrite(copy, "plan.json", json.dumps({**plan, "pushes": 3}))
    assert refused(copy) == "bad-plan"
    rewrite(copy, "plan.json", "[" * 100_000)
    assert refused(copy) == "artifact-damaged"


def test_what_is_no_artifact(tmp_path):
    assert refused(tmp_path) == "not-an-artifact"
    assert refused(tmp_path / "nowhere") == "not-an-artifact"
    (tmp_path / "manifest.json").mkdir()
    assert refused(tmp_path) == "not-an-artifact"


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
