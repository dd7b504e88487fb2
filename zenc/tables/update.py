"""Updates: the bytes by which one tensor differs from another of its shape, without loss; kernels of CPUs.

The format stands in ``templates/cpu/zenc_cpu/update/update.h``: gaps between the numbers that changed and steps from
their old values to the new, as Rice codes. A step counts the values of the dtype that lie between, so that a weight
that a small learning rate has moved takes a few bits.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from zenc.codegen.build.host import build_file
from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.cpu.bindings import entry_points

BITS_OF = {torch.float16: 16, torch.bfloat16: 16, torch.float32: 32, torch.float64: 64}
"""The dtypes whose tensors can be published, with the bits of a number."""
_NO_ROOM = _NO_UPDATE = -1


class UpdateKernels:
    """The kernels in the shared library ``path``, which ``update_kernels`` compiles."""

    def __init__(self, path: Path) -> None:
        self._functions = entry_points(path)
        self._read_beyond = int(self._functions["read_beyond"]())

    def checksum(self, tensor: torch.Tensor) -> int:
        """Return a checksum of 64 bits, which differs for almost all contents of ``tensor``, contiguous, any shape."""
        return int(self._functions["checksum"](tensor.data_ptr(), tensor.nbytes))

    def encode(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor | None:
        """Return the update [bytes] uint8 from ``old`` to ``new``, contiguous, of one shape and a dtype of ``BITS_OF``.

        Returns None where it would be no shorter than ``new``.
        """
        out = torch.empty(new.nbytes, dtype=torch.uint8, device="cpu")
        encode = self._functions[f"encode_update_{BITS_OF[new.dtype]}"]
        size = encode(old.data_ptr(), new.data_ptr(), new.numel(), out.data_ptr(), out.numel())
        return None if size in (_NO_ROOM, new.nbytes) else out[:size]

    def received(self, size: int) -> torch.Tensor:
        """Return memory [bytes] uint8 for an update of ``size`` bytes, and for its reader's touch behind it."""
        return torch.zeros(size + self._read_beyond, dtype=torch.uint8, device="cpu")

    def apply(self, update: torch.Tensor, size: int, held: torch.Tensor) -> int:
        """Make ``held``, of any shape, the new tensor by ``update`` of ``received(size)``.

        Return the number of changes.
        """
        apply = self._functions[f"apply_update_{BITS_OF[held.dtype]}"]
        changed = int(apply(update.data_ptr(), size, held.data_ptr(), held.numel()))
        if changed == _NO_UPDATE:
            message = f"{size:,} bytes are no update of a tensor of {held.numel():,} numbers"
            raise SynchronisationError(Diagnostic("corrupt-message", message))
        return changed


@cache
def update_kernels() -> UpdateKernels:
    """Return the kernels, compiled when a process first needs them, unless the cache has them.

    Raises BuildError and CacheError.
    """
    return UpdateKernels(build_file("cpu/update.cpp", scheme="updates"))
