"""Errors from CUDA's driver and NCCL, or about their absence, come first. Both are libraries of a few lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.drivers import NCCL, compiled, driver
from zenc.codegen.build.arch import Arch
from zenc.errors import BuildError
from zenc.runtime.gpu import driver as module
from zenc.runtime.gpu.driver import Driver, GpuInfo, find_nccl


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
