"""Kernels on numpy arrays, launched one by one by CUDA's driver, as in ``tests/emulator/device.py``.

Arrays and tables of ctypes are copied to the device's memory for a launch. A table knows the arrays that its pointers
lead into (``arrays``), and so its copy points to theirs. Ranges of the host that overlap are one range on the device,
and every range keeps its place within ALIGNMENT bytes: data aligned on the host is aligned there, and no better.
"""

import bisect
import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.emulator.device import ByValue, LaunchError
from tests.emulator.libraries import Failed, Libraries
from tests.gpu.machine import Machine
from zenc.wire.constants import TABLE_WORDS, THREADS

ALIGNMENT = 256
Table = ctypes.Array[Any] | ctypes.Structure


class Mirror:
    """Copies of all arrays that ``arguments`` lead to. ``fetch`` brings back what kernels have written to arrays."""

    def __init__(self, libraries: Libraries, stream: int, arguments: Sequence[Any]) -> None:
        self.libraries, self.stream = libraries, stream
        tables = [each for each in arguments if isinstance(each, ctypes.Array | ctypes.Structure)]
        arrays = [each for each in arguments if isinstance(each, np.ndarray)]
        arrays += [array for table in tables for array in getattr(table, "arrays", ())]
        self.ranges = joined((array.ctypes.data, array.nbytes) for array in arrays if array.nbytes)
        self.starts = [start for start, _ in self.ranges]
        self.owned: list[int] = []
        self.copies = [self._copy(start, size) for start, size in self.ranges]
        self.words = [self._word(argument) for argument in arguments]

    def _copy(self, start: int, size: int) -> int:
        """Copy to memory of its own, so that a tool notices accesses outside; return the address."""
        shift = start % ALIGNMENT
        self.owned.append(self.libraries.new("cuMemAlloc_v2", shift + size))
        self.libraries.copy(self.owned[-1] + shift, start, size, self.stream)
        return self.owned[-1] + shift

    def _word(self, argument: Any) -> int | ByValue:
        if isinstance(argument, ByValue):
            return self._led(argument)
        if isinstance(argument, np.ndarray):
            return self.address(argument.ctypes.data) if argument.nbytes else 0
        if isinstance(argument, ctypes.Array | ctypes.Structure):
            return self._table(argument)
        return 0 if argument is None else int(argument) & 0xFFFF_FFFF_FFFF_FFFF

    def _table(self, table: Table) -> int:
        copy = self._led(table)
        return self._copy(ctypes.addressof(copy), ctypes.sizeof(copy))

    def _led(self, table: Table) -> Any:
        """Return a copy on the host, whose pointers lead to copies on the device."""
        copy = type(table).from_buffer_copy(table)
        for entry in [copy] if isinstance(copy, ctypes.Structure) else copy:
            for name, kind, *_ in getattr(entry, "_fields_", ()):
                if kind is ctypes.c_void_p and getattr(entry, name):
                    setattr(entry, name, self.address(getattr(entry, name)))
        return copy

    def address(self, host: int) -> int:
        """Return the address of the copy of the byte at ``host``, or none for an empty array."""
        at = bisect.bisect(self.starts, host) - 1
        if at < 0 or host >= self.starts[at] + self.ranges[at][1]:
            return 0
        return self.copies[at] + host - self.starts[at]

    def fetch(self) -> None:
        for (start, size), copy in zip(self.ranges, self.copies, strict=True):
            self.libraries.copy(start, copy, size, self.stream)

    def free(self) -> None:
        for address in self.owned:
            self.libraries.call("cuMemFree_v2", address)


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges as (start, size), ascending, with overlapping ones joined."""
    found: list[tuple[int, int]] = []
    for start, size in sorted(ranges):
        if found and start < sum(found[-1]):
            first, before = found[-1]
            found[-1] = first, max(before, start + size - first)
        else:
            found.append((start, size))
    return found


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
