"""Binding of the two libraries, errors of a call, and headers that stand alone and compile without warnings."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.emulator.build import INCLUDE
from tests.packaging.kernels import write
from tests.support.drivers import NCCL, compiled, driver
from tests.support.refusals import refusals
from zenc.codegen.build import nvrtc as nvrtc_module
from zenc.codegen.build import shipped
from zenc.codegen.build.arch import Arch
from zenc.codegen.build.gpu_kernels import Cubin, cubins
from zenc.codegen.build.toolchain import toolchain
from zenc.codegen.render import include_dirs, templates_dir
from zenc.errors import ArtifactError, BuildError, SynchronisationError, TensorError
from zenc.runtime.gpu import device
from zenc.runtime.gpu import driver as module
from zenc.runtime.gpu.call_args import CallArgs, failure_of
from zenc.runtime.gpu.device import images_of, kernels_for
from zenc.runtime.gpu.driver import Driver, GpuInfo, find_nccl
from zenc.wire.constants import CallOutcome

STRICT = ("-std=c++17", "-O1", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
API = (templates_dir() / "cuda" / "zenc_host" / "driver.h").read_text()
CALLS = re.findall(r"X\([^,]+, (\w+),", API)


def compile_library(folder: Path, name: str, text: str) -> Path:
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text)
    includes = [f"-I{path}" for path in include_dirs("cuda")]
    subprocess.run([*toolchain().command, *STRICT, *includes, str(source), "-o", str(library)], check=True)
    return library


def library_of(calls: list[str], init: int = 0) -> str:
    """Compile a library that exports ``calls``; all do nothing."""
    special = {
        "cuInit": f"int cuInit(unsigned) {{ return {init}; }}",
        "cuGetErrorName": 'int cuGetErrorName(int, const char** name) { *name = "CUDA_ERROR_NO_DEVICE"; return 0; }',
    }
    functions = [special.get(name, f"int {name}() {{ return 0; }}") for name in calls]
    return 'extern "C" {\n' + "\n".join(functions) + "\n}\n"


@pytest.fixture(scope="module")
def binder(tmp_path_factory):
    path = compile_library(tmp_path_factory.mktemp("binder"), "binder", '#include "zenc_host/queue.h"\n')

    def bind(cuda: object, nccl: object) -> str:
        """Return the error of binding, or nothing."""
        error = ctypes.create_string_buffer(200)
        paths = [None if path is None else str(path).encode() for path in (cuda, nccl)]
        return "" if ctypes.CDLL(str(path)).zenc_bind(*paths, error, 200) else error.value.decode()

    return bind


def test_both_libraries_are_bound(binder, tmp_path):
    library = compile_library(tmp_path, "both", library_of(CALLS))
    assert binder(library, library) == ""
    assert binder(library, None) == ""


def test_a_missing_library_is_named(binder, tmp_path):
    assert "/no/such/libcuda.so can't be loaded" in binder("/no/such/libcuda.so", None)
    library = compile_library(tmp_path, "both", library_of(CALLS))
    assert "libnccl_of_nobody.so can't be loaded" in binder(library, "libnccl_of_nobody.so")


@pytest.mark.parametrize("missing", ["cuLaunchKernel", "ncclRecv"])
def test_a_missing_function_is_named(binder, tmp_path, missing):
    library = compile_library(tmp_path, "lacking", library_of([name for name in CALLS if name != missing]))
    assert binder(library, library) == f"{library} has no function {missing}"


def test_a_driver_without_a_device_is_refused(binder, tmp_path):
    library = compile_library(tmp_path, "init", library_of(CALLS, init=100))
    assert binder(library, library) == f"cuInit of {library} failed: CUDA_ERROR_NO_DEVICE"


def test_the_configuration_is_that_of_nccl_2_18(tmp_path):
    """Offsets are those of ``nccl.h`` of that version, and later versions only add fields."""
    fields = ["size", "magic", "version", "blocking", "cgaClusterSize", "minCTAs", "maxCTAs", "netName", "splitShare"]
    offsets = ", ".join(f"offsetof(zenc::ncclConfig_t, {field})" for field in fields)
    text = (
        '#include <cstddef>\n#include "zenc_host/driver.h"\nextern "C" ZENC_EXPORT const unsigned long offsets[] = '
        f'{{{offsets}}};\nextern "C" ZENC_EXPORT const zenc::ncclConfig_t made{{}};\n'
    )
    library = ctypes.CDLL(str(compile_library(tmp_path, "configuration", text)))
    found = list((ctypes.c_ulong * len(fields)).in_dll(library, "offsets"))
    assert found == [0, 8, 12, 16, 20, 24, 28, 32, 40]
    words = list((ctypes.c_uint32 * 12).in_dll(library, "made"))
    assert words[:4] == [48, 0, 0xCAFEBEEF, 21800] and words[4:8] == [1 << 31] * 4
    assert words[8:11] == [0, 0, 1 << 31], "nothing is set: blocking is, by who makes one"


OF_THE_TENSOR = (CallOutcome.OUT_OF_MEMORY, CallOutcome.BAD_UNIT, CallOutcome.NOT_OWNED, CallOutcome.NOT_CAPTURABLE)
"""Outcomes caused by the caller's tensor."""


@pytest.mark.parametrize("outcome", [outcome for outcome in CallOutcome if outcome is not CallOutcome.DONE])
def test_failures_are_errors(outcome):
    call = CallArgs(outcome=outcome, peer=3, message=b"it stopped")
    error = failure_of(call, "balanced")
    assert isinstance(error, TensorError if outcome in OF_THE_TENSOR else SynchronisationError)
    (diagnostic,) = error.diagnostics
    assert "it stopped (scheme balanced)" in diagnostic.message
    assert ("rank 3" in diagnostic.message) == (outcome is CallOutcome.DIFFERENT_CALLS)


FLAGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *(f"-I{path}" for path in include_dirs("cuda")))
KERNELS = ("-Wno-unknown-pragmas", "-include", "emulator/cuda.h", f"-I{INCLUDE}")
HOST = ("-fno-exceptions", "-fno-rtti")


def headers(folder: str) -> list[str]:
    root = templates_dir() / "cuda" / folder
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.h"))


def complaints(tmp_path, include: str, flags: tuple[str, ...]) -> str:
    """Return the compiler's complaints about a header that stands alone, twice."""
    source = tmp_path / "alone.cpp"
    source.write_text(f'#include "{include}"\n#include "{include}"\n')
    command = [*toolchain().command, *FLAGS, *flags, str(source)]
    built = subprocess.run(command, capture_output=True, text=True)
    return built.stderr[:4000] or "it failed" if built.returncode else ""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("header", headers("zenc_cuda"))
def test_kernel_headers(tmp_path, header):
    assert complaints(tmp_path, f"zenc_cuda/{header}", KERNELS) == ""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("header", headers("zenc_host"))
def test_host_headers(tmp_path, header):
    assert complaints(tmp_path, f"zenc_host/{header}", HOST) == ""


SOURCES = {"kernels.cu": 'extern "C" __global__ void answer(long long* out) { *out = 42; }\n'}
SHIPPED = tuple(Cubin(arch, str(arch).encode(), "NVRTC 13.0.88", 13) for arch in (Arch(8, 0), Arch(8, 6), Arch(9, 0)))


def gpu(major: int, minor: int) -> GpuInfo:
    return GpuInfo(0, "NVIDIA Test", Arch(major, minor))


def made_driver(cuda: int) -> SimpleNamespace:
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
    made = kernels_for(gpu(9, 0), made_driver(nvrtc.cuda), SOURCES, SHIPPED)
    assert made.image.startswith(b"\x7fELF") and (made.arch, made.compiler) == (Arch(9, 0), nvrtc.name)
    of_a_gpu_to_come = kernels_for(gpu(8, 99), made_driver(nvrtc.cuda), SOURCES)
    assert of_a_gpu_to_come.arch == max(arch for arch in nvrtc.archs if arch.major == 8)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(("on", "expected"), [((8, 0), "sm_80"), ((8, 9), "sm_86"), ((9, 0), "sm_90")])
def test_else_they_are_those_of_the_artifact(on, expected):
    assert kernels_for(gpu(*on), made_driver(13), SOURCES, SHIPPED).image == expected.encode()


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(("on", "cuda"), [((10, 0), 13), ((7, 5), 13), ((9, 0), 12)])
def test_what_is_not_there_is_told_with_what_is(on, cuda):
    (found,) = refusals(ArtifactError, kernels_for, gpu(*on), made_driver(cuda), SOURCES, SHIPPED)
    arch = Arch(*on)
    assert found.id == "wrong-arch"
    assert found.message == f"there are no kernels for NVIDIA Test, which is {arch}, under a driver of CUDA {cuda}"
    assert found.notes[0] == "the artifact has: sm_80 (CUDA 13), sm_86 (CUDA 13), sm_90 (CUDA 13)"
    assert f"--arch {arch}" in found.help and f"zenc[cuda{cuda}]" in found.help


def test_a_compiler_that_does_not_know_the_gpu_is_told_too(nvrtc):
    with pytest.raises(ArtifactError, match=f"note: {nvrtc.name} compiles for sm_75, .* only") as raised:
        kernels_for(gpu(7, 0), made_driver(nvrtc.cuda), SOURCES)
    assert raised.value.diagnostics[0].notes[0] == "the artifact has: none"


def test_a_compiler_that_is_newer_than_the_driver_leaves_it_to_the_artifact(nvrtc, monkeypatch):
    monkeypatch.setenv(nvrtc_module.CHOICE, "")
    monkeypatch.setattr(nvrtc_module, "libraries", lambda: iter([nvrtc.path]))
    old = Cubin(Arch(9, 0), b"old", "NVRTC 12.9.86", nvrtc.cuda - 1)
    nvrtc_module._found.cache_clear()
    assert kernels_for(gpu(9, 0), made_driver(nvrtc.cuda - 1), SOURCES, (old, *SHIPPED)) is old
    nvrtc_module._found.cache_clear()


MODULES = ("A", "B_32", "C_16", "D_16", "CODES_F32")
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


def images(gpu_driver: SimpleNamespace):
    plan = SimpleNamespace(phases=(), feedback=None)
    artifact = SimpleNamespace(gpu_sources=lambda: {"kernels.cu": TEXT}, plan=plan, cubins=())
    return images_of(artifact, gpu(9, 0), gpu_driver)


def kernels_in(image: bytes) -> set[str]:
    return {name for name in MODULES if f".text.zenc_{name}\0".encode() in image}


def test_modules_are_compiled_ahead_for_float32_and_for_other_types_once_they_are_used(nvrtc, begun):
    """Without a code nothing compiles codes ahead."""
    image, usual = images(made_driver(nvrtc.cuda)), ("A", "B_32")
    assert begun == [usual]
    assert kernels_in(image("zenc_A")) == {"A"} and begun[1:] == [usual]
    assert kernels_in(image("zenc_D_16")) == {"D_16"} and begun[2:] == [("C_16", "D_16")]


def test_what_was_compiled_in_advance_is_found_in_the_cache(nvrtc, begun):
    (whole,) = cubins({"kernels.cu": TEXT}, "sm_90")
    image = images(made_driver(nvrtc.cuda))
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
    assert kernels_in(images(made_driver(nvrtc.cuda))("zenc_A")) == set(MODULES) and begun == []
    with pytest.raises(ArtifactError, match="wrong-arch"):
        images(made_driver(nvrtc.cuda - 1))("zenc_A")


def refused(raised) -> str:
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.help
    return f"{diagnostic.id}: {diagnostic.message}"


def test_gpus_are_named_with_their_architectures(tmp_path):
    found = Driver(driver(tmp_path, 13020))
    assert found.cuda == 13
    assert [found.gpu(ordinal) for ordinal in (0, 1)] == [
        GpuInfo(0, "GPU nought", Arch(9, 0)), GpuInfo(1, "GPU one", Arch(8, 9)),
    ]  # fmt: skip


def test_a_gpu_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    for ordinal in (2, -1):
        with pytest.raises(BuildError) as raised:
            Driver(driver(tmp_path)).gpu(ordinal)
        expected = f"there is no GPU {ordinal}: this process sees 2, counted from 0 (CUDA_VISIBLE_DEVICES=4,5)"
        assert refused(raised) == f"no-such-gpu: {expected}"


@pytest.mark.parametrize(
    ("version", "init", "expected"),
    [
        (11080, 0, r"the driver .* is of CUDA 11\.8; zenc needs 12\.0"),
        (13000, 100, "the CUDA driver finds no GPU"),
        (13000, 999, "cuInit of the CUDA driver failed: CUDA_ERROR_UNKNOWN"),
        (13000, 998, "cuInit of the CUDA driver failed: error 998"),
    ],
)
def test_a_driver_that_can_not_be_used(tmp_path, version, init, expected):
    with pytest.raises(BuildError) as raised:
        Driver(driver(tmp_path, version, init))
    assert re.fullmatch(f"cuda-unavailable: {expected}", refused(raised))


def test_no_driver(tmp_path):
    with pytest.raises(BuildError) as raised:
        Driver("libcuda_of_nobody.so.1")
    assert refused(raised).startswith("cuda-unavailable: there is no CUDA driver: libcuda_of_nobody.so.1: cannot open")
    with pytest.raises(BuildError, match="there is no CUDA driver"):
        Driver(compiled(tmp_path, "libother.so", NCCL, VERSION=1))


def test_a_child_that_was_forked_is_told_so(tmp_path, monkeypatch):
    """Either our own count of processes or the driver's answer in a child tells it."""
    found = Driver(driver(tmp_path))
    monkeypatch.setattr(module, "_started", lambda: found)
    assert module.driver().gpu(0).ordinal == 0
    child = os.fork()
    if child == 0:
        try:
            module.driver()
        except BuildError as error:
            os._exit(7 if error.diagnostics[0].id == "forked" else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(BuildError) as raised:
        Driver(driver(tmp_path, init=3))
    assert refused(raised).startswith("forked: ")


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """Puts an NCCL of some version where the wheel has it; there is no other."""

    def install(version: int) -> str:
        path = compiled(tmp_path, f"site{version}/nvidia/nccl/lib/libnccl.so.2", NCCL, VERSION=version)
        monkeypatch.setattr(module, "candidates", lambda _name: iter([Path(path)]))
        return path

    monkeypatch.setattr(module, "candidates", lambda _name: iter(()))
    monkeypatch.setattr(module, "_is_loaded", lambda _name: False)
    return install


def test_nccl_of_the_wheel(wheels):
    path = wheels(22809)
    assert (find_nccl().path, find_nccl().version) == (path, 22809)


def test_an_nccl_that_is_too_old(wheels):
    path = wheels(22705)
    with pytest.raises(BuildError) as raised:
        find_nccl()
    assert refused(raised) == f"cuda-unavailable: {path} is NCCL 2.27.5; zenc needs 2.28.0 or a newer one"


def test_no_nccl(wheels, monkeypatch):
    monkeypatch.setattr(module, "NCCL", "libnccl_of_nobody.so.2")
    with pytest.raises(BuildError) as raised:
        find_nccl()
    assert refused(raised).startswith("cuda-unavailable: there is no NCCL: libnccl_of_nobody.so.2: cannot open")


def test_the_nccl_that_is_loaded_comes_first(tmp_path):
    """A separate process loads it, since a loaded library stays loaded."""
    path = compiled(tmp_path, "libnccl.so.2", NCCL, VERSION=23007)
    code = (
        "import ctypes\nfrom zenc.runtime.gpu.driver import _is_loaded, find_nccl\n"
        f"assert not _is_loaded('libnccl.so.2')\nctypes.CDLL({path!r})\nprint(find_nccl())\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "Nccl(path='libnccl.so.2', version=23007)\n"
