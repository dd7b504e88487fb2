"""Both ways to switch stacks: assembly on x86-64, and POSIX contexts on other processors."""

from __future__ import annotations

import subprocess

import pytest

from tests.emulator.build import HERE, program


@pytest.mark.parametrize(("mode", "flags"), [("plain", ()), ("address", ()), ("plain", ("-DEMULATOR_PORTABLE",))])
def test_fibers_take_turns(mode, flags):
    fibers = program(HERE / "programs" / "fibers.cpp", mode, [*flags, str(HERE / "engine" / "fiber.cpp")])
    ran = subprocess.run([fibers], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("a0.5 b0.5 a1.5 b1.5 a0.5 b2.5 ", "")
