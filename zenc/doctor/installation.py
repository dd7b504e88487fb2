"""Installed software: zenc's own files, PyTorch and its range, matplotlib; and the deadline that is in force."""

from __future__ import annotations

import os
import platform
import re
from importlib import import_module, metadata
from importlib.util import find_spec

from zenc._version import __version__
from zenc.doctor.finding import Finding
from zenc.resources import directory

_CONDITION = re.compile(r"(>=|<=|==|!=|<|>)\s*([\d.]+)")


def own_files() -> Finding:
    """The grammar, templates, manual and schemes. Raises InternalError ``broken-installation``."""
    folders = [directory(name) for name in ("grammar", "templates", "docs", "schemes")]
    schemes = sum(1 for _ in folders[-1].glob("*.zen")) - 1  # patterns.zen is none
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("zenc", "good", f"{__version__} with {schemes} schemes, {python}")


def torch_version() -> Finding:
    """PyTorch: whether it can be imported, has torch.distributed with gloo, and is of a version that zenc takes."""
    wanted = torch_range()
    try:
        torch = import_module("torch")
        distributed = import_module("torch.distributed")
    except Exception as failure:  # a broken build fails with whatever it likes
        message = f"can't be imported: {type(failure).__name__}: {failure}"
        return Finding("torch", "broken", message, help=f"pip install 'torch{wanted}'")
    version = str(torch.__version__)
    if not (distributed.is_available() and distributed.is_gloo_available()):
        help = "install PyTorch from pytorch.org or PyPI; builds without gloo can't synchronise ranks"
        return Finding("torch", "broken", f"{version} has no torch.distributed with gloo", help=help)
    if not fits(version, wanted):
        help = f"zenc is run with torch{wanted}; with another one its tests may not hold"
        return Finding("torch", "warning", f"{version}, and zenc takes {wanted}", help=help)
    return Finding("torch", "good", f"{version} (zenc takes {wanted or 'any'})")


def torch_range() -> str:
    """The versions of torch that zenc's metadata require, such as ``>=2.13``; empty where zenc is not installed."""
    try:
        demands = metadata.requires("zenc") or []
    except metadata.PackageNotFoundError:
        return ""
    found = [demand.partition(";")[0] for demand in demands if re.match(r"torch\b(?!-)", demand)]
    return ",".join("".join(condition) for demand in found for condition in _CONDITION.findall(demand))


def fits(version: str, wanted: str) -> bool:
    """Whether ``version`` meets all conditions of ``wanted``; local parts such as ``+cpu`` do not count."""
    has = _numbers(re.split(r"[+a-z]", version)[0])
    return all(_holds(has, word, _numbers(limit)) for word, limit in _CONDITION.findall(wanted))


def _numbers(version: str) -> tuple[int, ...]:
    parts = [int(part) for part in version.split(".") if part.isdigit()]
    return tuple(parts + [0] * (4 - len(parts)))


def _holds(has: tuple[int, ...], word: str, limit: tuple[int, ...]) -> bool:
    holds = {
        ">=": has >= limit,
        "<=": has <= limit,
        "<": has < limit,
        ">": has > limit,
        "==": has == limit,
        "!=": has != limit,
    }
    return holds[word]


def deadline() -> Finding:
    """Seconds that any single wait may take. Raises ZencError ``bad-deadline``."""
    if "ZENC_DEADLINE_S" not in os.environ:
        value = "the process group's own timeout, init_process_group(timeout=...); deadline= gives another one"
        return Finding("deadline", "good", value)
    from zenc.runtime.load import deadline_of

    return Finding("deadline", "good", f"{deadline_of(None, None):g} s for any single wait, by ZENC_DEADLINE_S")


def plots() -> Finding:
    """matplotlib, which ``--plot`` needs and nothing else does."""
    if find_spec("matplotlib") is None:
        help = "pip install 'zenc[plots]', if you want --plot"
        return Finding("plots", "absent", "matplotlib is not installed", help=help)
    return Finding("plots", "good", f"matplotlib {metadata.version('matplotlib')}")
