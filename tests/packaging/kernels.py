"""``python -m tests.packaging.kernels [ARCH ...]``: kernels/ARCH.xz, the compiled kernels that the wheel carries.

``zenc.codegen.build.shipped`` reads the files. The same NVRTC and the same liblzma write the same bytes again.
"""

import json
import lzma
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate, pairwise, product
from pathlib import Path

from zenc.codegen.build.arch import parse_archs
from zenc.codegen.build.gpu_kernels import cubin, text_of
from zenc.codegen.build.nvrtc import device_compiler
from zenc.codegen.build.shipped import SUFFIX, shipped_key
from zenc.codegen.render import KINDS, compression_unit, render

USUAL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")
"""Architectures of GPUs in data centres: A100, A10, L40S, H100, B200."""
FOLDER = Path(__file__).resolve().parents[2] / "kernels"


def units() -> list[dict[str, str]]:
    """Return all files of kernels: one for each mapping, and that of compression."""
    return [*(render(kind, "cuda") for kind in KINDS), compression_unit()]


def write(folder: Path, archs: Sequence[str], units: Sequence[Mapping[str, str]]) -> None:
    """Write kernels of ``units`` for each of ``archs`` into ``folder``, compiled through the user's cache."""
    folder.mkdir(exist_ok=True)
    jobs = list(product(archs, units))
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = iter(pool.map(_compiled, jobs))
        for arch in archs:
            keys = [shipped_key(text_of(unit), *parse_archs(arch)) for unit in units]
            _pack(folder / f"{arch}{SUFFIX}", dict(zip(keys, made, strict=False)))


def _compiled(job: tuple[str, Mapping[str, str]]) -> bytes:
    (arch,) = parse_archs(job[0])
    return cubin(job[1], arch, device_compiler()).image


def _pack(path: Path, cubins: Mapping[str, bytes]) -> None:
    compiler, ends = device_compiler(), list(accumulate(map(len, cubins.values()), initial=0))
    head = {"compiler": compiler.name, "cuda": compiler.cuda, "kernels": dict(zip(cubins, pairwise(ends), strict=True))}
    content = b"".join([json.dumps(head).encode(), b"\n", *cubins.values()])
    path.write_bytes(lzma.compress(content, preset=6 | lzma.PRESET_EXTREME))
    print(f"{path}: {len(cubins)} files of kernels, {path.stat().st_size / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    write(FOLDER, sys.argv[1:] or USUAL, units())
