"""Checks of the installation: zenc's own files, PyTorch, compilers and their kernels, GPUs, matplotlib.

A missing need of GPUs is absent where PyTorch is one for processors, and broken where it is not.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

from zenc._version import __version__
from zenc.codegen.build.cache import DIRECTORY_HELP, ensure_space, entries, not_writable, open_cache, writing
from zenc.codegen.build.nvrtc import find_compiler
from zenc.codegen.build.toolchain import PROBE_SECONDS, Toolchain, ensure_room, install_help, toolchain
from zenc.common.resources import directory
from zenc.doctor import Finding, network, of_error
from zenc.errors import ZencError
from zenc.language.files import LIBRARIES


def examine() -> Iterator[Finding]:
    """Yield the checks in the order of need: some take a second, so show each at once.

    It raises nothing: a failure is a finding.
    """
    yield from _looked_at("zenc", own_files)
    yield from _looked_at("torch", torch_version)
    yield from _looked_at("compiler", compiler)
    yield from _looked_at("cache", cache)
    yield from _looked_at("kernels", trial)
    yield from _looked_at("network", network.interface)
    yield from _looked_at("deadline", deadline)
    yield from _looked_at("gpus", devices)
    yield from _looked_at("gpu compiler", device_compiler)
    yield from _looked_at("nccl", nccl)
    yield from _looked_at("plots", plots)


def _looked_at(name: str, look: Callable[[], Finding]) -> Iterator[Finding]:
    try:
        yield look()
    except ZencError as error:
        yield of_error(name, error)
    except ImportError as problem:  # PyTorch, which has a finding of its own
        yield Finding(name, "broken", f"can't be looked at: {problem}")


def own_files() -> Finding:
    """Check the grammar, templates, manual, diagnostics and schemes; raises InternalError ``broken-installation``."""
    folders = [directory(name) for name in ("diagnostics", "docs", "grammar", "templates", "schemes")]
    schemes = sum(path.name not in LIBRARIES for path in folders[-1].glob("*.zen"))
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("zenc", "good", f"{__version__} with {schemes} schemes, {python}")


def torch_version() -> Finding:
    """Check that PyTorch can be imported, has torch.distributed with gloo, and is a release that zenc was run with."""
    try:
        torch = import_module("torch")
        distributed = import_module("torch.distributed")
    except Exception as failure:  # a broken build fails with whatever it likes
        message = f"can't be imported: {type(failure).__name__}: {failure}"
        return Finding("torch", "broken", message, help="pip install torch")
    version = str(torch.__version__)
    if not (distributed.is_available() and distributed.is_gloo_available()):
        help = "install PyTorch from pytorch.org or PyPI; builds without gloo can't synchronise ranks"
        return Finding("torch", "broken", f"{version} has no torch.distributed with gloo", help=help)
    from zenc.runtime.group.versions import untested

    caution = untested(version)
    return Finding("torch", "warning" if caution else "good", version, (caution,) if caution else ())


def deadline() -> Finding:
    """Check the seconds that any single wait may take; raises ZencError ``bad-deadline``."""
    if "ZENC_DEADLINE_S" not in os.environ:
        value = "the process group's own timeout, init_process_group(timeout=...); deadline= gives another one"
        return Finding("deadline", "good", value)
    from zenc.runtime.load import deadline_of

    return Finding("deadline", "good", f"{deadline_of(None, None):g} s for any single wait, by ZENC_DEADLINE_S")


def plots() -> Finding:
    """Check matplotlib, which only ``--plot`` needs."""
    if find_spec("matplotlib") is None:
        help = "pip install 'zenc[plots]', if you want --plot"
        return Finding("plots", "absent", "matplotlib is not installed", help=help)
    return Finding("plots", "good", f"matplotlib {metadata.version('matplotlib')}")


LITTLE = 100_000_000
"""Bytes of free space below which a warning is due: a scheme's kernels take some MB."""
LEAST = 4_000_000
"""Bytes without which hardly a library can be compiled."""
_SOURCE = '#include <vector>\nextern "C" int answer() { std::vector<int> one(1, 41); return one[0] + 1; }\n'


def compiler() -> Finding:
    """Check the C++ compiler; raises BuildError ``compiler-missing``."""
    found = toolchain()
    return Finding("compiler", "good", f"{found.name} ({' '.join(found.command)})")


def cache() -> Finding:
    """Check the directory of compiled kernels, its owner and space.

    Raises CacheError ``cache-not-writable`` or ``cache-unsafe``.
    """
    path, found = open_cache(), entries()
    free = shutil.disk_usage(path).free
    held = f"{path}: {len(found)} compiled, {sum(entry.size for entry in found) / 1e6:.1f} MB"
    if free < LEAST:
        return of_error("cache", not_writable(path, f"only {free / 1e6:.1f} MB are free"))
    if free < LITTLE:
        return Finding("cache", "warning", f"{held}; only {free / 1e6:.0f} MB free", help=DIRECTORY_HELP)
    return Finding("cache", "good", f"{held}; {free / 1e9:.1f} GB free")


def trial() -> Finding:
    """Compile a library of one function in the cache, and call it; raises BuildError or CacheError as these do."""
    tools, path, started = toolchain(), open_cache(), time.monotonic()
    with writing(path), tempfile.TemporaryDirectory(prefix=".doctor-", dir=path) as folder:
        return _tried(tools, Path(folder)) or Finding(
            "kernels", "good", f"a library was compiled, loaded and called in {time.monotonic() - started:.1f} s"
        )


def _tried(tools: Toolchain, folder: Path) -> Finding | None:
    source, library = folder / "trial.cpp", folder / "trial.so"
    source.write_text(_SOURCE, encoding="utf-8")
    command = (*tools.command, *tools.flags, str(source), "-o", str(library))
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as problem:
        ensure_room(tools.name, problem)
        return Finding("kernels", "broken", f"{tools.name} can't be run: {problem}", help=install_help())
    if done.returncode != 0:
        output = done.stderr.decode("utf-8", "replace")
        ensure_space(folder.parent, output)
        said = tuple(output.splitlines()[:5])
        return Finding("kernels", "broken", f"{tools.name} can't compile C++17", said, install_help())
    try:
        answer = ctypes.CDLL(str(library)).answer()
    except (OSError, AttributeError) as problem:
        help = f"is it mounted noexec? {DIRECTORY_HELP}"
        return Finding("kernels", "broken", f"what was compiled can't be loaded from the cache: {problem}", help=help)
    return None if answer == 42 else Finding("kernels", "broken", "what was compiled gives wrong results")


def devices() -> Finding:
    """Check the GPUs that this process sees, and their driver."""
    import torch

    if torch.version.cuda is None:
        kind = "ROCm" if getattr(torch.version, "hip", None) else "processors only"
        note = ("zenc's GPU kernels are for CUDA",) if kind == "ROCm" else ()
        return Finding("gpus", "absent", f"this PyTorch is for {kind}; zenc runs on the processor", note)
    count = visible()
    if count == 0:
        help = "see what nvidia-smi and CUDA_VISIBLE_DEVICES say, if there should be one"
        return Finding("gpus", "absent", f"PyTorch for CUDA {torch.version.cuda} sees no GPU", help=help)
    from zenc.runtime.gpu.driver import driver

    names = ", ".join(f"{gpu.name} ({gpu.arch})" for gpu in (driver().gpu(i) for i in range(count)))
    return Finding("gpus", "good", f"{count}: {names}")


def device_compiler() -> Finding:
    """Check NVRTC, which GPUs need and ``zenc compile --target cuda`` needs anywhere."""
    try:
        found, reasons = find_compiler()
    except ZencError as error:
        return of_error("gpu compiler", error)
    if found is not None:
        return Finding("gpu compiler", "good", found.name)
    help = "pip install 'zenc[cuda13]' or 'zenc[cuda12]', for GPU kernels"
    return Finding("gpu compiler", "broken" if visible() else "absent", "no NVRTC", reasons, help)


def nccl() -> Finding:
    """Check the NCCL that ranks on GPUs would send by."""
    if not visible():
        return Finding("nccl", "absent", "not needed without GPUs")
    from zenc.runtime.gpu.driver import find_nccl

    found = find_nccl()
    return Finding("nccl", "good", f"{found.version // 10000}.{found.version // 100 % 100} ({found.path})")


def visible() -> int:
    """Return the number of GPUs that PyTorch sees."""
    try:
        import torch
    except Exception:  # said by the finding about torch
        return 0
    return torch.cuda.device_count()
