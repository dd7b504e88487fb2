"""Kernels for GPUs are compiled without a GPU, once per node, by the compiler found; here they have one line."""

import logging
import os
import sys
from pathlib import Path

import pytest

from zenc.codegen.build import cache, gpu_kernels
from zenc.codegen.build import nvrtc as nvrtc_module
from zenc.codegen.build.arch import USUAL, Arch, arch_for, listed, parse_archs
from zenc.codegen.build.gpu_kernels import Cubin, cache_key, cubin, cubins, modules_of
from zenc.codegen.build.nvrtc import CHOICE, device_compiler
from zenc.codegen.render import render
from zenc.errors import BuildError
from zenc.scheme.model import Permutation

SOURCES = {
    "kernels.cu": '#include "zenc_cuda/platform.h"\nZENC_KERNEL(answer, (zenc::i64* out)) {\n    *out = 42;\n}\n'
}
SM_90 = Arch(9, 0)
ELF = b"\x7fELF"


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def nothing_installed(monkeypatch):
    """A machine without any compiler for GPUs."""
    monkeypatch.setattr(nvrtc_module, "libraries", lambda: iter(()))
    nvrtc_module._found.cache_clear()
    yield
    nvrtc_module._found.cache_clear()


def test_a_compile_is_announced_timed_and_kept(nvrtc, caplog):
    with caplog.at_level(logging.INFO, "zenc"):
        made = cubin(SOURCES, SM_90, nvrtc)
    assert made.image.startswith(ELF) and made.arch == SM_90 and made.compiler == nvrtc.name
    assert [record.message.split()[:2] for record in caplog.records] == [["compiling", "sm_90"], ["compiled", "sm_90"]]
    caplog.clear()
    assert cubin(SOURCES, SM_90, nvrtc) == made
    assert not caplog.records


def test_a_compiler_gives_the_same_bytes_again(nvrtc):
    """Equal bytes let whoever has the compiler check a cubin."""
    made = cubin(SOURCES, SM_90, nvrtc)
    cache.clear()
    assert cubin(SOURCES, SM_90, nvrtc).image == made.image


def test_a_damaged_cubin_is_compiled_again(nvrtc, directory):
    made = cubin(SOURCES, SM_90, nvrtc)
    (entry,) = cache.entries()
    (entry.path / gpu_kernels.PRODUCT).write_bytes(made.image[:-1])
    assert cubin(SOURCES, SM_90, nvrtc) == made


def test_the_name_has_the_whole_version(nvrtc):
    assert nvrtc.name.startswith(f"NVRTC {nvrtc.cuda}.") and nvrtc.name.count(".") == 2


@pytest.mark.parametrize("change", ["source", "headers", "options", "compiler", "zenc"])
def test_everything_that_is_compiled_is_in_the_key(monkeypatch, change):
    before = cache_key("source", ("-arch=sm_90",), "NVRTC 1")
    if change == "headers":
        monkeypatch.setattr(gpu_kernels, "headers", lambda _target: {"cuda/zenc_cuda/rows.h": "other"})
    elif change == "zenc":
        monkeypatch.setattr(gpu_kernels, "__version__", "other")
    source = "other" if change == "source" else "source"
    options = ("-arch=sm_80",) if change == "options" else ("-arch=sm_90",)
    assert cache_key(source, options, "NVRTC 2" if change == "compiler" else "NVRTC 1") != before


MODULES = ("SEGMENTS", "PACK_32", "SUM_32", "EXPAND")
"""Modules of which a dense call of ``balanced`` over float32 launches kernels."""


def test_a_module_has_its_kernels_alone(nvrtc):
    """Modules of a dense float32 call of ``balanced`` are less than 420 KB in all."""
    sources = render(Permutation, "cuda")
    modules, size = modules_of(sources), 0
    for module in MODULES:
        image = cubin(sources, SM_90, nvrtc, module=module).image
        found = {name for name in modules if f".text.{name}\0".encode() in image}
        assert found == {name for name in modules if modules[name] == module}
        size += len(image)
    assert size < 420_000


def test_headers_of_the_host_are_no_part_of_kernels():
    assert "zenc_cuda/rows.h" in gpu_kernels.device_headers() and "zenc/config.h" in gpu_kernels.device_headers()
    assert not [name for name in gpu_kernels.device_headers() if "host" in name]


def test_a_failing_compile_shows_its_first_lines_and_keeps_the_sources(nvrtc):
    with pytest.raises(BuildError, match="nonsense") as raised:
        cubin({"kernels.cu": "// a\nnonsense;\n"}, SM_90, nvrtc)
    (found,) = raised.value.diagnostics
    assert found.id == "compile-failed" and nvrtc.name in found.message
    kept = Path(found.notes[-1].rpartition(" ")[2])
    assert (kept / "kernels.cu").read_text() == "// a\nnonsense;\n"
    output = (kept / "compiler-output.txt").read_text()
    assert "-arch=sm_90 -std=c++17 -fmad=false" in output and "kernels.cu(2): error" in output


def test_an_architecture_that_is_unknown_is_told_with_those_that_are_known(nvrtc):
    with pytest.raises(BuildError, match=r"(?s)error\[unknown-arch\].*for sm_70, sm_991; it does for sm_75, sm_80"):
        cubins(SOURCES, "sm_991,sm_90,sm_70")
    assert cache.entries() == [], "nothing is compiled unless all can be"


def test_several_architectures_and_the_usual_ones(nvrtc):
    assert [str(made.arch) for made in cubins(SOURCES, ["sm_90", "sm_80"])] == ["sm_80", "sm_90"]
    assert listed(made.arch for made in cubins(SOURCES, None)) == "sm_75, sm_80, sm_90, sm_100, sm_120"
    assert len(cache.entries()) == 5


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_compiler_it_is_said_what_to_install():
    with pytest.raises(BuildError, match=r"error\[cuda-compiler-missing\].*there is no NVRTC") as raised:
        cubins(SOURCES, None)
    assert "pip install 'zenc[cuda13]'" in raised.value.diagnostics[0].help
    assert cubins(SOURCES, ()) == () == cubins(SOURCES, "none")


@pytest.mark.parametrize("name", ["libnvrtc.so.99", "/bin/true", "/nowhere/libnvrtc.so.13"])
def test_a_choice_that_is_not_there_is_refused(monkeypatch, tmp_path, name):
    monkeypatch.setenv(CHOICE, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=rf"cuda-compiler-missing\].*what {CHOICE} names can't be used") as raised:
        device_compiler()
    assert name in raised.value.diagnostics[0].notes[0]


def test_a_library_that_is_no_nvrtc_is_passed_over(monkeypatch, nothing_installed, tmp_path, nvrtc):
    (tmp_path / "libnvrtc.so.14").write_text("not a library")
    found = [str(tmp_path / "libnvrtc.so.14"), "libc.so.6", nvrtc.path]
    monkeypatch.setattr(nvrtc_module, "libraries", lambda: iter(found))
    assert device_compiler().name == nvrtc.name


def test_a_compiler_that_is_newer_than_the_driver_is_passed_over(monkeypatch, nothing_installed, nvrtc):
    monkeypatch.setattr(nvrtc_module, "libraries", lambda: iter([nvrtc.path]))
    assert device_compiler(nvrtc.cuda).name == nvrtc.name
    with pytest.raises(BuildError, match=f"of CUDA {nvrtc.cuda}, and the driver is of CUDA {nvrtc.cuda - 1}"):
        device_compiler(nvrtc.cuda - 1)


def test_wheels_come_before_toolkits_and_newer_ones_first(monkeypatch, tmp_path):
    for path in ("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "site/nvidia/cu99/lib/libnvrtc.so.99",
                 "site/nvidia/cu99/lib/libnvrtc.alt.so.99", "home/lib64/libnvrtc.so.99"):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    found = [path for path in nvrtc_module.libraries() if str(tmp_path) in path]
    assert [path.removeprefix(f"{tmp_path}/") for path in found] == [
        "site/nvidia/cu99/lib/libnvrtc.so.99", "home/lib64/libnvrtc.so.99", "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    ]  # fmt: skip


def test_the_finder_of_cupy_is_asked(monkeypatch, tmp_path):
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "pathfinder.py").write_text(
        "class Found:\n    abs_path = '/elsewhere/libnvrtc.so.13'\n\n\n"
        "def load_nvidia_dynamic_lib(name):\n    assert name == 'nvrtc'\n    return Found\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name == "cuda" or name.startswith("cuda.")]:
        monkeypatch.delitem(sys.modules, name)
    assert list(nvrtc_module.libraries())[-1] == "/elsewhere/libnvrtc.so.13"
    sys.modules.pop("cuda.pathfinder")
    sys.modules.pop("cuda")


def test_toolkits_are_those_of_the_environment_and_the_usual_one(monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/a")
    monkeypatch.setenv("CUDA_PATH", "/b")
    assert [os.fspath(path) for path in nvrtc_module.toolkits()] == ["/a", "/b", "/usr/local/cuda"]


def test_a_cubin_says_what_it_is_for_and_not_its_bytes():
    assert repr(Cubin(SM_90, b"bytes", "NVRTC 13.0.88", 13)) == (
        "Cubin(arch=Arch(major=9, minor=0), compiler='NVRTC 13.0.88', cuda=13)"
    )


GPUS = (Arch(7, 5), Arch(8, 0), Arch(8, 6), Arch(8, 9), Arch(9, 0), Arch(10, 0), Arch(10, 3), Arch(12, 0), Arch(12, 1))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sm_90", "sm_90"), (["sm_100", "sm_90"], "sm_90, sm_100"), ("sm_90, sm_75,sm_90", "sm_75, sm_90"),
        (["sm_80,sm_121", "sm_75"], "sm_75, sm_80, sm_121"), ("none", "none"), ([], "none"), ("", "none"),
    ],
)  # fmt: skip
def test_lists_are_sorted_and_have_each_once(given, expected):
    assert listed(parse_archs(given)) == expected


@pytest.mark.parametrize("name", ["90", "sm90", "sm_9", "sm_90a", "compute_90", "SM_90", "sm_1234", "sm_09", "sm_٩٠"])
def test_other_words_are_no_architectures(name):
    with pytest.raises(BuildError, match=r"sm_90, which is compute capability 9\.0") as raised:
        parse_archs(name)
    assert raised.value.diagnostics[0].id == "unknown-arch"


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [("sm_80", "sm_86", True), ("sm_86", "sm_80", False), ("sm_80", "sm_90", False), ("sm_90", "sm_90", True)],
)
def test_code_runs_on_its_generation_from_its_version_on(code, gpu, runs):
    (of,), (on,) = parse_archs(code), parse_archs(gpu)
    assert of.runs_on(on) == runs
    assert arch_for(on, [of]) == (of if runs else None)


@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_the_usual_ones_run_on_all_usual_gpus(gpu):
    assert arch_for(gpu, USUAL) == Arch(gpu.major, 5 if gpu.major == 7 else 0)


def test_the_newest_that_runs_is_chosen():
    assert arch_for(Arch(8, 9), [Arch(8, 0), Arch(8, 6), Arch(9, 0)]) == Arch(8, 6)
    assert arch_for(Arch(7, 0), USUAL) is None
