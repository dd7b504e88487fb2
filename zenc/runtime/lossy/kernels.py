"""Kernels of compression on CPUs, which depend on no mapping: compiled once for a version of zenc and a machine.

Arrays are addresses of contiguous memory: ``gradient`` and other ``values`` of ``dtype`` ("f32", "f16" or "bf16"),
residuals, velocities and magnitudes are float32; 0 is the address of nothing. Units are rows of
``width`` values; a row's magnitude is that of its greatest value. NaN is above infinity, and that above others.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from array import array
from ctypes import c_double
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from zenc.codegen.build.host import build_file
from zenc.errors import Diagnostic, InternalError, SynchronisationError, TensorError
from zenc.runtime.cpu.bindings import entry_points
from zenc.runtime.lossy.parameters import UnitChoice
from zenc.scheme.compression import Code, Fixed
from zenc.wire.codes import NOT_FINITE, checked_sum_bits, code_parameters, is_static, most_encoded_bytes
from zenc.wire.constants import KernelStatus


@dataclass(frozen=True, slots=True)
class Accumulated:
    """A pass of ``accumulate``: the sum of squares of the gradient, and the greatest magnitude of its result.

    ``greatest`` is NaN or infinity unless all values are finite.
    """

    squares: float
    greatest: float

    @property
    def finite(self) -> bool:
        """Return whether all values are finite."""
        return abs(self.greatest) < float("inf")


@dataclass(frozen=True, slots=True)
class Threshold:
    """The units to be taken: those above ``magnitude``, and the first ``equal`` of those equal to it.

    ``magnitude`` is the bits of a float32 without its sign.
    """

    magnitude: int
    equal: int

    @classmethod
    def of(cls, value: float) -> Threshold:
        """Return the threshold that takes every unit whose magnitude is ``value`` or more."""
        return cls(array("I", array("f", [value]).tobytes())[0] & 0x7FFFFFFF, 1 << 62)


@dataclass(frozen=True, slots=True)
class Taken:
    """A pass of a selection: the number of units taken, the sum of squares of the rest, and the last threshold."""

    count: int
    squares: float
    threshold: int = 0
    """The bits of the threshold's magnitude."""


class SharedKernels(ABC):
    """The kernels that run alike on CPUs and on GPUs, where each waits for its end."""

    @abstractmethod
    def _run(self, name: str, dtype: str | None, *arguments: float) -> None:
        """Run the kernel ``name``, that of ``dtype`` where there are several."""

    def draw_units(self, n: int, k: int, key: int, out: int) -> None:
        """Write ``out`` [k] int64, ascending: a unit of each of ``k`` stretches of the ``n``, 1 <= k <= n < 2^32 k."""
        self._run("draw_units", None, n, k, key, out)

    def take_units(
        self, dtype: str, units: int, k: int, left: int, out: int, velocity: int = 0, width: int = 1
    ) -> None:
        """Move the rows of ``units`` [k] int64 from ``left`` to ``out`` [k, width]; the loss of rounding is left."""
        self._run("take_units", dtype, left, units, k, width, out, velocity)

    def remember(self, dtype: str, n: int, result: int, beta: float, history: int) -> None:
        """Change ``history`` [n] float32 to ``beta`` * itself + (1 - ``beta``) * the magnitudes of ``result`` [n]."""
        self._run("remember", dtype, result, n, beta, history)

    def sketch(self, values: int, n: int, rows: int, cells: int, key: int, out: int) -> None:
        """Write ``out`` [rows, cells] float32: a count sketch of ``values`` [n] float32; rows <= 15, cells < 2^32.

        Cells are sums of multiples of a power of two, and rounded once. That power follows from the greatest magnitude
        of a group here: ranks add sketches as any float32, and need not share it.
        """
        self._run("sketch", None, values, n, rows, cells, key, out)

    def query_sketch(self, dtype: str, n: int, sketch: int, rows: int, cells: int, key: int, out: int) -> None:
        """Write ``out`` [n]: the median of each unit's estimates by its cells in ``sketch`` [rows, cells] float32.

        It is damped where it does not stand out of the noise of its group.
        """
        self._run("query_sketch", dtype, sketch, n, rows, cells, key, out)

    def quantise_fixed(self, code: Fixed, dtype: str, n: int, left: int, exponent: int, gradient: int) -> None:
        """Write ``gradient`` [n]: ``left`` [n] float32 as multiples of 2 ** ``exponent``; the loss is left.

        ``exponent`` is that of ``shared_exponent`` for a magnitude that no value on any rank is above.
        """
        self._run("quantise_fixed", dtype, left, n, exponent, (1 << (code.bits - 1)) - 1, gradient)

    def transform(self, values: int, n: int, chunk: int, matrix: int) -> None:
        """Multiply each ``chunk`` of ``values`` [n] float32, in place, by ``matrix`` [chunk, chunk]; n has no rest."""
        self._run("transform", None, values, n, chunk, matrix)


class CompressionKernels(SharedKernels):
    """The kernels in the shared library ``path``, which ``compression_kernels`` compiles.

    Methods that need memory raise TensorError ``out-of-memory``.
    """

    def __init__(self, path: Path) -> None:
        self._functions = entry_points(path)

    def _run(self, name: str, dtype: str | None, *arguments: float) -> None:
        self._functions[f"{name}_{dtype}" if dtype else name](*arguments)

    # ---- What there is to contribute

    def accumulate(
        self,
        dtype: str,
        n: int,
        gradient: int,
        residual: int,
        out: int,
        velocity: int = 0,
        velocity_out: int = 0,
        m: float = 0.0,
    ) -> Accumulated:
        """Write ``out`` [n] float32 = ``residual`` + ``gradient``, in one pass; ``out`` may be ``residual``.

        With ``velocity_out``, ``out`` is ``residual`` + v, where v = ``m`` * ``velocity`` + ``gradient`` is written
        there.
        """
        found = array("q", bytes(16))
        at = found.buffer_info()[0]
        self._functions[f"accumulate_{dtype}"](gradient, n, residual, out, velocity, m, velocity_out, at)
        return _accumulated(found)

    def contribute(
        self,
        dtype: str,
        n: int,
        gradient: int,
        residual: int,
        left: int,
        choice: UnitChoice,
        velocity: int = 0,
        velocity_out: int = 0,
        m: float = 0.0,
    ) -> tuple[Accumulated, Taken]:
        """Accumulate as ``accumulate`` does, and cut: ``gradient`` [n] becomes the units of ``choice``, else +0.

        ``left`` [n] float32, which is not the residual, becomes the rest, with what rounding to ``dtype`` loses.
        Velocities of units that are taken become 0.
        """
        found = array("q", bytes(40))
        into = gradient, n, residual, left, velocity, m, velocity_out
        if not self._functions[f"contribute_{dtype}"](*into, *_numbers(choice), found.buffer_info()[0]):
            _count(KernelStatus.NO_MEMORY)
        return _accumulated(found), Taken(found[2], array("d", found[3:4].tobytes())[0], found[4])

    def row_magnitudes(self, values: int, rows: int, width: int, out: int) -> None:
        """Write ``out`` [rows] float32: the greatest magnitude of each row of ``values`` [rows, width] float32."""
        self._functions["row_magnitudes"](values, rows, width, out)

    def is_finite(self, dtype: str, n: int, values: int) -> bool:
        """Return whether all of ``values`` [n] are finite."""
        return bool(self._functions[f"is_finite_{dtype}"](values, n))

    # ---- Thresholds, of float32 whose signs do not matter

    def exact_threshold(self, values: int, n: int, k: int) -> Threshold:
        """Return the threshold of exactly the ``k`` greatest of ``values`` [n], 1 <= k <= n, of equals the first."""
        return self._threshold("exact_threshold", values, n, k)

    def sampled_threshold(self, values: int, n: int, k: int, drawn: int, key: int) -> Threshold:
        """Return the exact threshold, at the same share, of ``drawn`` <= n samples (DGC, ICLR 2018, section 5)."""
        return self._threshold("sampled_threshold", values, n, k, drawn, key)

    def bisected_threshold(self, values: int, n: int, k: int, steps: int) -> Threshold:
        """Return a threshold that at least ``k`` reach, in ``steps`` halvings of magnitudes (MSTopK, MLSys 2021)."""
        return self._threshold("bisected_threshold", values, n, k, steps)

    def _threshold(self, name: str, *arguments: int) -> Threshold:
        found = array("Q", bytes(16))
        if not self._functions[name](*arguments, found.buffer_info()[0]):
            _count(KernelStatus.NO_MEMORY)
        return Threshold(found[0] & 0xFFFFFFFF, found[1])

    # ---- Selections: taken values go to `gradient`, +0 else; `left` becomes the rest

    def take(self, dtype: str, n: int, left: int, threshold: Threshold, gradient: int, velocity: int = 0) -> Taken:
        """Move the values that ``threshold`` takes from ``left`` [n] to ``gradient``; velocities become 0.

        The loss of rounding to ``dtype`` is left.
        """
        squares = c_double()
        by = threshold.magnitude, threshold.equal
        count = self._functions[f"take_{dtype}"](left, n, *by, gradient, velocity, ctypes.addressof(squares))
        return Taken(_count(count), squares.value)

    def take_rows(
        self, dtype: str, units: int, left: int, width: int, marks: int, gradient: int, velocity: int = 0
    ) -> Taken:
        """Move the rows [width] in ``marks``, as ``mark`` sets them, from ``left`` [units, width] as ``take`` does."""
        squares = c_double()
        into = gradient, velocity, ctypes.addressof(squares)
        return Taken(_count(self._functions[f"take_rows_{dtype}"](left, units, width, marks, *into)), squares.value)

    def mark(self, units: int, magnitudes: int, choice: UnitChoice, marks: int) -> int:
        """Set the bits of ``marks`` [ceil(units / 64)] uint64 of units ``choice`` takes, by ``magnitudes`` [units].

        The magnitudes, float32, become 0 where units are taken: so the next choice finds what this one left. Returns
        the last threshold: the bits of a magnitude.
        """
        return _count(self._functions["mark"](magnitudes, units, *_numbers(choice), marks))

    def mark_part(self, units: int, n: int, magnitudes: int, k: int, marks: int) -> None:
        """Set the marks of the ``k`` greatest of a part, ``units`` [n] int64, of equals the first in that order."""
        if not self._functions["mark_part"](magnitudes, units, n, k, marks):
            _count(KernelStatus.NO_MEMORY)

    def list_taken(self, values: int, n: int, threshold: Threshold, out: int) -> int:
        """Write ``out`` int64: the units of ``values`` [n] that ``threshold`` takes, ascending; return their number."""
        return int(self._functions["list_taken"](values, n, threshold.magnitude, min(threshold.equal, n), out))

    # ---- Matrices of low rank, float32: factors are [r, rows] and [r, columns]

    def orthonormalise(self, vectors: int, r: int, n: int, key: int) -> None:
        """Make ``vectors`` [r, n] orthonormal, r <= n; those that depend on others are drawn anew by ``key``.

        The modified Gram-Schmidt process, in one order: equal vectors become equal bits on every processor.
        """
        self._functions["orthonormalise"](vectors, r, n, key)

    def take_factors(
        self, dtype: str, tensors: array[int], gradient: int, residual: int, left: int, sent: int
    ) -> tuple[Accumulated, float]:
        """Accumulate as ``accumulate`` does; move what ``tensors``, one after another, send from ``left`` to ``sent``.

        ``tensors`` has five numbers of each: rows, columns, r, whether the factor is of rows, and the address of an
        orthonormal basis: [r, columns] of a factor [r, rows], else the other way round. Where r is 0 all is sent.
        Returns the sum of squares of the rest, too.
        """
        found = array("q", bytes(24))
        of = tensors.buffer_info()[0], len(tensors) // 5, gradient, residual, left, sent
        self._functions[f"take_factors_{dtype}"](*of, found.buffer_info()[0])
        return _accumulated(found), array("d", found[2:].tobytes())[0]

    def expand_factors(self, tensors: array[int], sent: int, ranks: int, out: int) -> bool:
        """Write ``out``: what ``sent``, of ``tensors`` as ``take_factors`` has them, means, divided by ``ranks``.

        Returns whether all of it is finite.
        """
        return bool(
            self._functions["expand_factors"](tensors.buffer_info()[0], len(tensors) // 5, sent, float(ranks), out)
        )

    def add_product(self, left: int, right: int, r: int, shape: tuple[int, int], sign: float, matrix: int) -> None:
        """Add ``sign`` times the product of ``left`` [r, rows], transposed, and ``right`` [r, columns] to ``matrix``.

        ``matrix`` [rows, columns] is of the ``shape``. Equal factors add equal bits on every processor.
        """
        self._functions["add_product"](left, right, r, *shape, sign, matrix)

    # ---- Codes

    def encode(
        self,
        code: Code,
        dtype: str,
        count: int,
        values: int,
        out: int,
        decoded: int = 0,
        loss: int = 0,
        key: int = 0,
        contributions: int = 1,
    ) -> int:
        """Write ``values`` [count] to ``out``, which has room for ``most_encoded_bytes``. Returns the bytes.

        ``decoded`` [count] of ``dtype``, which may be ``values``: the values that the bytes mean. Their difference to
        the values is added to ``loss`` [count] float32. ``key``: that of random words, by slot. ``fixed`` takes sums of
        ``contributions`` of multiples that ``quantise_fixed`` made, finds the power of two that all are multiples of,
        loses nothing, and writes neither ``decoded`` nor ``loss``. Raises InternalError for values that have more bits.
        """
        if not count:
            return 0
        if isinstance(code, Fixed):
            name = "encode_fixed" if is_static(code) else "encode_adaptive"
            return _exact(self._functions[f"{name}_{dtype}"](values, count, checked_sum_bits(code, contributions), out))
        by = code_parameters(code, contributions)
        return _count(self._functions[f"encode_{dtype}"](*by, key, values, count, out, decoded, loss))

    def decode(
        self, code: Code, dtype: str, count: int, data: int, size: int, values: int, contributions: int = 1
    ) -> None:
        """Write ``values`` [count] from the ``size`` bytes at ``data``.

        Raises SynchronisationError ``corrupt-segment`` for fewer bytes or more, and for bytes that no encoder writes.
        """
        most = most_encoded_bytes(code, count, contributions)
        if size != most if is_static(code) else size > most:
            raise _corrupt(code, count, f"it has {size} bytes, not {most}")
        if not count:
            return
        read, functions = size, self._functions
        if not isinstance(code, Fixed):
            functions[f"decode_{dtype}"](*code_parameters(code), data, count, values)
        elif is_static(code):
            read = functions[f"decode_fixed_{dtype}"](data, count, checked_sum_bits(code, contributions), values)
        else:
            bits = checked_sum_bits(code, contributions)
            read = functions[f"decode_adaptive_{dtype}"](data, size, count, bits, values)
        if read != size:
            raise _corrupt(code, count, "its bytes contradict each other")

    # ---- Random words

    def random_words(self, key: int, first: int, n: int, out: int) -> None:
        """Write ``out`` [n] uint32: the random words of slots from ``first`` on."""
        self._functions["random_words"](key, first, n, out)

    def philox(self, key: int, low: int, high: int, out: int) -> None:
        """Write ``out`` [4] uint32: Philox4x32-10 of a key of 64 bits and the counter ``low`` + 2^64 ``high``."""
        self._functions["philox"](key, low, high, out)


@cache
def compression_kernels() -> CompressionKernels:
    """Return the kernels, compiled when a process first needs them, unless the cache has them.

    Raises BuildError and CacheError.
    """
    return CompressionKernels(build_file("cpu/compress.cpp", scheme="compression"))


def shared_exponent(code: Fixed, greatest: float) -> int:
    """Return the exponent of the least power of two of which ``bits`` - 1 bits reach ``greatest`` >= 0, at least -149.

    The exponent is ``NOT_FINITE`` if ``greatest`` is not finite.
    """
    if not greatest < float("inf"):
        return NOT_FINITE
    numerator, denominator = greatest.as_integer_ratio()
    levels = (1 << (code.bits - 1)) - 1
    exponent = -149
    while (levels * denominator << max(exponent, 0)) < (numerator << max(-exponent, 0)):
        exponent += 1
    return exponent


def _numbers(choice: UnitChoice) -> tuple[int, int, int, int]:
    return choice.kind, choice.a, choice.b, choice.key


def _accumulated(found: array[int]) -> Accumulated:
    squares, greatest = array("d", found.tobytes())[0], array("f", found[1:].tobytes())[0]
    return Accumulated(squares, greatest)


def _count(status: int) -> int:
    if status == KernelStatus.NO_MEMORY:
        raise TensorError(Diagnostic("out-of-memory", "there is no memory left for a kernel's work space"))
    return status


def _exact(status: int) -> int:
    if status < 0:
        message = "values were to be encoded that are no integers of the bits of their code"
        raise InternalError(Diagnostic("internal", message))
    return status


def _corrupt(code: Code, count: int, why: str) -> SynchronisationError:
    message = f"{count} values encoded as {type(code).__name__.lower()} can't be read: {why}"
    return SynchronisationError(Diagnostic("corrupt-segment", message))
