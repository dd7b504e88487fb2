"""Entry points of compiled libraries, declared to ctypes as C++ has them: ``templates/shared/zenc/entry_points.h``."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, TypeAlias

from zenc.codegen.build.own_files import open_library
from zenc.errors import BuildError, Diagnostic
from zenc.wire.constants import ABI_VERSION

_TYPES: dict[str, Any] = {
    "v": None, "P": ctypes.c_void_p, "q": ctypes.c_int64, "Q": ctypes.c_uint64, "i": ctypes.c_int32,
    "I": ctypes.c_uint32, "?": ctypes.c_bool, "f": ctypes.c_float, "d": ctypes.c_double,
}  # fmt: skip
_AT_ADDRESS = ctypes.CFUNCTYPE(None)

Function: TypeAlias = Any  # a ctypes function pointer, whose type has no public name
EntryPoints: TypeAlias = dict[str, Function]


class _EntryPoint(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("kinds", ctypes.c_char_p), ("address", ctypes.c_void_p))


def entry_points(path: Path) -> EntryPoints:
    """Return the functions of the library ``path`` by name. Integers are passed modulo the range of their type.

    Raises BuildError: ``library-broken`` if it can't be opened, ``wrong-abi`` if it is of another version of zenc.
    """
    try:
        library = open_library(path)
        _ensure_abi(path, library.zenc_abi_version())
        rows, functions, number = ctypes.pointer(_EntryPoint.in_dll(library, "zenc_entry_points")), {}, 0
        while (row := rows[number]).name:
            function = functions[row.name.decode()] = _AT_ADDRESS(row.address)
            function.restype, *function.argtypes = (_TYPES[kind] for kind in row.kinds.decode())
            number += 1
        return functions
    except (OSError, AttributeError, ValueError) as problem:
        raise broken(path, str(problem)) from problem


def _ensure_abi(path: Path, found: int) -> None:
    if found != ABI_VERSION:
        message = f"{path} has version {found} of the kernel interface; this zenc needs {ABI_VERSION}"
        raise BuildError(Diagnostic("wrong-abi", message, help="'zenc cache clear', or compile the artifact again"))


def broken(path: Path, why: str) -> BuildError:
    """Return the error of a library that can't be used."""
    return BuildError(Diagnostic("library-broken", f"{path} can't be loaded", notes=(why,), help="'zenc cache clear'"))
