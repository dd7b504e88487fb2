"""The headers under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from zenc.codegen.templates import include_dirs
from zenc.codegen.toolchain import toolchain

FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def test_no_kernel_leaves_its_buffers(tmp_path):
    source = Path(__file__).with_name("sanitized.cpp")
    includes = [f"-I{folder}" for folder in include_dirs("cpu")]
    program = tmp_path / "sanitized"
    command = [*toolchain().command, *FLAGS, *SANITIZERS, *includes, str(source), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run([program], capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr[:4000]
