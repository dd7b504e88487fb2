"""The cache of compiled units: ``$ZENC_CACHE_DIR``, or ``zenc`` in the user's cache directory.

    cache = { KEY/ , KEY.lock , failed-KEY/ , headers-*/ }
    KEY/  = a product (kernels.so, kernels.cubin), the sources, manifest.json (sha256 of the product, target, compiler,
            date), for-SCHEME*: an empty file for each scheme that used it, since schemes of one mapping share kernels
    KEY   = sha256 of everything that is compiled: sources, headers, flags, compiler, architecture, versions

An entry appears whole or not at all (os.replace of a finished folder), and is used only while its product has the
checksum that its builder noted. The directory must be the user's alone: what lies in it is executed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from zenc.errors import CacheError, Diagnostic

LIBRARY = "kernels.so"
MANIFEST = "manifest.json"
LOCK_SUFFIX = ".lock"
UNFINISHED = ".building-"
FAILED = "failed-"
HEADERS = "headers-"
"""The beginning of a folder of headers that are made of zenc.wire."""
_FOR = "for-"
DIRECTORY_HELP = "set ZENC_CACHE_DIR to a directory that you alone can write, on a file system with some space"


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One compiled unit: its key, folder, size in bytes and date of publication; whom it serves.

    ``target`` is empty where its manifest does not say it, as earlier ones; ``schemes`` are those that used it.
    """

    key: str
    path: Path
    size: int
    created: datetime
    target: str = ""
    schemes: tuple[str, ...] = ()


def cache_dir() -> Path:
    """The directory that this process uses, which need not exist yet."""
    named = os.environ.get("ZENC_CACHE_DIR")
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "zenc"


def open_cache() -> Path:
    """The cache directory, created with mode 0700 if need be.

    Raises CacheError: ``cache-not-writable`` if it can't be made, ``cache-unsafe`` if others own it or can write it.
    """
    path = cache_dir()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
    if status.st_uid != os.geteuid():
        raise _unsafe(path, f"it belongs to user {status.st_uid}, and this is user {os.geteuid()}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unsafe(path, f"others can write it (mode {stat.S_IMODE(status.st_mode):o})")
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failure to write below ``path`` into CacheError ``cache-not-writable``."""
    try:
        yield
    except OSError as problem:
        raise not_writable(path, problem.strerror or str(problem)) from problem


def not_writable(path: Path, why: str) -> CacheError:
    """The error of a cache directory that takes no more files."""
    return CacheError(
        Diagnostic("cache-not-writable", f"the cache {path} can't be written: {why}", help=DIRECTORY_HELP)
    )


def lookup(cache: Path, key: str, product: str) -> Path | None:
    """The ``product`` of ``key``, or None where it is missing, damaged or not what was published. Never raises.

    Nor is what another user owns, or what a link leads to: the directory may have been open to others before.
    """
    folder = cache / key
    try:
        if not (_is_own(folder, stat.S_IFDIR) and _is_own(folder / product, stat.S_IFREG)):
            return None
        noted = json.loads((folder / MANIFEST).read_text("utf-8"))["sha256"]
        return folder / product if _sha256(folder / product) == noted else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def publish(cache: Path, key: str, product: str, fill: Callable[[Path], dict[str, str]]) -> Path:
    """Make the entry ``key``: ``fill(folder)`` writes sources and ``product``, and returns notes for the manifest.

    Whatever stood there is replaced. If ``fill`` raises, nothing is published. Raises CacheError.
    """
    with writing(cache):
        folder = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=cache))
    try:
        notes = fill(folder)
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with writing(cache):
            manifest = {"sha256": _sha256(folder / product), "created": created, **notes}
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
            replace(folder, cache / key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return cache / key / product


def _is_own(path: Path, kind: int) -> bool:
    """Whether this user owns what lies at ``path``, and it is of a ``kind``; a link is of none. Raises OSError."""
    status = path.lstat()
    return stat.S_IFMT(status.st_mode) == kind and status.st_uid == os.geteuid()


def note_use(cache: Path, key: str, scheme: str) -> None:
    """Note in the entry ``key`` that ``scheme`` uses it. A cache that can't be written goes without."""
    if scheme.isidentifier():
        with suppress(OSError):
            (cache / key / f"{_FOR}{scheme}").touch()


def replace(folder: Path, final: Path) -> None:
    """Rename onto ``final``. A process that has the old library mapped keeps it: its files are only unlinked."""
    for _ in range(3):
        try:
            return os.replace(folder, final)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            _remove(final)
    os.replace(folder, final)


def entries() -> list[CacheEntry]:
    """All entries of the cache, the newest first; none where there is no cache yet. Unfinished builds are left out."""
    found = []
    for folder in _subfolders(cache_dir()):
        try:
            created = datetime.fromtimestamp((folder / MANIFEST).stat().st_mtime, timezone.utc)
            size = sum(path.stat().st_size for path in folder.iterdir())
            target = str(json.loads((folder / MANIFEST).read_text("utf-8")).get("target", ""))
            schemes = sorted(path.name.removeprefix(_FOR) for path in folder.glob(f"{_FOR}*"))
        except (OSError, ValueError, AttributeError):
            continue
        found.append(CacheEntry(folder.name, folder, size, created, target, tuple(schemes)))
    return sorted(found, key=lambda entry: entry.created, reverse=True)


def clear() -> list[CacheEntry]:
    """Remove all entries, failed and unfinished builds, and locks. Returns the entries removed.

    Raises CacheError ``cache-not-writable``.
    """
    cache, removed = cache_dir(), entries()
    with writing(cache):
        for entry in removed:
            _remove(entry.path)
        for folder in _subfolders(cache):
            if folder.name.startswith((UNFINISHED, FAILED, HEADERS)):
                _remove(folder)
        for lock in cache.glob(f"*{LOCK_SUFFIX}"):
            lock.unlink(missing_ok=True)
    return removed


def _subfolders(cache: Path) -> list[Path]:
    try:
        return [path for path in cache.iterdir() if path.is_dir()]
    except OSError:
        return []


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=False)
    else:
        path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _unsafe(path: Path, why: str) -> CacheError:
    message = f"the cache {path} is not safe to load code from: {why}"
    return CacheError(Diagnostic("cache-unsafe", message, help=f"chmod 700 it if it is yours, or {DIRECTORY_HELP}"))
