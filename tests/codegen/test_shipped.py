"""Kernels that came with zenc are found by what they were compiled from; others are compiled ahead by workers."""

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.packaging.kernels import write
from tests.support.nvrtc import Nvrtc
from zenc.api import compile
from zenc.codegen.build import cache, gpu_kernels
from zenc.codegen.build import nvrtc as nvrtc_module
from zenc.codegen.build import shipped as shipped_module
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.gpu_kernels import unit_of
from zenc.codegen.build.nvrtc import CHOICE
from zenc.codegen.build.shipped import shipped
from zenc.codegen.build.worker import compile_ahead
from zenc.errors import BuildError

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


ELF = b"\x7fELF"


class RawModule:
    """CuPy's RawModule, which keeps its arguments."""

    def __init__(self, code=None, *, path=None, options=(), backend="nvrtc"):
        self.image = Path(path).read_bytes()


@pytest.fixture
def cupy(monkeypatch):
    device = SimpleNamespace(compute_capability="90")
    made = SimpleNamespace(RawModule=RawModule, cuda=SimpleNamespace(Device=lambda: device))
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


def kernels_in(image: bytes) -> set[str]:
    return {name.decode() for name in re.findall(rb"\.text\.(\w+)", image)}


@pytest.mark.slow
def test_the_kernels_of_the_current_device(nvrtc, cupy):
    artifact = compile("balanced", target="plan")
    made = artifact.raw_module()
    assert made.image.startswith(ELF) and len(kernels_in(made.image)) > 10
    assert artifact.raw_module("sm_90").image == made.image
    with pytest.raises(BuildError, match="sm_20"):
        artifact.raw_module("sm_20")


@pytest.mark.slow
def test_those_that_came_with_the_artifact_where_nothing_compiles(nvrtc, cupy, monkeypatch):
    artifact = compile("balanced", target="cuda", arch=["sm_90"])
    monkeypatch.setattr(nvrtc_module, "libraries", lambda: iter(()))
    nvrtc_module._found.cache_clear()
    try:
        assert artifact.raw_module().image == artifact.cubins[0].image
        with pytest.raises(BuildError, match="cuda-compiler-missing"):
            artifact.raw_module("sm_100")
    finally:
        nvrtc_module._found.cache_clear()


def test_it_says_so_where_cupy_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BuildError, match="cuda-unavailable"):
        compile("balanced", target="plan").raw_module("sm_90")


def test_it_says_so_where_there_is_no_gpu(cupy, monkeypatch):
    def missing():
        raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    cupy.cuda.Device = missing
    with pytest.raises(BuildError, match=r"cuda-unavailable.*no GPU here.*no CUDA-capable device") as caught:
        compile("balanced", target="plan").raw_module()
    assert "nvidia-smi" in caught.value.diagnostics[0].help
    monkeypatch.setattr(gpu_kernels, "_chosen", lambda *_: gpu_kernels.Cubin(Arch(9, 0), ELF, "none", 13))
    cupy.RawModule = lambda **_: missing()
    with pytest.raises(BuildError, match="cuda-unavailable"):
        compile("balanced", target="plan").raw_module("sm_90")


def test_kernels_of_compression_are_there_too(cupy, monkeypatch):
    seen = []
    chosen = gpu_kernels.Cubin(Arch(9, 0), ELF, "none", 13)
    monkeypatch.setattr(
        gpu_kernels, "_chosen", lambda sources, *_: seen.append(gpu_kernels.modules_of(sources)) or chosen
    )
    for scheme in ("topk_a2a", "balanced"):
        for target in ("plan", "cpu"):
            compile(scheme, target=target).raw_module("sm_90")
    assert ["zenc_take_f32" in names for names in seen] == [True, True, False, False]
