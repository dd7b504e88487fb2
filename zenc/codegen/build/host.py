"""Build of rendered C++ to a shared library, by g++."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from zenc._version import __version__
from zenc.codegen.build import cache
from zenc.codegen.build.build_once import DEADLINE_SECONDS, BuildUnit, get_or_build, run
from zenc.codegen.build.toolchain import NATIVE, Toolchain, toolchain
from zenc.codegen.render import headers, include_dirs
from zenc.log import notice
from zenc.wire.constants import ABI_VERSION


def build(
    sources: Mapping[str, str], *, target: str = "cpu", deadline_s: float = DEADLINE_SECONDS, scheme: str = ""
) -> Path:
    """The shared library of ``sources`` (file name -> C++ text) of ``scheme``, from the cache if it is there.

    Of several processes one compiles and the others wait, ``deadline_s`` seconds at most for both together.
    Raises BuildError (``compiler-missing``, ``compile-failed``, ``build-timeout``) and CacheError.
    """
    tools = toolchain()

    def make(folder: Path, deadline: float) -> dict[str, str]:
        if NATIVE not in tools.flags:
            notice(f"{tools.name} does not know {NATIVE}: the kernels will not use all of this processor")
        for name, text in sources.items():
            (folder / name).write_text(text, "utf-8")
        includes = [f"-I{path}" for path in include_dirs(target)]
        command = [*tools.command, *tools.flags, *includes, *sorted(sources), "-o", cache.LIBRARY]
        run(command, folder, deadline)
        return {"zenc": __version__, "target": target, "compiler": tools.name, "command": " ".join(command)}

    help = "set CXX to another C++17 compiler; if it fails too, this is a bug in zenc"
    key = cache_key(sources, tools, target)
    return get_or_build(BuildUnit(key, cache.LIBRARY, tools.name, make, scheme=scheme, help=help), deadline_s)


def cache_key(sources: Mapping[str, str], tools: Toolchain, target: str) -> str:
    """The sha256, in hexadecimal, of everything that decides about the compiled bytes."""
    everything = {
        "sources": dict(sources),
        "headers": headers(target),
        "flags": tools.flags,
        "command": tools.command,
        "compiler": tools.version,
        "macros": tools.macros,
        "zenc": __version__,
        "abi": ABI_VERSION,
        "target": target,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()
