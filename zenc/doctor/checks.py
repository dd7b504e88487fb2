"""Installed software: zenc's own files, PyTorch, matplotlib; and the deadline that is in force."""

from __future__ import annotations

import os
import platform
from importlib import import_module, metadata
from importlib.util import find_spec

from zenc._version import __version__
from zenc.doctor import Finding
from zenc.resources import directory


def own_files() -> Finding:
    """The grammar, templates, manual and schemes. Raises InternalError ``broken-installation``."""
    folders = [directory(name) for name in ("grammar", "templates", "docs", "schemes")]
    schemes = sum(1 for _ in folders[-1].glob("*.zen")) - 1  # patterns.zen is none
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return Finding("zenc", "good", f"{__version__} with {schemes} schemes, {python}")


def torch_version() -> Finding:
    """PyTorch: whether it can be imported, has torch.distributed with gloo, and is a release that zenc was run with."""
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
    from zenc.runtime.versions import untested

    caution = untested(version)
    return Finding("torch", "warning" if caution else "good", version, (caution,) if caution else ())


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
