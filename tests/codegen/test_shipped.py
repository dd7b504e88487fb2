"""Kernels that came with zenc are found by what they were compiled from, and nothing else is taken for them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.kernels import write
from zenc.codegen.build import gpu_kernels
from zenc.codegen.build import shipped as shipped_module
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.nvrtc import CHOICE
from zenc.codegen.build.shipped import shipped

UNITS = [{"kernels.cu": f'extern "C" __global__ void answer_{number}() {{}}\n'} for number in range(2)]
NEWEST = 99


@pytest.fixture(scope="module")
def written(tmp_path_factory, nvrtc) -> Path:
    """Files of two architectures, with a file of kernels for each of UNITS."""
    root = tmp_path_factory.mktemp("shipped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZENC_CACHE_DIR", str(root / "cache"))
        write(root / "kernels", ["sm_80", "sm_90"], UNITS)
    return root / "kernels"


@pytest.fixture
def folder(written, tmp_path, monkeypatch) -> Iterator[Path]:
    """A copy of these files, where zenc looks for them."""
    copy = shutil.copytree(written, tmp_path / "kernels")
    monkeypatch.setenv("ZENC_CACHE_DIR", str(written.parent / "cache"))
    monkeypatch.setattr(shipped_module, "directory", lambda _: copy)
    monkeypatch.delenv(CHOICE, raising=False)
    shipped_module._found.cache_clear()
    yield copy
    shipped_module._found.cache_clear()


def test_each_gpu_has_the_kernels_of_the_newest_architecture_that_it_runs(folder, nvrtc):
    for number, unit in enumerate(UNITS):
        made = shipped(unit, Arch(8, 9), NEWEST)
        assert made is not None and f"answer_{number}".encode() in made.image
        assert (made.arch, made.compiler, made.cuda) == (Arch(8, 0), nvrtc.name, nvrtc.cuda)
        assert made.image == gpu_kernels.cubin(unit, Arch(8, 0), nvrtc).image
    assert shipped(UNITS[0], Arch(12, 0), NEWEST) is None


@pytest.mark.parametrize("change", ["source", "headers", "flags", "version", "driver", "choice", "damage", "folder"])
def test_others_are_not_taken_for_them(folder, nvrtc, monkeypatch, change):
    unit, cuda, file = UNITS[0], NEWEST, folder / "sm_90.xz"
    if change == "source":
        unit = {"kernels.cu": UNITS[0]["kernels.cu"] + "\n"}
    elif change == "headers":
        monkeypatch.setattr(gpu_kernels, "headers", lambda _target: {"cuda/zenc_cuda/rows.h": "other"})
    elif change == "flags":
        monkeypatch.setattr(shipped_module, "FLAGS", ("-std=c++20",))
    elif change == "version":
        monkeypatch.setattr(gpu_kernels, "__version__", "other")
    elif change == "driver":
        cuda = nvrtc.cuda - 1
    elif change == "choice":
        monkeypatch.setenv(CHOICE, nvrtc.path)
    elif change == "damage":
        file.write_bytes(file.read_bytes()[:-4])
    else:
        file.unlink()
    assert shipped(unit, Arch(9, 0), cuda) is None


def test_the_same_bytes_are_written_again(folder, tmp_path):
    write(tmp_path / "again", ["sm_90"], UNITS)
    assert (tmp_path / "again" / "sm_90.xz").read_bytes() == (folder / "sm_90.xz").read_bytes()
