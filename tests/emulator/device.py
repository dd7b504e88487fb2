"""Kernels on numpy arrays, launched one at a time.

device = Device(render(Contiguous, "cuda"))
device.launch("zenc_scan", grid=(4, 1), arguments=[numbers, len(numbers), work])
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.emulator.build import engine, kernels
from zenc.wire.constants import TABLE_WORDS, THREADS
from zenc.wire.structs import SEGMENT, ctypes_fields

Argument = Any
"""A contiguous array (its address), one of a ctypes type such as ``Segment * 3``, an integer, a ByValue, or None."""


class Segment(ctypes.Structure):
    """Fields of SEGMENT; addresses are integers, or None."""

    _fields_ = ctypes_fields(SEGMENT)


class ByValue(ctypes.Structure):
    """An argument that kernels get by value; it keeps the ``arrays`` that it points to alive."""

    arrays: Sequence[np.ndarray] = ()


class Partition(ByValue):
    """A tensor in parts, as kernels get it by value (``zenc/geometry.h``)."""

    _fields_ = (("numbers", ctypes.c_uint64 * 14), ("tables", ctypes.c_void_p))


class IndexSets(ByValue):
    """The index sets of all ranks as kernels get them by value (``zenc/launch.h``)."""

    _fields_ = (
        *(("sets", ctypes.c_void_p), ("ranks", ctypes.c_uint64), ("words", ctypes.c_uint64), ("far", ctypes.c_void_p)),
        *((name, ctypes.c_void_p) for name in ("several", "owners", "starts")),
    )


class LaunchError(Exception):
    """The emulator's words about a launch that failed."""


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("parameters", ctypes.c_char_p), ("count", ctypes.c_int),
        ("sizes", ctypes.c_void_p), ("call", ctypes.c_void_p),
    )  # fmt: skip


class Device:
    """The kernels of ``sources`` (file name -> CUDA C++), compiled or found in the cache. Raises CompileError."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._engine = ctypes.CDLL(str(engine()))
        self._library = ctypes.CDLL(str(kernels(sources, os.environ.get("EMULATOR_MODE", "plain"))))

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        arguments: Sequence[Argument],
        threads: int = THREADS,
        seed: int | None = None,
    ) -> None:
        """Run the kernel ``name`` on ``grid`` blocks of ``threads`` threads, and wait for it.

        Arrays are read and written where they lie, tables too: none is by value. With a ``seed`` above 0 threads run in
        an order drawn from it;
        it is ``$EMULATOR_SEED`` if none is given. Raises LaunchError for errors of the kernel, TypeError for
        arguments that it does not take.
        """
        kernel = _Kernel.in_dll(self._library, f"emulator_kernel_{name}")
        words = self._words(kernel, arguments)
        blocks = (ctypes.c_uint * 3)(*grid, *[1] * (3 - len(grid)))
        drawn = int(os.environ.get("EMULATOR_SEED") or 0) if seed is None else seed
        shape = (ctypes.c_uint * 3)(threads, 1, 1)
        if not self._engine.emulator_run(ctypes.byref(kernel), blocks, shape, words, ctypes.c_uint64(drawn)):
            text = ctypes.create_string_buffer(4096)
            self._engine.emulator_take_error(text, len(text))
            raise LaunchError(text.value.decode())

    @staticmethod
    def _words(kernel: _Kernel, arguments: Sequence[Argument]) -> ctypes.Array[ctypes.c_uint64]:
        text = kernel.parameters.decode()
        parameters = text.strip("()").split(",") if text != "()" else []
        tables = [0] * TABLE_WORDS if text.endswith("ZENC_TABLES)") else []
        parameters = parameters[:-1] if tables else parameters
        if len(arguments) != len(parameters):
            raise TypeError(f"{kernel.name.decode()}{text} takes {len(parameters)} arguments, not {len(arguments)}")
        words: list[int] = []
        for argument, parameter in zip(arguments, parameters, strict=True):
            words += _words(argument, parameter.strip())
        words += tables
        return (ctypes.c_uint64 * max(len(words), 1))(*words)


def _words(argument: Argument, parameter: str) -> list[int]:
    if isinstance(argument, ByValue) and type(argument).__name__ in parameter:
        return list((ctypes.c_uint64 * (ctypes.sizeof(argument) // 8)).from_buffer(argument))
    return [_word(argument, parameter)]


def _word(argument: Argument, parameter: str) -> int:
    """Return the 8 bytes of ``argument``. Raise TypeError if it is a number for a pointer, or the reverse."""
    pointer = "*" in parameter
    if argument is None and pointer:
        return 0
    if isinstance(argument, np.ndarray) and pointer:
        if not argument.flags.c_contiguous:
            raise TypeError(f"the array for {parameter} is not contiguous")
        return int(argument.ctypes.data)
    if isinstance(argument, ctypes.Array | ctypes.Structure) and pointer:
        return ctypes.addressof(argument)
    if isinstance(argument, int | np.integer) and not pointer:
        return int(argument) & 0xFFFF_FFFF_FFFF_FFFF
    raise TypeError(f"{type(argument).__name__} {argument!r} is no {parameter}")
