"""Kernels for CuPy: the file that a stand-in for its RawModule gets, and the GPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from zenc.api import compile
from zenc.codegen.build import gpu_kernels
from zenc.codegen.build import nvrtc as nvrtc_module
from zenc.codegen.build.arch import Arch
from zenc.errors import BuildError

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
