"""Kernels for a GPU: made before, else compiled where there is a compiler, else the artifact's, else an error."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.packaging.kernels import write
from zenc.codegen.build import nvrtc as nvrtc_module
from zenc.codegen.build import shipped
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.gpu_kernels import Cubin, cubins
from zenc.errors import ArtifactError
from zenc.runtime.gpu import device
from zenc.runtime.gpu.device import images_of, kernels_for
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


MODULES = ("A", "B_32_BULK", "C_16", "D_16", "CODES_F32")
TEXT = "#ifdef ZENC_ONLY\n#define ZENC_HAS(module) ZENC_##module\n#else\n#define ZENC_HAS(module) 1\n#endif\n"
TEXT += '#define ZENC_KERNEL(name) extern "C" __global__ void name\n'
TEXT += "".join(f"#if ZENC_HAS({name})\nZENC_KERNEL(zenc_{name})() {{}}\n#endif\n" for name in MODULES)


@pytest.fixture
def begun(monkeypatch, tmp_path) -> list[tuple[str, ...]]:
    """The modules that workers were to compile, in an empty cache; none is compiled."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(device, "compile_ahead", lambda *arguments: found.append(arguments[-1]))
    return found


def images(gpu_driver: SimpleNamespace, in_bulk: bool = True):
    plan = SimpleNamespace(phases=(), feedback=None)
    artifact = SimpleNamespace(gpu_sources=lambda: {"kernels.cu": TEXT}, plan=plan, cubins=())
    return images_of(artifact, gpu(9, 0), gpu_driver, in_bulk)


def kernels_in(image: bytes) -> set[str]:
    return {name for name in MODULES if f".text.zenc_{name}\0".encode() in image}


@pytest.mark.parametrize("in_bulk", [True, False])
def test_modules_are_compiled_ahead_for_float32_and_for_other_types_once_they_are_used(nvrtc, begun, in_bulk):
    """Without a code nothing compiles codes ahead."""
    image, usual = images(driver(nvrtc.cuda), in_bulk), ("A", "B_32_BULK") if in_bulk else ("A",)
    assert begun == [usual]
    assert kernels_in(image("zenc_A")) == {"A"} and begun[1:] == [usual]
    assert kernels_in(image("zenc_D_16")) == {"D_16"} and begun[2:] == [("C_16", "D_16")]


def test_what_was_compiled_in_advance_is_found_in_the_cache(nvrtc, begun):
    (whole,) = cubins({"kernels.cu": TEXT}, "sm_90")
    image = images(driver(nvrtc.cuda))
    assert image("zenc_A") == image("zenc_D_16") == whole.image and kernels_in(whole.image) == set(MODULES)
    assert begun == []


def test_what_zenc_has_come_with_needs_no_compiler(nvrtc, begun, no_compiler, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc_module, "libraries", lambda: iter([nvrtc.path]))
        nvrtc_module._found.cache_clear()
        write(tmp_path / "kernels", ["sm_90"], [{"kernels.cu": TEXT}])
    monkeypatch.setattr(shipped, "directory", lambda _: tmp_path / "kernels")
    nvrtc_module._found.cache_clear()
    shipped._found.cache_clear()
    assert kernels_in(images(driver(nvrtc.cuda))("zenc_A")) == set(MODULES) and begun == []
    with pytest.raises(ArtifactError, match="wrong-arch"):
        images(driver(nvrtc.cuda - 1))("zenc_A")
