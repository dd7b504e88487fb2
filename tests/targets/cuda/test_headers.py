"""The headers of the CUDA target, each by itself: it includes what it uses, and no compiler warns."""

from __future__ import annotations

import subprocess

import pytest

from tests.emulator.build import INCLUDE
from zenc.codegen.build.toolchain import toolchain
from zenc.codegen.render import include_dirs, templates_dir

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
