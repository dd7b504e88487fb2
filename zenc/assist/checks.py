"""Checks of the installation: zenc's own files, PyTorch, compilers and their kernels, GPUs, matplotlib.

A missing need of GPUs is absent where PyTorch is one for processors, and broken where it is not.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from zenc._version import __version__
from zenc.assist.finding import Finding, of_error
from zenc.codegen.build.cache import DIRECTORY_HELP, ensure_space, entries, not_writable, open_cache, writing
from zenc.codegen.build.nvrtc import find_compiler
from zenc.codegen.build.toolchain import PROBE_SECONDS, Toolchain, ensure_room, install_help, toolchain
from zenc.common.resources import directory
from zenc.errors import ZencError
from zenc.language.files import LIBRARIES

NAMED = "GLOO_SOCKET_IFNAME"
_ADDRESS_OF = 0x8915  # SIOCGIFADDR of Linux
_HELP = "ranks on one machine are fine; for several machines, export GLOO_SOCKET_IFNAME={} on each"


@dataclass(frozen=True, slots=True)
class Address:
    """An address of this machine, and the interface that has it if known."""

    text: str
    interface: str | None

    @property
    def is_loopback(self) -> bool:
        """Return whether it reaches this machine alone (127.0.0.0/8, ::1)."""
        return ip_address(self.text).is_loopback

    def __str__(self) -> str:
        speed = _speed(self.interface)
        rate = f", {speed / 1000:g} Gbit/s" if speed else ""
        return f"{self.interface} ({self.text}{rate})" if self.interface else self.text


def interface() -> Finding:
    """Check the interface by name or by this machine's own name, and that gloo can open it."""
    named = os.environ.get(NAMED, "").strip()
    return _by_name(named) if named else _by_hostname()


def _by_name(names: str) -> Finding:
    known = [name for _, name in socket.if_nameindex()]
    for name in names.split(","):
        if name not in known:
            help = f"this machine has {', '.join(known)}"
            return Finding("network", "broken", f"{NAMED}={names}: there is no interface {name!r}", help=help)
        if problem := _refused(interface=name):
            return Finding("network", "broken", f"gloo can't open {name}: {problem}", help=f"set {NAMED} to another")
    return Finding("network", "good", f"{names}, by {NAMED}")


def _by_hostname() -> Finding:
    host, here = socket.gethostname(), addresses()
    own = next((address for address in _resolved(host) if _can_bind(address)), None)
    if problem := _refused():
        help = f"set {NAMED} to one of {', '.join(sorted({address.interface or '' for address in here}))}"
        return Finding("network", "broken", f"gloo can't open an interface: {problem}", help=help)
    address = next((each for each in here if each.text == own), Address(own, None) if own else None)
    if address is not None and not address.is_loopback:
        return Finding("network", "good", f"{address}, which the name {host} resolves to")
    why = f"the name {host} resolves to {own}" if own else f"the name {host} resolves to no address of this machine"
    others = [each for each in here if not each.is_loopback]
    help = _HELP.format(others[0].interface if others else "NAME")
    return Finding("network", "warning", f"loopback: {why}", tuple(f"there is {each}" for each in others), help)


def _resolved(host: str) -> list[str]:
    try:
        return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, None)))
    except OSError:
        return []


def _can_bind(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True


def _refused(**chosen: str) -> str | None:
    """Return the words of gloo where it can't open the interface ``chosen``, or one of its own choice."""
    try:
        from torch.distributed import ProcessGroupGloo
    except ImportError as problem:
        return str(problem)
    try:
        ProcessGroupGloo.create_device(**chosen) if chosen else ProcessGroupGloo.create_default_device()
    except RuntimeError as problem:
        return str(problem).partition("\n")[0]
    return None


def addresses() -> list[Address]:
    """Return the IPv4 addresses of this machine's interfaces on Linux, loopback last; none elsewhere."""
    found = [Address(text, name) for _, name in socket.if_nameindex() if (text := _ipv4(name))]
    return sorted(found, key=lambda address: address.is_loopback)


def _ipv4(name: str) -> str | None:
    try:
        import fcntl

        request = bytearray(struct.pack("256s", name.encode()[:15]))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            fcntl.ioctl(asking.fileno(), _ADDRESS_OF, request)
    except (ImportError, OSError):
        return None
    return socket.inet_ntoa(bytes(request[20:24]))


def _speed(name: str | None) -> int:
    try:
        return max(0, int(Path(f"/sys/class/net/{name}/speed").read_text("ascii")))
    except (OSError, ValueError):
        return 0


def examine() -> Iterator[Finding]:
    """Yield the checks in the order of need: some take a second, so show each at once.

    It raises nothing: a failure is a finding.
    """
    yield from _looked_at("zenc", own_files)
    yield from _looked_at("torch", torch_version)
    yield from _looked_at("compiler", compiler)
    yield from _looked_at("cache", cache)
    yield from _looked_at("kernels", trial)
    yield from _looked_at("network", interface)
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
