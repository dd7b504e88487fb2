"""Vector lanes compute the same bits as code without, on any processor."""

from __future__ import annotations

import subprocess
from pathlib import Path

from zenc.codegen.build.toolchain import FLAGS, NATIVE, toolchain
from zenc.codegen.render import include_dirs

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
