"""Kernels for GPUs that were compiled when zenc was packed, so that nothing compiles them where a scheme is loaded.

    kernels/sm_90.xz = { compiler, cuda, kernels: { KEY: [first, end] } } newline cubin*      # xz of JSON and bytes
    KEY              = that of a cubin, bytes first to end, of all kernels in one file: of a mapping, or of compression

A key is the cache's (``gpu_kernels.cache_key``) with "shipped" in place of the compiler: other sources, headers, flags
or versions have other keys, so that kernels of an earlier state are never found. ``make kernels`` writes the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from zenc.codegen.build.arch import Arch, arch_for, named
from zenc.codegen.build.gpu_kernels import FLAGS, Cubin, cache_key, text_of
from zenc.codegen.build.nvrtc import CHOICE
from zenc.common.resources import directory
from zenc.errors import InternalError

SUFFIX = ".xz"


def shipped(sources: Mapping[str, str], gpu: Arch, cuda: int) -> Cubin | None:
    """Return all kernels of ``sources`` for ``gpu`` and a driver of CUDA ``cuda``, if zenc has come with them.

    None where the user names a compiler, whose kernels are wanted then. Never raises.
    """
    return None if os.environ.get(CHOICE) else _found(text_of(sources), gpu, cuda)


@cache
def _found(source: str, gpu: Arch, cuda: int) -> Cubin | None:
    try:
        folder = directory("kernels")
        arch = arch_for(gpu, [arch for path in folder.iterdir() if (arch := named(path.name.removesuffix(SUFFIX)))])
        if arch is None:
            return None
        line, _, cubins = _unpacked(folder / f"{arch}{SUFFIX}").partition(b"\n")
        head = json.loads(line)
        first, end = head["kernels"][shipped_key(source, arch)]
        return Cubin(arch, cubins[first:end], head["compiler"], head["cuda"]) if head["cuda"] <= cuda else None
    except (InternalError, OSError, EOFError, LookupError, TypeError, ValueError):
        return None


def _unpacked(path: Path) -> bytes:
    """Return the content of an xz file, whose checksum is right; raises OSError, ValueError, and EOFError."""
    try:
        import lzma
    except ImportError as problem:  # Python can be built without
        raise ValueError("nothing here unpacks xz") from problem
    try:
        return lzma.decompress(path.read_bytes())
    except lzma.LZMAError as problem:
        raise ValueError("it is damaged") from problem


def shipped_key(source: str, arch: Arch) -> str:
    """Return the name of the cubin of the text ``source`` in the file of ``arch``."""
    return cache_key(source, (f"-arch={arch}", *FLAGS), "shipped")
