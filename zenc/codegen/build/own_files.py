"""Directories and files that only this user and root can change, since their contents are run.

A directory is safe if it and all above it belong to this user or root, and others can't write to them, or only to add
to them (sticky, as /tmp is). Links on the way belong to this user or root, too.
"""

from __future__ import annotations

import ctypes
import errno
import grp
import hashlib
import json
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

MANIFEST = "manifest.json"
_MOST_LINKS = 40
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NAMES: dict[tuple[int, int], str] = {}
"""The libraries that this process has opened: device and inode -> name. Their descriptors stay open, since the loader
takes two files of one name for one library."""


class UnsafeError(Exception):
    """An error of a path that somebody else could change: its text says who, and where."""


def own_directory(path: Path) -> Path:
    """Return the directory at ``path``, an absolute one, without links; made with mode 0700 where it is missing.

    Raises UnsafeError unless it is safe and this user's alone, and OSError.
    """
    at, ahead, links = Path(path.root), list(reversed(path.parts[1:])), 0
    _ensure_safe(at, at.lstat())
    while ahead:
        here = at / ahead.pop()
        status = _made(here)
        if stat.S_ISLNK(status.st_mode):
            _ensure_owner(here, status)
            target, links = Path(os.readlink(here)), links + 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            at = Path(target.root) if target.is_absolute() else at
            ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        elif not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        else:
            _ensure_safe(here, status)
            at = at.parent if here.name == ".." else here
    _ensure_alone(at, at.lstat())
    return at


def _made(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)  # whatever the umask leaves of it
        return path.lstat()


def _ensure_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in {0, os.geteuid(), _unmapped()}:
        raise UnsafeError(f"{path} belongs to user {status.st_uid}, and this is user {os.geteuid()}")


def _ensure_safe(path: Path, status: os.stat_result) -> None:
    _ensure_owner(path, status)
    own_group = not status.st_mode & stat.S_IWOTH and _is_own_group(status.st_gid)
    if status.st_mode & _OTHERS and not (status.st_mode & stat.S_ISVTX or own_group):
        raise UnsafeError(f"others can write to {path} (mode {stat.S_IMODE(status.st_mode):o})")


def _ensure_alone(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise UnsafeError(f"{path} belongs to user {status.st_uid}, and this is user {os.geteuid()}")
    if status.st_mode & _OTHERS:
        raise UnsafeError(f"others can write to {path} (mode {stat.S_IMODE(status.st_mode):o})")


def _is_own_group(group: int) -> bool:
    """Return whether ``group`` is this user's alone, as under umask 002: named like the user, and without others."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_uid != 0 and user.pw_gid == group and found.gr_name == user.pw_name and not found.gr_mem


def _unmapped() -> int:
    """Return the owner of root's files seen in a user namespace without a root; 0 elsewhere."""
    try:
        ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text("ascii").splitlines()]
        nobody = int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
    except (OSError, ValueError):
        return 0
    return 0 if any(first <= nobody < first + many for first, _, many in ranges) else nobody


def read_own(path: Path) -> bytes:
    """Return the content of a regular file of this user, which no other can write; raises UnsafeError and OSError."""
    with os.fdopen(_open_own(path), "rb") as file:
        return file.read()


def _open_own(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeError(f"{path} is no regular file")
        _ensure_alone(path, status)
    except UnsafeError:
        os.close(handle)
        raise
    return handle


def noted_digest(folder: Path) -> str:
    """Return the sha256 of the product in the manifest of ``folder``; raises UnsafeError, OSError, and ValueError."""
    noted = json.loads(read_own(folder / MANIFEST))
    if not isinstance(noted, dict) or not isinstance(noted.get("sha256"), str):
        raise ValueError("it notes no digest")
    return str(noted["sha256"])


def open_library(path: Path) -> ctypes.CDLL:
    """Open the library at ``path`` in the cache: the checked file is the one that is loaded. Raises OSError."""
    try:
        handle = _open_own(path)
    except UnsafeError as problem:
        raise OSError(str(problem)) from problem
    known = _identity(os.fstat(handle))
    if known in _NAMES:
        os.close(handle)
        return ctypes.CDLL(_NAMES[known])
    try:
        _ensure_as_noted(handle, path.parent)
    except BaseException:
        os.close(handle)
        raise
    _NAMES[known] = _descriptor_path(handle) or str(path)
    return ctypes.CDLL(_NAMES[known])


def _ensure_as_noted(handle: int, folder: Path) -> None:
    try:
        noted = noted_digest(folder)
    except (UnsafeError, ValueError) as problem:
        raise OSError(f"its manifest can't be read: {problem}") from problem
    with os.fdopen(os.dup(handle), "rb") as file:
        if hashlib.sha256(file.read()).hexdigest() != noted:
            raise OSError("it is not what was compiled")


def _descriptor_path(handle: int) -> str | None:
    try:
        name = f"/proc/{os.readlink('/proc/self')}/fd/{handle}"
        return name if _identity(os.stat(name)) == _identity(os.fstat(handle)) else None
    except OSError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
