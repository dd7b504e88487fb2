"""Vector lanes compute the same bits as code without, on any processor."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from zenc.codegen.build.toolchain import FLAGS, NATIVE, toolchain
from zenc.codegen.render import include_dirs

SOURCE = Path(__file__).with_name("lanes.cpp")
FOR_LIBRARIES = {"-shared", "-fPIC"}


def digest(folder: Path, *extra: str) -> str:
    """Return the program's output, after it has compared all results with plain loops."""
    program = folder / "lanes"
    flags = [flag for flag in FLAGS if flag not in FOR_LIBRARIES]
    includes = [f"-I{folder}" for folder in include_dirs("cpu")]
    command = [*toolchain().command, *extra, *flags, "-Werror", *includes, str(SOURCE), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run([program], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_lanes_and_loops_give_the_same_bits(tmp_path):
    native = [flag for flag in toolchain().flags if flag == NATIVE]
    assert digest(tmp_path, *native) == digest(tmp_path)
