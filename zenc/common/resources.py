"""Directories of shipped data, in the wheel or in a checkout; and files that are written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import select
import stat
from contextlib import suppress
from pathlib import Path
from typing import Literal

from zenc.errors import Diagnostic, InternalError, ZencError

PACKAGE = Path(__file__).resolve().parents[1]
"""The directory of zenc's modules."""
_PATIENCE_SECONDS = 60.0
_OWN_STREAM = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})|/dev/std(out|err)")


def directory(name: Literal["diagnostics", "docs", "grammar", "kernels", "templates", "schemes"]) -> Path:
    """Return the directory of shipped data ``name``.

    Raises:
        InternalError: if the installation lacks it.
    """
    for candidate in (PACKAGE / "share" / name, PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    message = f"this installation of zenc has no '{name}' directory"
    raise InternalError(Diagnostic("broken-installation", message, help="install zenc again"))


def fingerprint(text: str) -> str:
    """Return a hash of a grammar's text, which a file of tables carries to name its grammar."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_text(path: str | os.PathLike[str], text: str, help: str | None = None) -> None:
    """Write ``text``, whole or not at all, or into a device or a pipe. A link stays a link, and permissions stay.

    Raises:
        ZencError: ``unwritable-file``, with ``help``.
    """
    try:
        write_bytes(path, text.encode(errors="replace"))
    except OSError as error:
        message = f"can't write {os.fspath(path)!r}: {error.strerror or error}"
        raise ZencError(Diagnostic("unwritable-file", message, help=help)) from error


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content`` as ``write_text`` does a text; raises OSError.

    A regular file is replaced by another one. Any other file stays, and ``content`` goes into it.
    """
    own = _OWN_STREAM.fullmatch(os.path.abspath(path))
    if own is not None:
        return _write_into(os.dup(int(own[1] or ("out", "err").index(own[2]) + 1)), content)
    if os.path.exists(path) and not os.path.isfile(path):
        if stat.S_ISBLK(os.stat(path).st_mode):
            raise OSError("it is a disk")
        return _write_into(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), content)
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError("its links lead in a circle")
    _replace(target, content)


def _write_into(handle: int, content: bytes) -> None:
    try:
        left, poll = memoryview(content), select.poll()
        poll.register(handle, select.POLLOUT)
        while left:
            if not poll.poll(1000 * _PATIENCE_SECONDS):
                raise TimeoutError(f"nobody read from it for {_PATIENCE_SECONDS:g} s")
            with suppress(BlockingIOError):
                left = left[os.write(handle, left) :]
    finally:
        os.close(handle)


def _replace(target: Path, content: bytes) -> None:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:  # never through a link that somebody laid there
            file.write(content)
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        os.replace(temporary, target)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
