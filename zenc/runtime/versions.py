"""The versions of torch that zenc was run with, and a word about any other one, which is used all the same."""

from __future__ import annotations

import logging
import re
from functools import cache

import torch

log = logging.getLogger("zenc")

RUN_WITH = ("2.4.1", "2.6.0", "2.8.0", "2.13.0", "2.15.0")
"""The whole test suite with 2.13.0, and DDP in training with the others; a release's patches count as run."""


def untested(version: str) -> str:
    """A caution about torch ``version``, such as ``2.13.0+cpu``; none if zenc was run with this release."""
    found = re.match(r"(\d+)\.(\d+)(?=\.|$)", version)
    release = found[0] if found else version
    if release in {each.rpartition(".")[0] for each in RUN_WITH}:
        return ""
    return f"zenc was not run with torch {version} yet, but with {', '.join(RUN_WITH)}; it goes on"


@cache
def warn_if_untested(version: str = torch.__version__) -> None:
    """Log ``untested`` once a process, if there is anything to say."""
    if told := untested(str(version)):
        log.warning(told)
