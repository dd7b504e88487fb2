"""Binding of the two libraries, errors of a call, and headers that stand alone and compile without warnings."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from tests.emulator.build import INCLUDE
from zenc.codegen.build.toolchain import toolchain
from zenc.codegen.render import include_dirs, templates_dir
from zenc.errors import SynchronisationError, TensorError
from zenc.runtime.gpu.call_args import CallArgs, failure_of
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
