"""Build of rendered C++ to a shared library, by g++."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from zenc._version import __version__
from zenc.codegen.build import cache
from zenc.codegen.build.build_once import DEADLINE_SECONDS, BuildUnit, CompileFailure, get_or_build, run
from zenc.codegen.build.toolchain import NATIVE, Toolchain, toolchain
from zenc.codegen.render import headers, include_dirs, templates_dir
from zenc.common.log import notice
from zenc.errors import BuildError
from zenc.wire.constants import ABI_VERSION


def build(
    sources: Mapping[str, str], *, target: str = "cpu", deadline_s: float = DEADLINE_SECONDS, scheme: str = ""
) -> Path:
    """Return the shared library of ``sources`` (file name -> C++ text) of ``scheme``, from the cache if it is there.

    Of several processes one compiles and the others wait, ``deadline_s`` seconds at most for both together.
    Raises BuildError (``compiler-missing``, ``compile-failed``, ``build-timeout``) and CacheError.
    """
    unit = _unit(sources, target)
    try:
        tools = toolchain()
    except BuildError:  # kernels that are here need no compiler
        kept = [entry.key for entry in cache.entries() if entry.unit == unit]
        found = next(filter(None, (cache.lookup(cache.open_cache(), key, cache.LIBRARY) for key in kept)), None)
        if found is None:
            raise
        return found

    def make(folder: Path, deadline: float) -> dict[str, str]:
        if NATIVE not in tools.flags:
            notice(f"{tools.name} does not know {NATIVE}: the kernels will not use all of this processor")
        for name, text in sources.items():
            (folder / name).write_text(text, "utf-8")
        includes = [f"-I{path}" for path in include_dirs(target)]
        command = [*tools.command, *tools.flags, *includes, *sorted(sources), "-o", cache.LIBRARY]
        told = run(command, folder, deadline)
        if not (folder / cache.LIBRARY).is_file():
            raise CompileFailure(" ".join(command), f"{told}\nit ended well, and wrote no {cache.LIBRARY}")
        return {
            "zenc": __version__,
            "target": target,
            "compiler": tools.name,
            "command": " ".join(command),
            "unit": unit,
        }

    help = "set CXX to another C++17 compiler; if it fails too, this is a bug in zenc"
    key = cache_key(sources, tools, target)
    return get_or_build(BuildUnit(key, cache.LIBRARY, tools.name, make, scheme=scheme, help=help), deadline_s)


def build_file(path: str, *, deadline_s: float = DEADLINE_SECONDS, scheme: str = "") -> Path:
    """Return the shared library of the file at ``path`` below ``templates``, whose first folder is the target.

    Raises BuildError and CacheError as ``build`` does.
    """
    file, (target, *_) = templates_dir() / path, Path(path).parts
    return build({file.name: file.read_text("utf-8")}, target=target, deadline_s=deadline_s, scheme=scheme)


def cache_key(sources: Mapping[str, str], tools: Toolchain, target: str) -> str:
    """Return the sha256, in hexadecimal, of everything that decides about the compiled bytes."""
    compiler = {"flags": tools.flags, "command": tools.command, "compiler": tools.version, "macros": tools.macros}
    return _digest({**_everything(sources, target), **compiler})


def _unit(sources: Mapping[str, str], target: str) -> str:
    """Return the sha256 of the compiled sources and of their processor, without the compiler."""
    return _digest({**_everything(sources, target), "processor": _processor()})


def _everything(sources: Mapping[str, str], target: str) -> dict[str, Any]:
    return {
        "sources": dict(sources),
        "headers": headers(target),
        "zenc": __version__,
        "abi": ABI_VERSION,
        "target": target,
    }


def _digest(everything: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


_TELLING = re.compile(r"vendor|model|cpu family|flags|Features|CPU (implementer|part|variant)")


@lru_cache(maxsize=1)
def _processor() -> list[str]:
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text("utf-8").partition("\n\n")
    except OSError:
        return [platform.machine()]
    return [line for line in first.splitlines() if _TELLING.match(line)]
