"""Compiling kernels in another process."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.kept import PRODUCT, kept
from zenc.codegen.build.gpu_kernels import FLAGS, device_headers
from zenc.codegen.build.nvrtc import Nvrtc


class Told(NamedTuple):
    """NVRTC's text of kernels, and its log, which has registers too."""

    ptx: str
    log: str


def compiled_by(path: str, source: str, arch: str) -> Told:
    compiler, headers, flags = _loaded(path), device_headers(), (f"-arch={arch}", *FLAGS, "--ptxas-options=-v")

    def fill(folder: Path) -> dict[str, str]:
        made = compiler.compile(source, headers, flags)
        (folder / PRODUCT).write_text(json.dumps(Told(made.ptx, made.log)), "utf-8")
        return {}

    about = [compiler.name, source, dict(headers), flags]
    return Told(*json.loads(kept(about, fill).read_text("utf-8")))


@cache
def _loaded(path: str) -> Nvrtc:
    return Nvrtc(path)
