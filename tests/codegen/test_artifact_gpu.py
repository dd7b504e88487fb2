"""Kernels for GPUs in artifacts."""

from __future__ import annotations

import pytest

import zenc
from tests.support.artifacts import CUBINS, edit, refused
from zenc.codegen.artifact import load_artifact


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
