"""Kernels on numpy arrays, launched one by one by CUDA's driver, as in ``tests/emulator/device.py``."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from tests.emulator.device import ByValue, LaunchError
from tests.emulator.libraries import Failed, Libraries
from tests.gpu.machine import Machine
from tests.gpu.mirror import Mirror
from zenc.wire.constants import TABLE_WORDS, THREADS


class GpuDevice:
    """The kernels of ``sources`` (file name -> CUDA C++), compiled for the device of ``machine``."""

    def __init__(self, sources: Mapping[str, str], machine: Machine) -> None:
        self._libraries = Libraries(machine.cuda)
        self._libraries.make_current(machine.device(0))
        self._module = self._libraries.new("cuModuleLoadData", machine.image(sources))
        self._stream = self._libraries.new("cuStreamCreate", 1)
        self._ordinal = machine.device(0)

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        arguments: Sequence[Any],
        threads: int = THREADS,
        seed: int | None = None,
    ) -> None:
        """Run the kernel ``name`` on copies of ``arguments``, and write back what it has changed.

        Arguments are those of the emulator's, which also compares them with the kernel's parameters; the order of
        threads is the device's, whatever ``seed`` says. Raise LaunchError.
        """
        self._libraries.make_current(self._ordinal)
        function = self._libraries.new("cuModuleGetFunction", self._module, name.encode())
        mirror = Mirror(self._libraries, self._stream, arguments)
        try:
            self._run(function, grid, threads, mirror.words)
            mirror.fetch()
        except Failed as failed:
            raise LaunchError(f"{name}: {failed}") from failed
        finally:
            mirror.free()

    def _run(self, function: int, grid: tuple[int, ...], threads: int, words: Sequence[int | ByValue]) -> None:
        values: list[Any] = [word if isinstance(word, ByValue) else ctypes.c_uint64(word) for word in words]
        values.append((ctypes.c_uint64 * TABLE_WORDS)())  # CUDA reads it for kernels that take tables
        parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        blocks = (*grid, 1, 1)[:3]
        self._libraries.call("cuLaunchKernel", function, *blocks, threads, 1, 1, 0, self._stream, parameters, None)
        self._libraries.call("cuStreamSynchronize", self._stream)
