"""The kernels of ``balanced by holders``: typed methods over the entry points that only its library has.

Addresses are integers, tables of them addresses of int64 arrays of addresses; bitmaps are uint64 over all units,
owners uint16. Rows are bytes. Nothing here checks sizes: that is the caller's care.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_int64, c_void_p
from pathlib import Path

from zenc.errors import BuildError, Diagnostic, TensorError

_ARGUMENTS = {
    "choose_owners": "npnppp",
    "mark_parts": "npnpp",
    "split_rows": "ppnpnpnp",
    "list_units": "pnpnpp",
    "place_rows": "pnpnp",
    "join_dense": "pnpnpnp",
}
_KINDS = {"n": c_int64, "p": c_void_p}


class HolderKernels:
    """The entry points in the shared library ``path``. Raises BuildError (``library-broken``) if it lacks them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            library = ctypes.CDLL(str(Path(path)))
            self._functions = {name: getattr(library, f"zenc_{name}") for name in _ARGUMENTS}
        except (OSError, AttributeError) as problem:
            message, help = f"{path} has no kernels for 'balanced by holders'", "'zenc cache clear'"
            raise BuildError(Diagnostic("library-broken", message, notes=(str(problem),), help=help)) from problem
        for name, function in self._functions.items():
            function.argtypes = [_KINDS[kind] for kind in _ARGUMENTS[name]]
            function.restype = c_int64

    def choose_owners(self, ranks: int, bitmaps: int, words: int, owners: int, counts: int) -> int:
        """Write ``owners`` [units of the union] and ``counts`` [ranks, ranks] uint64: each one's of each owner.

        ``bitmaps`` is a table [ranks]. The same input gives the same owners everywhere. Returns 64 bits that ranks
        share only if they chose alike.
        """
        digest = ctypes.c_uint64()
        _count(self._functions["choose_owners"](ranks, bitmaps, words, owners, counts, ctypes.byref(digest)))
        return digest.value

    def mark_parts(self, ranks: int, bitmaps: int, words: int, owners: int, outs: int) -> None:
        """Write, for rank k and part p, its slots to the bitmap at ``outs`` [k, p] (cleared; or 0: not wanted)."""
        _count(self._functions["mark_parts"](ranks, bitmaps, words, owners, outs))

    def split_rows(
        self, any: int, own: int, words: int, owners: int, parts: int, values: int, row_bytes: int, outs: int
    ) -> None:
        """Move the rows of the units in ``own``, ascending, to ``outs`` [parts], each part's in their order.

        ``any`` is the union of all ranks' units.
        """
        _count(self._functions["split_rows"](any, own, words, owners, parts, values, row_bytes, outs))

    def list_units(self, any: int, words: int, owners: int, parts: int, ids: int, outs: int) -> int:
        """Write the units of ``any``, ascending, and for each part to ``outs`` [parts] which of them are its slots.

        These are numbers in that list, uint64. Returns its length.
        """
        return _count(self._functions["list_units"](any, words, owners, parts, ids, outs))

    def place_rows(self, numbers: int, count: int, values: int, row_bytes: int, out: int) -> None:
        """Move the rows of one part to ``out`` [units of the union, row_bytes], at ``numbers`` [count]."""
        _count(self._functions["place_rows"](numbers, count, values, row_bytes, out))

    def join_dense(
        self, any: int, units: int, owners: int, parts: int, part_values: int, row_bytes: int, out: int
    ) -> None:
        """Write the units in ``any`` to ``out`` [units, row_bytes], from ``part_values`` [parts]."""
        _count(self._functions["join_dense"](any, units, owners, parts, part_values, row_bytes, out))


def _count(status: int) -> int:
    if status < 0:
        raise TensorError(Diagnostic("out-of-memory", "there is no memory left for a kernel's work space"))
    return int(status)
