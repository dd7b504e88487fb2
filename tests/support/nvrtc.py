"""Compiling kernels in another process."""

from __future__ import annotations

from functools import cache

from zenc.codegen.build.gpu_kernels import FLAGS, device_headers
from zenc.codegen.build.nvrtc import Compiled, Nvrtc


def compiled_by(path: str, source: str, arch: str) -> Compiled:
    """``source`` for ``arch``, by the NVRTC at ``path``, with what it says of registers."""
    return _loaded(path).compile(source, device_headers(), (f"-arch={arch}", *FLAGS, "--ptxas-options=-v"))


@cache
def _loaded(path: str) -> Nvrtc:
    return Nvrtc(path)
