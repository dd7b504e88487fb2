"""Kernels for a GPU: compiled where there is a compiler, else those of the artifact, else an error."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from zenc.codegen.build import nvrtc as nvrtc_module
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.gpu_kernels import Cubin
from zenc.errors import ArtifactError
from zenc.runtime.gpu.device import kernels_for
from zenc.runtime.gpu.driver import GpuInfo

SOURCES = {"kernels.cu": 'extern "C" __global__ void answer(long long* out) { *out = 42; }\n'}
SHIPPED = tuple(Cubin(arch, str(arch).encode(), "NVRTC 13.0.88", 13) for arch in (Arch(8, 0), Arch(8, 6), Arch(9, 0)))


def gpu(major: int, minor: int) -> GpuInfo:
    return GpuInfo(0, "NVIDIA Test", Arch(major, minor))


def driver(cuda: int) -> SimpleNamespace:
    return SimpleNamespace(cuda=cuda)


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.delenv(nvrtc_module.CHOICE, raising=False)
    monkeypatch.setattr(nvrtc_module, "libraries", lambda: iter(()))
    nvrtc_module._found.cache_clear()
    yield
    nvrtc_module._found.cache_clear()


def test_they_are_compiled_where_that_can_be_done(nvrtc, monkeypatch, tmp_path):
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "cache"))
    made = kernels_for(gpu(9, 0), driver(nvrtc.cuda), SOURCES, SHIPPED)
    assert made.image.startswith(b"\x7fELF") and (made.arch, made.compiler) == (Arch(9, 0), nvrtc.name)
    of_a_gpu_to_come = kernels_for(gpu(8, 99), driver(nvrtc.cuda), SOURCES)
    assert of_a_gpu_to_come.arch == max(arch for arch in nvrtc.archs if arch.major == 8)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(("on", "expected"), [((8, 0), "sm_80"), ((8, 9), "sm_86"), ((9, 0), "sm_90")])
def test_else_they_are_those_of_the_artifact(on, expected):
    assert kernels_for(gpu(*on), driver(13), SOURCES, SHIPPED).image == expected.encode()


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(("on", "cuda"), [((10, 0), 13), ((7, 5), 13), ((9, 0), 12)])
def test_what_is_not_there_is_told_with_what_is(on, cuda):
    with pytest.raises(ArtifactError) as raised:
        kernels_for(gpu(*on), driver(cuda), SOURCES, SHIPPED)
    (found,) = raised.value.diagnostics
    arch = Arch(*on)
    assert found.id == "wrong-arch"
    assert found.message == f"there are no kernels for NVIDIA Test, which is {arch}, under a driver of CUDA {cuda}"
    assert found.notes[0] == "the artifact has: sm_80 (CUDA 13), sm_86 (CUDA 13), sm_90 (CUDA 13)"
    assert f"--arch {arch}" in found.help and f"zenc[cuda{cuda}]" in found.help


def test_a_compiler_that_does_not_know_the_gpu_is_told_too(nvrtc):
    with pytest.raises(ArtifactError, match=f"note: {nvrtc.name} compiles for sm_75, .* only") as raised:
        kernels_for(gpu(7, 0), driver(nvrtc.cuda), SOURCES)
    assert raised.value.diagnostics[0].notes[0] == "the artifact has: none"


def test_a_compiler_that_is_newer_than_the_driver_leaves_it_to_the_artifact(nvrtc, monkeypatch):
    monkeypatch.setenv(nvrtc_module.CHOICE, "")
    monkeypatch.setattr(nvrtc_module, "libraries", lambda: iter([nvrtc.path]))
    old = Cubin(Arch(9, 0), b"old", "NVRTC 12.9.86", nvrtc.cuda - 1)
    nvrtc_module._found.cache_clear()
    assert kernels_for(gpu(9, 0), driver(nvrtc.cuda - 1), SOURCES, (old, *SHIPPED)) is old
    nvrtc_module._found.cache_clear()
