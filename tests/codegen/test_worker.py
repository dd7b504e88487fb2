"""Modules of kernels are compiled ahead in worker processes."""

from __future__ import annotations

import time

from tests.support.nvrtc import Nvrtc
from zenc.codegen.build import cache
from zenc.codegen.build.gpu_kernels import unit_of
from zenc.codegen.build.worker import compile_ahead

MODULES = ("A", "B", "C")
SOURCE = "".join(f'#ifdef ZENC_{name}\nextern "C" __global__ void k{name}() {{}}\n#endif\n' for name in MODULES)


def test_all_but_the_first_are_compiled_by_others(nvrtc: Nvrtc, tmp_path, monkeypatch):
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "cache"))
    sources, arch = {"kernels.cu": SOURCE}, nvrtc.archs[-1]
    assert compile_ahead(SOURCE, arch, nvrtc, MODULES) >= 1
    units = [unit_of(sources, arch, nvrtc, name) for name in MODULES]

    def there() -> list[bool]:
        return [cache.lookup(cache.open_cache(), unit.key, unit.product) is not None for unit in units]

    end = time.monotonic() + 60
    while there() != [False, True, True] and time.monotonic() < end:
        time.sleep(0.05)
    assert there() == [False, True, True]
    compile_ahead.cache_clear()
    assert compile_ahead(SOURCE, arch, nvrtc, MODULES) == 0
