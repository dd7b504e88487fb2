"""Processes that compile modules of kernels into the cache, ahead of the processes that need them.

    compile_ahead(source, sm_90, compiler, modules)       # python -m zenc.codegen.build.worker, several times

NVRTC compiles one text at a time in a process, however many threads ask. Nobody waits for a worker as such: a process
that needs a module that a worker is compiling waits for that, as for any other process (``build_once``), and compiles
the modules that no worker has begun.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache

from zenc.codegen.build.arch import Arch, parse_archs
from zenc.codegen.build.cache import lookup, open_cache
from zenc.codegen.build.gpu_kernels import SOURCE, cubin, unit_of
from zenc.codegen.build.nvrtc import CHOICE, Nvrtc, device_compiler
from zenc.errors import ZencError

MOST_WORKERS = 16


@cache
def compile_ahead(source: str, arch: Arch, compiler: Nvrtc, modules: tuple[str, ...]) -> int:
    """Start workers for those of ``modules`` that the cache lacks, and return their number; once a process.

    The caller goes on to ask for the modules in their order, so the first is left to it. Raises CacheError.
    """
    directory, sources = open_cache(), {SOURCE: source}
    units = {module: unit_of(sources, arch, compiler, module) for module in modules}
    missing = [name for name, unit in units.items() if lookup(directory, unit.key, unit.product) is None][1:]
    workers = min(MOST_WORKERS, max(1, len(os.sched_getaffinity(0)) - 1), len(missing))  # one core is the caller's
    for number in range(workers):
        _start(compiler, {"sources": sources, "arch": str(arch), "modules": missing[number::workers]})
    return workers


def _start(compiler: Nvrtc, job: Mapping[str, object]) -> None:
    command, ways = [sys.executable, "-m", "zenc.codegen.build.worker"], {**os.environ, CHOICE: compiler.path}
    try:
        worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ways
        )
    except OSError:  # without it the caller compiles all
        return
    threading.Thread(target=worker.communicate, args=(json.dumps(job).encode(),), daemon=True).start()


def main() -> None:
    """Compile the modules in the standard input; a process that needs one that fails gets the error when it asks."""
    job = json.load(sys.stdin)
    (arch,) = parse_archs(job["arch"])
    for module in job["modules"]:
        try:
            cubin(job["sources"], arch, device_compiler(), module=module)
        except ZencError:
            return


if __name__ == "__main__":
    main()
