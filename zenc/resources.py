"""Directories of shipped data, in the wheel or in a checkout; and files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Literal

from zenc.errors import Diagnostic, InternalError, ZencError

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


def write_text(path: str | os.PathLike[str], text: str, help: str | None = None) -> None:
    """Write ``text``, whole or not at all. A link stays a link, and permissions stay.

    Raises:
        ZencError: ``unwritable-file``, with ``help``.
    """
    target = Path(path).resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(
            temporary, "x", encoding="utf-8", newline=""
        ) as file:  # never through a link that somebody laid there
            file.write(text)
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        os.replace(temporary, target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        message = f"can't write {os.fspath(path)!r}: {error.strerror or error}"
        raise ZencError(Diagnostic("unwritable-file", message, help=help)) from error
