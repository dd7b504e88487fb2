"""The C entry points of ``templates/cpu/kernels.cpp.j2``, and a shared library opened with all of them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int64, c_void_p
from pathlib import Path
from typing import Any, TypeAlias

from zenc.codegen.build.own_files import open_library
from zenc.errors import BuildError, Diagnostic
from zenc.wire.constants import ABI_VERSION, DTYPE_BYTES

DTYPES = tuple(DTYPE_BYTES)

_ARGUMENTS = {
    "slots_of_units": "ppnp",
    "units_of_slots": "ppnp",
    "mark_units": "ppnpp",
    "table_words": "pn",
    "build_tables": "p",
    "rank": "pnp",
    "fill_bitmap": "pn",
    "fill_blocks": "pnnp",
    "encode_index": "npnnp",
    "encode": "npnnpnp",
    "decode_index": "npnnp",
    "union": "npnp",
    "seal": "ppn",
    "open": "ppnnpnp",
}
_TYPED_ARGUMENTS = {
    "mark_dense": "ppp",
    "place_units": "ppnpppnnp",
    "place_dense": "ppppnp",
    "mark_nonzero": "pnnppn",
    "mark_absent": "ppnnp",
    "copy_kept": "ppnnpp",
    "spread": "ppnnpp",
    "merge": "nppnnp",
    "expand_dense": "ppppp",
    "expand_units": "ppppp",
}
_KINDS = {"n": c_int64, "p": c_void_p}

Function: TypeAlias = Any  # a ctypes function pointer, whose type has no public name


def opened(path: Path) -> tuple[dict[str, Function], dict[str, dict[str, Function]]]:
    """Return the functions of the library ``path`` by name, and those that exist for every dtype by name and dtype.

    Raises BuildError: ``library-broken`` if it can't be opened, ``wrong-abi`` if it is of another version of zenc.
    """
    functions, library = bound(path, _ARGUMENTS), open_library(path)
    try:
        return functions, {name: _bind_all(library, name, kinds) for name, kinds in _TYPED_ARGUMENTS.items()}
    except AttributeError as problem:
        raise _broken(path, str(problem)) from problem


def bound(path: Path, arguments: Mapping[str, str]) -> dict[str, Function]:
    """Return the functions of the library ``path`` by name; ``arguments`` has the kinds of each: n, p.

    Raises BuildError as ``opened`` does.
    """
    try:
        library = open_library(path)
        functions = {
            name: _bind(library, name, kinds) for name, kinds in ({"abi_version": ""} | dict(arguments)).items()
        }
    except (OSError, AttributeError) as problem:
        raise _broken(path, str(problem)) from problem
    _ensure_abi(path, functions["abi_version"]())
    return functions


def _bind(library: ctypes.CDLL, name: str, kinds: str) -> Function:
    function = getattr(library, f"zenc_{name}")
    function.argtypes = [_KINDS[kind] for kind in kinds.replace(" ", "")]
    function.restype = c_int64
    return function


def _bind_all(library: ctypes.CDLL, name: str, kinds: str) -> dict[str, Function]:
    return {dtype: _bind(library, f"{name}_{dtype}", kinds) for dtype in DTYPES}


def _ensure_abi(path: Path, found: int) -> None:
    if found != ABI_VERSION:
        message = f"{path} has version {found} of the kernel interface; this zenc needs {ABI_VERSION}"
        raise BuildError(Diagnostic("wrong-abi", message, help="'zenc cache clear', or compile the artifact again"))


def _broken(path: Path, why: str) -> BuildError:
    return BuildError(Diagnostic("library-broken", f"{path} can't be loaded", notes=(why,), help="'zenc cache clear'"))
