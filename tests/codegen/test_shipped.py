"""Kernels that came with zenc are found by what they were compiled from; others are compiled ahead by workers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.kernels import write
from tests.support.nvrtc import Nvrtc
from zenc.codegen.build import cache, gpu_kernels
from zenc.codegen.build import shipped as shipped_module
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.gpu_kernels import unit_of
from zenc.codegen.build.nvrtc import CHOICE
from zenc.codegen.build.shipped import shipped
from zenc.codegen.build.worker import compile_ahead

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


MODULES = ("A", "B", "C")
SOURCE = "".join(f'#ifdef ZENC_{name}\nextern "C" __global__ void k{name}() {{}}\n#endif\n' for name in MODULES)


def test_all_but_the_first_are_compiled_by_others(nvrtc: Nvrtc, tmp_path, monkeypatch):
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "cache"))
    sources, arch = {"kernels.cu": SOURCE}, nvrtc.archs[-1]
    assert compile_ahead(SOURCE, arch, nvrtc, MODULES) >= 1
    units = [unit_of(sources, arch, nvrtc, name) for name in MODULES]

    def there() -> list[bool]:
        return [cache.lookup(cache.open_cache(), unit.key, unit.product) is not None for unit in units]

    end = time.monotonic() + 60
    while there() != [False, True, True] and time.monotonic() < end:
        time.sleep(0.05)
    assert there() == [False, True, True]
    compile_ahead.cache_clear()
    assert compile_ahead(SOURCE, arch, nvrtc, MODULES) == 0
