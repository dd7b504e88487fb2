"""Versions of torch that zenc was run with, and of zenc itself, as ranks exchange them."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from functools import cache

import torch

from zenc._version import __version__
from zenc.common.environment import unsound
from zenc.common.resources import PACKAGE, directory

log = logging.getLogger("zenc")

RUN_WITH = ("2.4.1", "2.6.0", "2.8.0", "2.13.0", "2.15.0")
"""Releases of torch that zenc was run with: the whole test suite with 2.13.0, DDP in training with the others; a
release's patches count as run."""


def untested(version: str) -> str:
    """Return a caution about torch ``version``, such as ``2.13.0+cpu``; empty between releases zenc was run with."""
    found = re.match(r"(\d+)\.(\d+)(?=\.|$)", version)
    release = tuple(map(int, found.groups())) if found else (0, 0)
    known = [tuple(map(int, each.split(".")[:2])) for each in RUN_WITH]
    if known[0] <= release <= known[-1]:
        return ""
    return f"zenc was not run with torch {version} yet, but with {', '.join(RUN_WITH)}; it goes on"


@cache
def warn_if_untested(version: str = torch.__version__) -> None:
    """Log ``untested`` once a process, unless it is empty."""
    if told := untested(str(version)):
        log.warning(told)


SWITCH = "ZENC_SOCKETS"
"""The environment variable that decides whether ranks of different hosts use sockets of zenc's own."""


def told_of_zenc() -> str:
    """Return this rank's zenc for its first message: version, sources, settings that are off or wrong."""
    told = {SWITCH: "0"} if os.environ.get(SWITCH) == "0" else {}
    switched = "".join(f" with {name}={value!s:.40}" for name, value in (told | unsound()).items())
    return f"zenc {__version__} (sources {sources_digest()[:8]}){switched}"


@cache
def sources_digest() -> str:
    """Return the SHA-256, in hexadecimal, of zenc's modules and templates: all that decides about code and messages."""
    digest = hashlib.sha256()
    for root, pattern in ((PACKAGE, "*.py"), (directory("templates"), "*")):
        files = {path.relative_to(root).as_posix(): path for path in root.rglob(pattern) if path.is_file()}
        for name in sorted(files):
            if not name.startswith("share/"):
                digest.update(b"%b\0%b\0" % (name.encode(), hashlib.sha256(files[name].read_bytes()).digest()))
    return digest.hexdigest()
