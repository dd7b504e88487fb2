"""The example that launches one kernel, by the emulator's driver in place of CuPy and a GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.emulator.build import kernels
from tests.emulator.libraries import Libraries
from zenc.codegen.build import gpu_kernels
from zenc.codegen.build.arch import Arch
from zenc.runtime.gpu.device import unit_with

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kernel" / "greatest.py"


class RawModule:
    """CuPy's RawModule on the emulator: its driver loads the file, and arrays are in the host's memory."""

    def __init__(self, *, path: str) -> None:
        self.libraries = Libraries()
        self.libraries.make_current(0)
        self.module = self.libraries.new("cuModuleLoadData", Path(path).read_bytes())

    def get_function(self, name: str) -> Any:
        function = self.libraries.new("cuModuleGetFunction", self.module, name.encode())

        def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            words = [
                ctypes.c_int64(a.ctypes.data if isinstance(a, np.ndarray) and a.ndim else int(a)) for a in arguments
            ]
            pointers = (ctypes.c_void_p * len(words))(*(ctypes.addressof(word) for word in words))
            sizes = [*grid, 1, 1][:3], [*block, 1, 1][:3]
            self.libraries.call("cuLaunchKernel", function, *sizes[0], *sizes[1], 0, 0, pointers, None)
            self.libraries.call("cuStreamSynchronize", 0)

        return launch


def test_one_kernel_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(compute_capability="90")
    cupy = SimpleNamespace(
        RawModule=RawModule, empty=np.empty, float32=np.float32, cuda=SimpleNamespace(Device=lambda: device)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)

    def chosen(sources: dict[str, str], *_: object) -> gpu_kernels.Cubin:
        path = kernels(unit_with("zenc_row_magnitudes_f32", sources)[0])
        return gpu_kernels.Cubin(Arch(9, 0), bytes(path) + b"\0", "the emulator", 13)

    monkeypatch.setattr(gpu_kernels, "_chosen", chosen)
    spec = importlib.util.spec_from_file_location("greatest", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    matrix = np.random.default_rng(0).standard_normal((77, 45), dtype=np.float32)
    assert np.array_equal(example.greatest_of_rows(matrix), abs(matrix).max(axis=1))
