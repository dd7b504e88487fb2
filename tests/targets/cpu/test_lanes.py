"""Vector lanes compute the same bits as code without, and headers are clean under sanitizers, on any processor."""

import subprocess
from pathlib import Path

import pytest

from tests.emulator.sanitized import assert_clean
from zenc.codegen.build.toolchain import FLAGS, NATIVE, toolchain
from zenc.codegen.render import include_dirs, templates_dir

SOURCE = Path(__file__).with_name("lanes.cpp")
FOR_LIBRARIES = {"-shared", "-fPIC"}


def digest(folder: Path, native: bool = True) -> str:
    """Return the program's output, after it has compared all results with plain loops."""
    extra = [flag for flag in toolchain().flags if flag == NATIVE and native]
    program = folder / "lanes"
    flags = [flag for flag in FLAGS if flag not in FOR_LIBRARIES]
    includes = [f"-I{folder}" for folder in include_dirs("cpu")]
    command = [*toolchain().command, *extra, *flags, "-Werror", *includes, str(SOURCE), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run([program], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_lanes_give_the_bits_of_loops_and_of_any_processor(tmp_path):
    assert digest(tmp_path) == digest(tmp_path, native=False)


STRICT_FLAGS = ["-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
UNOPTIMISED = "-O0"
"""Compiler options: -O1 takes the compiler three times as long."""
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(NATIVE, "-DTRY_FEW"), (NATIVE,), ()], ids=["few", "this", "any"])
def test_no_kernel_leaves_its_buffers(tmp_path, flags):
    """Kernels are built for this processor, and for any; a few types first."""
    source, program = Path(__file__).with_name("sanitized.cpp"), tmp_path / "program"
    includes = [f"-I{folder}" for folder in include_dirs("cpu")]
    command = [*toolchain().command, *STRICT_FLAGS, UNOPTIMISED, *flags, *SANITIZERS, *includes]
    built = subprocess.run([*command, str(source), "-o", str(program)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run([program], capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr[:4000]


COMPRESSION = ("targets/cpu/test_compress", "runtime/lossy/test_codes", "runtime/lossy/test_linear")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_kernel_of_compression_leaves_its_buffers():
    command = " ".join([*toolchain().command, *SANITIZERS])
    assert_clean("address", *(f"tests/{tests}.py" for tests in COMPRESSION), CXX=command)


SHARED = sorted(path.name for path in (templates_dir() / "shared" / "zenc").glob("*.h"))


@pytest.mark.parametrize("header", SHARED)
def test_shared_headers_need_no_standard_library(tmp_path, header):
    source = tmp_path / "alone.cpp"
    source.write_text(f'#include "zenc/{header}"\n#include "zenc/{header}"\n')
    command = [*toolchain().command, "-nostdinc", "-nostdinc++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic"]
    built = subprocess.run(
        [*command, "-Werror", "-fsyntax-only", *(f"-I{path}" for path in include_dirs("cpu")), str(source)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr[:4000]


ROOT = templates_dir() / "cpu" / "zenc_cpu"
CPU = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.h"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("header", CPU)
def test_every_header_includes_what_it_uses(tmp_path, header):
    source = tmp_path / "alone.cpp"
    source.write_text(f'#include "zenc_cpu/{header}"\n')
    includes = [f"-I{folder}" for folder in include_dirs("cpu")]
    command = [*toolchain().command, *STRICT_FLAGS, *includes, "-fsyntax-only", str(source)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
