"""Compiling the emulator, and kernels for it: once for each content (see ``tests.support.kept``)."""

import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.support.kept import PRODUCT, kept
from zenc.codegen.build.toolchain import toolchain
from zenc.codegen.render import headers, include_dirs

HERE = Path(__file__).parent
INCLUDE = HERE / "include"

COMMON = ("-std=c++17", "-g1", "-Wall", "-Wextra", "-fPIC", "-shared")
ENGINE = ("-O2", "-Wl,-z,defs", "-Wl,-Bsymbolic-functions")
KERNELS = (
    "-ffp-contract=off",  # no sum is rounded otherwise than on the other targets
    "-ftrivial-auto-var-init=pattern",  # variables that were never written show
    "-Werror=return-type",
    "-Werror=uninitialized",
)
MODES = {
    "plain": ("-O0",),
    "address": (
        *("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        "-fno-sanitize=null,object-size,pointer-overflow",  # the address sanitizer finds where such pointers are used
    ),
    "counted": (
        "-O1",
        "-fsanitize=kernel-address",
        *("--param=asan-instrumentation-with-call-threshold=0", "--param=asan-stack=0", "--param=asan-globals=0"),
    ),
    "thread": ("-O0", "-fsanitize=thread", "--param=tsan-distinguish-volatile=1"),
}
"""Flags for kernels and programs; the engine needs none, whoever loads it.
Code without optimisation compiles in a quarter of the time, which is more than tests take to run it; with ``counted``
the compiler warns of variables that are never written.
"""
DRAWING = ("shared/zenc/config.h", "shared/zenc/constants.h", "shared/zenc/mix.h")
"""The headers of zenc by which the engine draws the order of threads."""
ALIGNED = {"plain": ("-fsanitize=alignment", "-Wl,--as-needed")}
"""Further flags for kernels. ``engine/alignment.cpp`` has what the compiler calls, so its own library is not needed."""


class CompileError(Exception):
    """The compiler's complaint."""


@cache
def engine() -> Path:
    """Compile the library that runs kernels, and stands in for CUDA's driver and NCCL."""
    folders = ("driver", "engine", "nccl")  # a unit each, so that headers are read three times
    units = {f"{name}.cpp": "".join(f'#include "{path}"\n' for path in sources_in(name)) for name in folders}
    command = [*COMMON, *ENGINE, *include_flags(), f"-I{HERE}", *units, "-lpthread", "-ldl"]
    return compiled(command, own_texts() | {name: headers("cuda")[name] for name in DRAWING}, units)


def sources_in(folder: str) -> list[str]:
    return sorted(path.relative_to(HERE).as_posix() for path in (HERE / folder).glob("*.cpp"))


def kernels(sources: Mapping[str, str], mode: str = "plain") -> Path:
    """Compile the kernels in ``sources`` (file name -> CUDA C++) to a library for the emulator."""
    return _kernels(tuple(sources.items()), mode)


@cache
def _kernels(files: tuple[tuple[str, str], ...], mode: str) -> Path:
    sources = dict(files)
    flags = [*KERNELS, *MODES[mode], *ALIGNED.get(mode, ())]
    command = [*COMMON, *flags, *include_flags(), "-include", "emulator/cuda.h", "-x", "c++"]
    names = sorted(name for name in sources if name.endswith(".cu"))
    texts = {**own_texts(), **headers("cuda"), **sources}
    counting = [str(counter())] if mode == "counted" else []
    return compiled([*command, *names, "-x", "none", *counting, str(engine())], texts, sources)


def counter() -> Path:
    """Compile the library that counts accesses to memory by kernels of the mode ``counted``."""
    return compiled([*COMMON, "-O2", str(HERE / "traffic" / "sectors.cpp")], own_texts())


def program(source: Path, mode: str = "plain", flags: Sequence[str] = ()) -> Path:
    """Compile the program in one C++ file with further ``flags``; it can load kernels of the same mode."""
    command = ["-std=c++17", "-g1", "-Wall", "-Wextra", *MODES[mode], *include_flags(), f"-I{HERE}", *flags]
    texts = {**own_texts(), **headers("cuda"), "program": source.read_text("utf-8")}
    return compiled([*command, str(source), str(engine()), "-lpthread", "-ldl"], texts)


def include_flags() -> list[str]:
    return [f"-I{INCLUDE}", *(f"-I{folder}" for folder in include_dirs("cuda"))]


@cache
def own_texts() -> dict[str, str]:
    files = [path for suffix in ("*.h", "*.cpp") for path in HERE.rglob(suffix)]
    return {path.relative_to(HERE).as_posix(): path.read_text("utf-8") for path in sorted(files)}


def compiled(arguments: Sequence[str], texts: Mapping[str, str], written: Mapping[str, str] | None = None) -> Path:
    """Run g++ with ``arguments`` beside the files ``written``, cached by ``texts``.

    Raise CompileError with the compiler's output.
    """
    tools = toolchain()

    def fill(folder: Path) -> dict[str, str]:
        for name, text in (written or {}).items():
            (folder / name).write_text(text, "utf-8")
        command = [*tools.command, *arguments, "-o", PRODUCT]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise CompileError(done.stderr)
        return {"warnings": done.stderr}

    return kept([tools.command, tools.version, list(arguments), dict(texts)], fill)
