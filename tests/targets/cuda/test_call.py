"""The argument block has one layout in C++ and in Python; each way to fail has an error that says what to do."""

from __future__ import annotations

import ctypes
import subprocess

import pytest

from zenc.codegen.build.toolchain import toolchain
from zenc.codegen.templates import include_dirs
from zenc.errors import SynchronisationError, TensorError
from zenc.runtime.gpu.call_args import CallArgs, CallOutcome, PhaseCount, failure_of


def fields_of(structure: type[ctypes.Structure]) -> list[str]:
    return [field[0] for field in structure._fields_]


def test_layouts_are_the_same(tmp_path):
    asked = [(structure.__name__, name) for structure in (PhaseCount, CallArgs) for name in fields_of(structure)]
    offsets = "".join(f'std::printf("%zu\\n", offsetof(zenc::{kind}, {name}));\n' for kind, name in asked)
    sizes = "".join(f'std::printf("%zu\\n", sizeof(zenc::{kind}));\n' for kind in ("PhaseCount", "Call"))
    source, program = tmp_path / "layout.cpp", tmp_path / "layout"
    includes = "#include <cstddef>\n#include <cstdio>\n" + '#include "zenc_host/call/call_args.h"\n'
    source.write_text(f"{includes}int main() {{\n{offsets}{sizes}}}\n")
    paths = [f"-I{path}" for path in include_dirs("cuda")]
    subprocess.run([*toolchain().command, "-std=c++17", *paths, str(source), "-o", str(program)], check=True)
    found = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    structures = {"PhaseCount": PhaseCount, "Call": CallArgs}
    wanted = [getattr(structures[kind], name).offset for kind, name in asked]
    assert [int(number) for number in found] == [*wanted, ctypes.sizeof(PhaseCount), ctypes.sizeof(CallArgs)]


def test_outcomes_are_the_same(tmp_path):
    source, program = tmp_path / "outcomes.cpp", tmp_path / "outcomes"
    prints = "".join(
        f'std::printf("%lld\\n", static_cast<long long>(zenc::{outcome.name}));\n' for outcome in CallOutcome
    )
    source.write_text(f'#include <cstdio>\n#include "zenc_host/call/call_args.h"\nint main() {{\n{prints}}}\n')
    paths = [f"-I{path}" for path in include_dirs("cuda")]
    subprocess.run([*toolchain().command, "-std=c++17", *paths, str(source), "-o", str(program)], check=True)
    found = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert [int(number) for number in found] == [outcome.value for outcome in CallOutcome]


@pytest.mark.parametrize("outcome", [outcome for outcome in CallOutcome if outcome is not CallOutcome.DONE])
def test_failures_are_errors(outcome):
    call = CallArgs(outcome=outcome, peer=3, message=b"it stopped")
    error = failure_of(call, "balanced")
    of_the_tensor = outcome in (CallOutcome.OUT_OF_MEMORY, CallOutcome.BAD_UNIT, CallOutcome.NOT_CAPTURABLE)
    assert isinstance(error, TensorError if of_the_tensor else SynchronisationError)
    (diagnostic,) = error.diagnostics
    assert "it stopped (scheme balanced)" in diagnostic.message
    assert ("rank 3" in diagnostic.message) == (outcome is CallOutcome.DIFFERENT_CALLS)
