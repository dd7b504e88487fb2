"""Versions of torch that zenc was run with, and the version of zenc itself, as ranks tell it to each other."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from functools import cache
from pathlib import Path

import torch

from zenc._version import __version__
from zenc.environment import unsound
from zenc.resources import directory

log = logging.getLogger("zenc")

RUN_WITH = ("2.4.1", "2.6.0", "2.8.0", "2.13.0", "2.15.0")
"""The whole test suite with 2.13.0, and DDP in training with the others; a release's patches count as run."""


def untested(version: str) -> str:
    """A caution about torch ``version``, such as ``2.13.0+cpu``; none between two releases that zenc was run with."""
    found = re.match(r"(\d+)\.(\d+)(?=\.|$)", version)
    release = tuple(map(int, found.groups())) if found else (0, 0)
    known = [tuple(map(int, each.split(".")[:2])) for each in RUN_WITH]
    if known[0] <= release <= known[-1]:
        return ""
    return f"zenc was not run with torch {version} yet, but with {', '.join(RUN_WITH)}; it goes on"


@cache
def warn_if_untested(version: str = torch.__version__) -> None:
    """Log ``untested`` once a process, if there is anything to say."""
    if told := untested(str(version)):
        log.warning(told)


SWITCH = "ZENC_SOCKETS"
"""The environment variable that decides what ranks of different hosts say to each other, and by what."""


def told_of_zenc() -> str:
    """What this rank says of its zenc before anything else: version, sources, what is switched off or badly set."""
    told = {SWITCH: "0"} if os.environ.get(SWITCH) == "0" else {}
    switched = "".join(f" with {name}={value!s:.40}" for name, value in (told | unsound()).items())
    return f"zenc {__version__} (sources {sources_digest()[:8]}){switched}"


@cache
def sources_digest() -> str:
    """The SHA-256, in hexadecimal, of zenc's modules and templates: of all that decides about code and messages."""
    package, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for root, pattern in ((package, "*.py"), (directory("templates"), "*")):
        files = {path.relative_to(root).as_posix(): path for path in root.rglob(pattern) if path.is_file()}
        for name in sorted(files):
            if not name.startswith("share/"):
                digest.update(b"%b\0%b\0" % (name.encode(), hashlib.sha256(files[name].read_bytes()).digest()))
    return digest.hexdigest()
