"""Kernels of compression on a GPU, for tensors in its memory: found and launched by C++, compiled when first used.

    with kernels.selection(dtype, units, width, parts) as open: ...      # all on one stream; the end waits for it

Arguments are addresses of device memory, as ``zenc.runtime.lossy.kernels`` takes those of the host.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import c_double, c_uint64
from functools import cache

import torch

from zenc.codegen.artifact import Artifact
from zenc.codegen.build.host import build_file
from zenc.errors import Diagnostic, SynchronisationError, TensorError
from zenc.runtime.gpu.device import GpuDevice
from zenc.runtime.gpu.library import CText, KernelLibrary
from zenc.runtime.lossy.kernels import SharedKernels
from zenc.runtime.lossy.supports import PartUnits
from zenc.wire.constants import DTYPE_NUMBERS

FIRST = "zenc_find_digit"
"""A kernel of the module that every exact selection needs."""
LARGEST_BLOCK = 8192
"""Most units of a block that a warp selects of: larger blocks are parts, with a row of thread blocks each."""

INFINITE = 0x7F800000
"""The bits of infinity, above those of all finite magnitudes."""


@cache
def compression_library() -> KernelLibrary:
    """Return the host's side, compiled once or found in the cache. Raises BuildError and CacheError."""
    return KernelLibrary(build_file("cuda/host/compression.cpp"))


class Selected(ctypes.Structure):
    """Findings of a selection: sums of squares, magnitudes, and a number (``zenc_host/compress/selection.h``)."""

    _fields_ = (
        ("squares", c_double),
        ("left", c_double),
        ("greatest", c_uint64),
        ("known", c_uint64),
        ("number", c_uint64),
    )

    @property
    def finite(self) -> bool:
        """Return whether all accumulated values are finite."""
        return int(self.greatest) < INFINITE


class GpuCompression(SharedKernels):
    """The kernels of compression on ``gpu``; a wait takes ``deadline`` seconds at most.

    Raises BuildError, CacheError and ArtifactError, here and where a module is first used.
    """

    def __init__(self, gpu: GpuDevice, artifact: Artifact, deadline: float) -> None:
        self.library, self.gpu, self.deadline = compression_library(), gpu, deadline
        self.library.bind(*gpu.libraries(1))
        self.kernels = gpu.kernels.of(artifact, self.library, gpu.images(artifact), FIRST)
        self._orders: dict[int, tuple[PartUnits, torch.Tensor]] = {}

    def order(self, parts: PartUnits, device: torch.device) -> torch.Tensor | None:
        """Return the units [units] of all ``parts``, int64 on ``device``, one by one; None for 0, 1, 2 and so on."""
        lists = [part for part in parts if isinstance(part, torch.Tensor)]
        if lists and id(parts) not in self._orders:
            self._orders[id(parts)] = parts, torch.cat(lists).to(device)
        return self._orders[id(parts)][1] if lists else None

    def selection(self, dtype: str, units: int, width: int, parts: int = 1, marks: bool = False) -> OpenSelection:
        """Begin a selection of ``units`` of ``width`` values, in ``parts``; with ``marks`` several, one after another.

        ``dtype``: that of the gradient, and of the taken values. Raises TensorError (``out-of-memory``).
        """
        return OpenSelection(self, dtype, units, width, parts, marks)

    def memory(self, size: int) -> torch.Tensor:
        """Return memory of the GPU, uint8 [size]. Raises TensorError (``out-of-memory``)."""
        try:
            return self.gpu.memory(size)
        except (MemoryError, torch.OutOfMemoryError) as error:
            message = f"there is no memory left on {self.gpu.name} for {size:,} bytes of a selection's work"
            raise TensorError(Diagnostic("out-of-memory", message)) from error

    # ---- As CompressionKernels has them; each waits for its kernels

    def greatest_units(self, values: torch.Tensor, k: int) -> torch.Tensor:
        """Return the units [k] int64, ascending, of the ``k`` greatest of ``values`` [n] float32; first of equals."""
        open = self.selection("f32", len(values), 1, marks=True)
        magnitudes = values.clone()
        open.step("look_at", values.data_ptr(), 0, magnitudes.data_ptr())
        open.take_top(searches_of([(0, len(values), k)]), False, None, 0)
        marks = open.marks
        open.close()
        return marks.nonzero()[:, 0]

    def is_finite(self, dtype: str, n: int, values: int) -> bool:
        """Return whether all of ``values`` [n] are finite."""
        return self._greatest(dtype, n, values) < INFINITE

    def _greatest(self, dtype: str, n: int, values: int) -> int:
        found, at = c_uint64(), self.memory(8)
        self._run("find_greatest", dtype, values, n, at.data_ptr(), fetched=(found, at))
        return found.value

    def _run(
        self, name: str, dtype: str | None, *arguments: float, fetched: tuple[c_uint64, torch.Tensor] | None = None
    ) -> None:
        """Run ``name`` of ``templates/cuda/host/compression.cpp``, and wait; a word is ``fetched`` then."""
        functions, text = self.library.functions, CText()
        handle, stream = self.kernels.handle, self.gpu.stream()
        open = functions["open_launches"](handle, stream, DTYPE_NUMBERS[dtype or "f32"], *text.arguments)
        functions[name](open, *arguments)
        to = (None, None, 0) if fetched is None else (ctypes.addressof(fetched[0]), fetched[1].data_ptr(), 8)
        if not functions["close_launches"](open, int(self.deadline * 1e6), *to):
            raise self.failure(text)

    def failure(self, text: CText) -> Exception:
        """Return the error of kernels that can't be built or run."""
        help = "see what nvidia-smi and the system's log say of this GPU"
        return self.kernels.take_failure() or SynchronisationError(Diagnostic("cuda-failed", text.value, help=help))


class OpenSelection:
    """A selection put on the GPU's stream step by step; ``close`` waits for it.

    Without a gradient, an address of 0, units are marked for ``take_marked``, and later steps find them 0.
    """

    def __init__(self, of: GpuCompression, dtype: str, units: int, width: int, parts: int, marks: bool) -> None:
        self._of, self._text = of, CText()
        self._kept: list[torch.Tensor] = []
        functions = of.library.functions
        work = self.room(functions["selection_bytes"](units, parts))
        marked = self.room(units) if marks else 0
        self.marks = self._kept[-1]
        """The marks of units, uint8 [units], with ``marks``."""
        shape = DTYPE_NUMBERS[dtype], units, width, parts
        handle, stream = of.kernels.handle, of.gpu.stream()
        self._open = functions["open_selection"](handle, stream, *shape, work, marked, *self._text.arguments)

    def room(self, size: int) -> int:
        """Return the address of ``size`` bytes of the GPU, until the end."""
        memory = self._of.memory(size)
        self._kept.append(memory)
        return memory.data_ptr()

    def step(self, name: str, *arguments: float) -> None:
        """Put the step ``name`` of ``zenc_host/compress/selection.h`` on the stream."""
        self._of.library.functions[name](self._open, *arguments)

    def accumulate(self, searches: array[int] | None = None) -> None:
        """Accumulate what the step ``add`` has named, and list what ``searches`` may take."""
        self.step("accumulate", *_words(searches))

    def accumulate_sampled(self, k: int, drawn: int, key: int, gradient: int) -> None:
        """Accumulate, and list what reaches the threshold of a sample of ``drawn`` units; or take it at once."""
        self.step("accumulate_sampled", k, drawn, key, self.room(4 * drawn), gradient)

    def take_top(self, searches: array[int], begun: bool, order: torch.Tensor | None, gradient: int) -> None:
        """Take the k greatest of each part, exactly; of equal ones the first in the ``order`` [units] int64.

        ``begun``: with the searches of ``accumulate``.
        """
        if order is not None:
            self._kept.append(order)
        self.step("take_top", *_words(searches), begun, 0 if order is None else order.data_ptr(), gradient)

    def take_sampled(self, k: int, drawn: int, key: int, gradient: int) -> None:
        """Take the units that reach the threshold of a sample of ``drawn`` units."""
        self.step("take_sampled", k, drawn, key, self.room(4 * drawn), gradient)

    def close(self) -> Selected:
        """Wait for all steps. Raises SynchronisationError ``cuda-failed``, and as building kernels does."""
        found = Selected()
        deadline = int(self._of.deadline * 1e6)
        if not self._of.library.functions["close_selection"](self._open, deadline, ctypes.addressof(found)):
            raise self._of.failure(self._text)
        return found


def searches_of(parts: Sequence[tuple[int, int, int]]) -> array[int]:
    """Return the searches of parts: first unit, units, k of each."""
    return array("q", [number for part in parts for number in part])


def _words(searches: array[int] | None) -> tuple[int, int]:
    return (0, 0) if searches is None else (searches.buffer_info()[0], len(searches) // 3)
