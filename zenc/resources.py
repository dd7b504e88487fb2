"""Directories of shipped data, in the wheel or in a checkout: grammar, templates, schemes and the manual."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from zenc.errors import Diagnostic, InternalError

_PACKAGE = Path(__file__).resolve().parent


def directory(name: Literal["docs", "grammar", "templates", "schemes"]) -> Path:
    """The directory of shipped data ``name``.

    Raises:
        InternalError: if the installation lacks it.
    """
    for candidate in (_PACKAGE / "share" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    message = f"this installation of zenc has no '{name}' directory"
    raise InternalError(Diagnostic("broken-installation", message, help="install zenc again"))
