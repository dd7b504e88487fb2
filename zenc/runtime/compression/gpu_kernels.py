"""Kernels of compression on a GPU, for tensors in its memory: found and launched by C++, compiled when first used.

    with kernels.selection(dtype, units, width, parts) as open: ...      # all on one stream; the end waits for it

Arguments are addresses of device memory, as ``zenc.runtime.compression.kernels`` takes those of the host.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path

import torch

from zenc.codegen.artifact import Artifact
from zenc.codegen.build.host import build
from zenc.codegen.render import templates_dir
from zenc.errors import BuildError, Diagnostic, TensorError
from zenc.runtime.compression.supports import PartUnits
from zenc.runtime.gpu.device import GpuDevice, LoadedKernels
from zenc.runtime.gpu.library import CText, EntryPoints, KernelLibrary
from zenc.wire.constants import DTYPE_NUMBERS

SOURCE = "compression.cpp"
FIRST = "zenc_find_digit"
"""A kernel of the module that every exact selection needs."""
LARGEST_BLOCK = 8192
"""Units of a block that a warp selects of: larger blocks are parts, with a row of thread blocks each."""

_KINDS = {"n": c_int64, "p": c_void_p, "d": c_double}
_ARGUMENTS = {
    "accumulate": "ppppdppn",
    "look_at": "pnp",
    "take_top": "pnnpp",
    "take_from": "np",
    "take_all": "p",
    "take_sampled": "nnnpp",
    "take_bisected": "nnp",
    "take_random": "nnp",
    "take_of_blocks": "nnp",
    "take_marked": "p",
    "keep_threshold": "",
}
_ENTRY_POINTS: EntryPoints = {
    "zenc_selection_bytes": (c_uint64, (c_int64, c_int64)),
    "zenc_open_selection": (
        c_void_p,
        (c_void_p, c_void_p, *[c_int64] * 4, c_void_p, c_void_p, c_void_p, c_uint64),
    ),
    "zenc_close_selection": (c_int64, (c_void_p, c_int64, c_void_p)),
    **{f"zenc_{name}": (None, (c_void_p, *(_KINDS[kind] for kind in kinds))) for name, kinds in _ARGUMENTS.items()},
}


@cache
def compression_library() -> CompressionLibrary:
    """The host's side, compiled once or found in the cache. Raises BuildError and CacheError."""
    source = (templates_dir() / "cuda" / "host" / SOURCE).read_text("utf-8")
    return CompressionLibrary(build({SOURCE: source}, target="cuda"))


class CompressionLibrary(KernelLibrary):
    """The C++ that launches kernels of compression; its functions by their names without ``zenc_``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _ENTRY_POINTS)
        self.functions = {name.removeprefix("zenc_"): getattr(self._library, name) for name in _ENTRY_POINTS}


class Selected(ctypes.Structure):
    """Findings of a selection: two sums of squares, and two magnitudes (``zenc_host/compress/selection.h``)."""

    _fields_ = (
        ("squares", c_double),
        ("left", c_double),
        ("greatest", c_uint64),
        ("known", c_uint64),
    )

    @property
    def finite(self) -> bool:
        """Whether all that was accumulated is."""
        return int(self.greatest) < 0x7F800000


class GpuCompression:
    """The kernels of compression on ``gpu``; a wait takes ``deadline`` seconds at most.

    Raises BuildError, CacheError and ArtifactError, here and where a module is first used.
    """

    def __init__(self, gpu: GpuDevice, artifact: Artifact, deadline: float) -> None:
        self.library, self.gpu, self.deadline = compression_library(), gpu, deadline
        self.library.bind(*gpu.libraries(1))
        self.kernels = LoadedKernels(self.library, gpu.images(artifact), FIRST)
        self._orders: dict[int, tuple[PartUnits, torch.Tensor | None]] = {}

    def order(self, parts: PartUnits, device: torch.device) -> torch.Tensor | None:
        """The units [units] of all ``parts``, int64 on ``device``, one by one; None where these are 0, 1, 2 ..."""
        known = self._orders.get(id(parts))
        if known is None:
            lists = [part for part in parts if isinstance(part, torch.Tensor)]
            known = self._orders[id(parts)] = parts, torch.cat(lists).to(device) if lists else None
        return known[1]

    def selection(self, dtype: str, units: int, width: int, parts: int = 1, marks: bool = False) -> OpenSelection:
        """A selection of ``units`` of ``width`` values, in ``parts``; with ``marks`` several, one after another.

        ``dtype``: that of the gradient, and of what is taken. Raises TensorError (``out-of-memory``).
        """
        return OpenSelection(self, dtype, units, width, parts, marks)

    def memory(self, size: int) -> torch.Tensor:
        """Room of the GPU, uint8 [size]. Raises TensorError (``out-of-memory``)."""
        try:
            return self.gpu.memory(size)
        except (MemoryError, torch.OutOfMemoryError) as error:
            message = f"there is no memory left on {self.gpu.name} for {size:,} bytes of a selection's work"
            raise TensorError(Diagnostic("out-of-memory", message)) from error


class OpenSelection:
    """A selection that is put on the GPU's stream step by step; ``close`` waits for it.

    Without a gradient, an address of 0, units are marked for ``take_marked``; for the steps that follow they are 0.
    """

    def __init__(
        self,
        of: GpuCompression,
        dtype: str,
        units: int,
        width: int,
        parts: int,
        marks: bool,
    ) -> None:
        self._of, self._text = of, CText()
        self._kept: list[torch.Tensor] = []
        functions = of.library.functions
        work = self.room(functions["selection_bytes"](units, parts))
        marked = self.room(units) if marks else 0
        shape = DTYPE_NUMBERS[dtype], units, width, parts
        handle, stream = of.kernels.handle, of.gpu.streams()[0]
        self._open = functions["open_selection"](handle, stream, *shape, work, marked, *self._text.arguments)

    def room(self, size: int) -> int:
        """The address of ``size`` bytes of the GPU, until the end."""
        memory = self._of.memory(size)
        self._kept.append(memory)
        return memory.data_ptr()

    def step(self, name: str, *arguments: float) -> None:
        """Put the step ``name`` of ``zenc_host/compress/selection.h`` on the stream."""
        self._of.library.functions[name](self._open, *arguments)

    def accumulate(
        self,
        gradient: int,
        residual: int,
        left: int,
        velocity: int = 0,
        m: float = 0.0,
        velocity_out: int = 0,
        searches: array[int] | None = None,
    ) -> None:
        """Write ``left`` = ``residual`` + ``gradient`` as ``CompressionKernels.accumulate``; begin ``searches``."""
        self.step("accumulate", gradient, residual, left, velocity, m, velocity_out, *_words(searches))

    def take_top(self, searches: array[int], begun: bool, order: torch.Tensor | None, gradient: int) -> None:
        """Take the k greatest of each part, exactly; of equal ones the first in the ``order`` [units] int64."""
        if order is not None:
            self._kept.append(order)
        self.step("take_top", *_words(searches), begun, 0 if order is None else order.data_ptr(), gradient)

    def take_sampled(self, k: int, drawn: int, key: int, gradient: int) -> None:
        """Take what reaches the threshold of a sample of ``drawn`` units."""
        self.step("take_sampled", k, drawn, key, self.room(4 * drawn), gradient)

    def close(self) -> Selected:
        """Wait for all steps. Raises BuildError, ArtifactError for kernels that can't be had or run."""
        found = Selected()
        deadline = int(self._of.deadline * 1e6)
        if not self._of.library.functions["close_selection"](self._open, deadline, ctypes.addressof(found)):
            raise self._of.kernels.failure or BuildError(Diagnostic("library-broken", self._text.value))
        return found


def searches_of(parts: Sequence[tuple[int, int, int]]) -> array[int]:
    """The searches of parts: first unit, units, k of each."""
    return array("q", [number for part in parts for number in part])


def _words(searches: array[int] | None) -> tuple[int, int]:
    return (0, 0) if searches is None else (searches.buffer_info()[0], len(searches) // 3)
