"""A changed artifact is refused by name, and none of its code runs."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

import zenc
from tests.support.artifacts import edit, refused, rewrite
from zenc import api
from zenc.codegen.artifact import load_artifact
from zenc.errors import ArtifactError


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


@pytest.mark.parametrize("key", ["digest", "target", "proved_sizes", "texts", "files"])
def test_a_manifest_that_lacks_something(copy, key):
    edit(copy, lambda manifest: manifest.pop(key))
    assert refused(copy) == "artifact-damaged"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("digest", "0" * 64), ("files", []), ("files", {"plan.json": 3}), ("files", {}), ("texts", 3),
        ("texts", ["a", "b", "c"]), ("proved_sizes", 3), ("target", "../cpu"), ("target", ""), ("target", None),
    ],
)  # fmt: skip
def test_a_manifest_that_says_something_else(copy, key, value):
    edit(copy, lambda manifest: manifest.update({key: value}))
    if key == "target" and value is None:
        with pytest.raises(zenc.BuildError, match="unknown-target"):
            api.artifact_for(3, copy, None)
    else:
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
    text = (copy / "kernels.cpp").read_text()
    (copy.parent / "kernels.cpp").write_text(text)
    (copy / "kernels.cpp").unlink()
    (copy / "kernels.cpp").symlink_to(copy.parent / "kernels.cpp")
    assert refused(copy) == "artifact-damaged"


def test_code_that_is_not_of_the_plan_is_never_run(copy):
    rewrite(copy, "kernels.cpp", (copy / "kernels.cpp").read_text() + "\n// more\n")
    load_artifact(copy)
    with pytest.raises(ArtifactError, match="artifact-damaged"):
        api.artifact_for(3, copy, None)


def test_code_that_is_added_is_never_run(copy):
    rewrite(copy, "more.cpp", "int main() { return 1; }")
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
