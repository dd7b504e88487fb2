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
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from zenc.codegen.build.own_files import MANIFEST, UnsafeError, noted_digest, own_directory, read_own
from zenc.errors import CacheError, Diagnostic

LIBRARY = "kernels.so"
LOCK_SUFFIX = ".lock"
UNFINISHED = ".building-"
FAILED = "failed-"
HEADERS = "headers-"
"""The beginning of the name of a folder of headers that are made from zenc.wire."""
_FOR = "for-"
_OWN = re.compile(rf"[0-9a-f]{{64}}({LOCK_SUFFIX})?|{FAILED}[0-9a-f]{{64}}|{HEADERS}[0-9a-f]{{16}}|{UNFINISHED}\w{{8}}")
"""Names of what zenc makes there; anything else in the directory is the user's, who may have other uses for it."""
DIRECTORY_HELP = "set ZENC_CACHE_DIR to a directory that you alone can write and run programs from, with some space"


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A compiled unit: its key, folder, size in bytes and date of publication, and the schemes that it serves.

    ``target`` is empty where its manifest does not say it, as in earlier versions; ``schemes`` are those that used it.
    """

    key: str
    path: Path
    size: int
    created: datetime
    target: str = ""
    schemes: tuple[str, ...] = ()
    unit: str = ""
    """The digest of the entry's sources and of its processor, without the compiler."""


def cache_dir() -> Path:
    """Return the directory that this process uses, which need not exist yet.

    Raises CacheError ``cache-not-writable`` where the environment names none, and this user has no home.
    """
    named, base = os.environ.get("ZENC_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    try:
        if named:
            return Path(named).expanduser().absolute()
        return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "zenc"
    except RuntimeError as problem:  # no HOME, and no entry in the password database
        message = f"there is no directory for the cache: user {os.geteuid()} has no home"
        raise CacheError(Diagnostic("cache-not-writable", message, help=DIRECTORY_HELP)) from problem


def open_cache() -> Path:
    """Return the cache directory, created with mode 0700 if need be.

    Raises CacheError: ``cache-not-writable`` if it can't be made or its files can't be run, ``cache-unsafe`` if others
    can write to it or to a folder above it.
    """
    path = own_folder(cache_dir())
    with writing(path):
        no_exec = os.statvfs(path).f_flag & os.ST_NOEXEC
    if no_exec:
        raise not_writable(path, "it is mounted noexec, and kernels are run from it", "can't be used")
    return path


def own_folder(path: Path) -> Path:
    """Return ``path``, made if need be, without links; raises CacheError as ``open_cache`` does."""
    try:
        with writing(path):
            return own_directory(path)
    except UnsafeError as problem:
        raise _unsafe(path, str(problem)) from problem


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write below ``path`` into CacheError ``cache-not-writable``."""
    try:
        yield
    except OSError as problem:
        raise not_writable(path, problem.strerror or str(problem)) from problem


def not_writable(path: Path, why: str, what: str = "can't be written") -> CacheError:
    """Return the error of a cache directory that takes no more files."""
    return CacheError(Diagnostic("cache-not-writable", f"the cache {path} {what}: {why}", help=DIRECTORY_HELP))


def ensure_space(path: Path, output: str) -> None:
    """Raise CacheError ``cache-not-writable`` if a compiler's ``output`` says that it found no space."""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        raise not_writable(path, f"no space left on device, there or in {tempfile.gettempdir()}")


def lookup(cache: Path, key: str, product: str) -> Path | None:
    """Return the ``product`` of ``key``, or None where it is missing, damaged or not as published. Never raises.

    A file that another user owns, or behind a link, does not count: the directory may have been open to others before.
    """
    folder = cache / key
    try:
        if not is_own(folder, stat.S_IFDIR):
            return None
        digest = hashlib.sha256(read_own(folder / product)).hexdigest()
        return folder / product if digest == noted_digest(folder) else None
    except (OSError, ValueError, RecursionError, UnsafeError):
        return None


def publish(cache: Path, key: str, product: str, fill: Callable[[Path], dict[str, str]]) -> Path:
    """Make the entry ``key``: ``fill(folder)`` writes sources and ``product``, and returns notes for the manifest.

    An earlier entry is replaced. If ``fill`` raises, nothing is published. Raises CacheError.
    """
    with writing(cache):
        folder = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=cache))
    try:
        notes = fill(folder)
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with writing(cache):
            digest = hashlib.sha256((folder / product).read_bytes()).hexdigest()
            manifest = {"sha256": digest, "created": created, **notes}
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
            for name in (product, MANIFEST):
                (folder / name).chmod(0o600)  # whatever the umask
            replace(folder, cache / key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return cache / key / product


def is_own(path: Path, kind: int) -> bool:
    """Return whether this user owns the file at ``path``, and it is of ``kind``, not a link. Raises OSError."""
    status = path.lstat()
    return stat.S_IFMT(status.st_mode) == kind and status.st_uid == os.geteuid()


def note_use(cache: Path, key: str, scheme: str) -> None:
    """Note in the entry ``key`` that ``scheme`` uses it, unless the cache can't be written."""
    if scheme.isidentifier():
        with suppress(OSError):
            os.close(os.open(cache / key / f"{_FOR}{scheme}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))


def replace(folder: Path, final: Path) -> None:
    """Rename ``folder`` onto ``final``; a process that has the old library mapped keeps it, as it is only unlinked."""
    for _ in range(3):
        try:
            return os.replace(folder, final)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            _remove(final)
    os.replace(folder, final)


def entries() -> list[CacheEntry]:
    """Return all entries of the cache, the newest first, without unfinished builds; empty without a cache."""
    found = []
    for folder in _own_paths(cache_dir()):
        try:
            created = datetime.fromtimestamp((folder / MANIFEST).stat().st_mtime, timezone.utc)
            size = sum(path.stat().st_size for path in folder.iterdir())
            noted = json.loads(read_own(folder / MANIFEST))
            target, unit = str(noted.get("target", "")), str(noted.get("unit", ""))
            schemes = sorted(path.name.removeprefix(_FOR) for path in folder.glob(f"{_FOR}*"))
        except (OSError, ValueError, RecursionError, AttributeError, UnsafeError):
            continue
        found.append(CacheEntry(folder.name, folder, size, created, target, tuple(schemes), unit))
    return sorted(found, key=lambda entry: entry.created, reverse=True)


def clear() -> list[CacheEntry]:
    """Remove all entries, failed and unfinished builds, and locks; return the entries removed.

    Raises CacheError ``cache-not-writable``.
    """
    cache, removed = cache_dir(), entries()
    with writing(cache):
        for path in _own_paths(cache):
            _remove(path)
    return removed


def _own_paths(cache: Path) -> list[Path]:
    try:
        return [path for path in cache.iterdir() if _OWN.fullmatch(path.name)]
    except OSError:
        return []


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=False)
    else:
        path.unlink(missing_ok=True)


def _unsafe(path: Path, why: str) -> CacheError:
    message = f"the cache {path} is not safe to load code from: {why}"
    return CacheError(Diagnostic("cache-unsafe", message, help=f"chmod go-w it if it is yours, or {DIRECTORY_HELP}"))
