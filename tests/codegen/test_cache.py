"""The cache directory: permissions, checks of its entries, and failures."""

import errno
import os
import re
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from zenc.codegen.build import cache, own_files
from zenc.codegen.build.build_once import acquire, open_lock
from zenc.errors import CacheError

NOT_WRITABLE = r"(?s)error\[cache-not-writable\].*ZENC_CACHE_DIR"
KEY = "ab" * 32
STRANGER = 4711
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "cache"))
    return cache.open_cache()


def fill(text: str = "library"):
    def work(folder: Path) -> dict[str, str]:
        (folder / cache.LIBRARY).write_text(text)
        return {"compiler": "none"}

    return work


def test_the_directory_is_the_users_alone(directory):
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("value, expected", [("", "home/.cache/zenc"), ("relative", "home/.cache/zenc")])
def test_the_default_is_in_the_users_cache(tmp_path, monkeypatch, value, expected):
    monkeypatch.delenv("ZENC_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.cache_dir() == tmp_path / expected
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_dir() == tmp_path / "xdg" / "zenc"


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
@pytest.mark.parametrize("above", [False, True])
def test_a_directory_that_others_can_write_is_refused(directory, mode, above):
    """A directory below one that others can write is refused too, unless others can only add to it."""
    place = directory.parent if above else directory
    place.chmod(mode)
    with pytest.raises(CacheError, match=r"(?s)error\[cache-unsafe\].*" + re.escape(f"{place} (mode {mode:o})")):
        cache.open_cache()
    place.chmod(mode | stat.S_ISVTX)
    assert not above or cache.open_cache() == directory


@as_root
@pytest.mark.parametrize("whose", ["directory above", "link", "link above", "directory behind a link"])
def test_what_another_user_could_change_is_not_followed(tmp_path, monkeypatch, whose):
    """Each component of the path and of links in it has to belong to this user or to root."""
    real, link = tmp_path / "real" / "inner", tmp_path / "link"
    real.mkdir(parents=True, mode=0o700)
    above = "above" in whose
    link.symlink_to(os.path.relpath(real.parent if above else real, tmp_path))
    monkeypatch.setenv("ZENC_CACHE_DIR", str(link / "inner" if above else link))
    assert cache.open_cache() == real
    os.lchown(link if whose.startswith("link") else real.parent, STRANGER, STRANGER)
    with pytest.raises(CacheError, match=rf"(?s)error\[cache-unsafe\].*user {STRANGER}"):
        cache.open_cache()


def test_nobody_else_is_trusted_where_the_kernel_tells_no_users(monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "no /proc")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert own_files._unmapped() == 0


@pytest.mark.parametrize("umask", [0, 0o777])
def test_directories_are_the_users_alone_whatever_the_umask(tmp_path, monkeypatch, umask):
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "a" / "b" / "c"))
    before = os.umask(umask)
    try:
        made = cache.open_cache()
        cache.publish(made, KEY, cache.LIBRARY, fill())
    finally:
        os.umask(before)
    assert cache.lookup(made, KEY, cache.LIBRARY)
    assert {path.stat().st_mode & 0o777 for path in (made, made.parent, made.parent.parent)} == {0o700}


def test_links_that_lead_in_circles_are_an_error(tmp_path, monkeypatch):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "a"))
    with pytest.raises(CacheError, match="cache-not-writable"):
        cache.open_cache()


def test_a_user_without_a_home_is_told_of_the_variable(monkeypatch):
    def no_entry(_user: int) -> None:
        raise KeyError

    for name in ("HOME", "ZENC_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_entry)
    with pytest.raises(CacheError, match=NOT_WRITABLE):
        cache.open_cache()


def test_a_cache_that_is_mounted_noexec_is_refused_before_anything_is_compiled(directory, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(CacheError, match=rf"(?s){directory}.*noexec.*ZENC_CACHE_DIR"):
        cache.open_cache()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_built_on_without_one(tmp_path, monkeypatch, code):
    def refuse(*_arguments: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refuse)
    with open_lock(tmp_path / "lock") as lock:
        assert acquire(lock, time.monotonic())


def test_a_directory_of_another_user_is_refused(directory, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(CacheError, match=r"error\[cache-unsafe\]"):
        cache.open_cache()


def test_a_directory_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match=NOT_WRITABLE):
        cache.open_cache()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES])
def test_a_full_or_read_only_disk_is_an_error_of_the_cache(directory, monkeypatch, code):
    def refuse(*_arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(CacheError, match=NOT_WRITABLE):
        cache.publish(directory, KEY, cache.LIBRARY, fill())
    assert list(directory.iterdir()) == []


def test_what_is_published_is_found(directory):
    assert cache.lookup(directory, KEY, cache.LIBRARY) is None
    path = cache.publish(directory, KEY, cache.LIBRARY, fill())
    assert cache.lookup(directory, KEY, cache.LIBRARY) == path
    assert path.read_text() == "library"


@pytest.mark.parametrize("damage", ["truncated", "foreign", "no manifest", "[1]", "[" * 2000, "gone", "a file"])
def test_damaged_entries_are_not_used_and_replaced(directory, damage):
    path = cache.publish(directory, KEY, cache.LIBRARY, fill())
    manifest = path.parent / cache.MANIFEST
    if damage == "truncated":
        path.write_text("libr")
    elif damage == "foreign":
        path.write_text("LIBRARY")
    elif damage == "no manifest":
        manifest.unlink()
    elif damage.startswith("["):
        manifest.write_text(damage)
    else:
        path.unlink()
    if damage == "a file":
        manifest.unlink()
        path.parent.rmdir()
        path.parent.write_text("")
    assert cache.lookup(directory, KEY, cache.LIBRARY) is None and (damage[0] != "[" or cache.entries() == [])
    assert cache.publish(directory, KEY, cache.LIBRARY, fill("new")).read_text() == "new"
    assert cache.lookup(directory, KEY, cache.LIBRARY) is not None


@pytest.mark.parametrize("whose", ["a link", "a linked folder", "another user's", "a fifo"])
def test_entries_that_are_not_the_users_own_are_not_used_and_replaced(directory, tmp_path, monkeypatch, whose):
    """Entries of another owner are not used, whatever their checksums, and nothing is written through a link."""
    path = cache.publish(directory, KEY, cache.LIBRARY, fill())
    elsewhere = tmp_path / "elsewhere"
    if whose == "a link":
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    elif whose == "a linked folder":
        path.parent.rename(elsewhere)
        path.parent.symlink_to(elsewhere)
    elif whose == "a fifo":
        path.unlink()
        os.mkfifo(path)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
    assert cache.lookup(directory, KEY, cache.LIBRARY) is None
    monkeypatch.undo()
    monkeypatch.setenv("ZENC_CACHE_DIR", str(directory))
    assert cache.publish(directory, KEY, cache.LIBRARY, fill("new")).read_text() == "new"
    assert cache.lookup(directory, KEY, cache.LIBRARY) == path and not path.is_symlink()
    kept = {"a link": elsewhere, "a linked folder": elsewhere / cache.LIBRARY}.get(whose)
    assert kept is None or kept.read_text() == "library"


def test_no_lock_is_taken_through_a_link(directory, tmp_path):
    (directory / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        open_lock(directory / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_an_entry_is_whole_for_whoever_looks_while_others_publish_and_damage_it(directory):
    ends = time.monotonic() + 0.5

    def publish(text: str) -> None:
        while time.monotonic() < ends:
            with suppress(CacheError):
                cache.publish(directory, KEY, cache.LIBRARY, fill(text))

    def damage() -> None:
        while time.monotonic() < ends:
            with suppress(OSError):
                (directory / KEY / cache.MANIFEST).write_text("{")

    def look() -> set[str]:
        found = set()
        while time.monotonic() < ends:
            with suppress(OSError):
                if (path := cache.lookup(directory, KEY, cache.LIBRARY)) is not None:
                    found.add(path.read_text())
        return found

    with ThreadPoolExecutor(5) as pool:
        [pool.submit(publish, text) for text in ("a" * 9999, "b" * 9999)], pool.submit(damage)
        seen = [pool.submit(look) for _ in range(2)]
    assert set().union(*(each.result() for each in seen)) <= {"a" * 9999, "b" * 9999}
    assert {path.name for path in directory.iterdir()} <= {KEY}


def test_a_failed_build_leaves_nothing(directory):
    def fail(_folder: Path) -> dict[str, str]:
        raise ValueError

    with pytest.raises(ValueError):
        cache.publish(directory, KEY, cache.LIBRARY, fail)
    assert list(directory.iterdir()) == []


def test_entries_have_sizes_and_dates_and_can_be_cleared(directory):
    cache.publish(directory, KEY, cache.LIBRARY, fill())
    open_lock(directory / f"{KEY}.lock").close()
    (directory / f"{cache.UNFINISHED}a_b4c5d6").mkdir()
    (directory / f"{cache.FAILED}{KEY}").mkdir()
    others = [directory / name for name in ("failed-runs", "headers-old", "poetry.lock", "my_artifact")]
    for path in others:
        path.mkdir()
    (others[-1] / cache.MANIFEST).write_text('{"target": "cpu"}')
    (entry,) = cache.entries()
    assert entry.key == KEY and entry.size > 7 and abs(entry.created.timestamp() - time.time()) < 60
    assert cache.clear() == [entry]
    assert cache.entries() == [] and all(path.exists() for path in others), "a user has other files there, too"
    assert len(list(directory.iterdir())) == len(others)


def test_the_newest_entry_comes_first(directory):
    for age, key in enumerate(["aa" * 32, "bb" * 32, "cc" * 32]):
        manifest = cache.publish(directory, key, cache.LIBRARY, fill()).with_name(cache.MANIFEST)
        os.utime(manifest, (0, 1_700_000_000 - 100 * (age % 2)))
    assert [entry.key[:2] for entry in cache.entries()][-1] == "bb"
    os.utime(manifest, (0, 1_700_000_500))
    assert [entry.key[:2] for entry in cache.entries()] == ["cc", "aa", "bb"]


def test_no_cache_has_no_entries(monkeypatch, tmp_path):
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "none"))
    assert cache.entries() == [] and cache.clear() == []


def test_a_lock_is_waited_for_until_the_deadline(tmp_path):
    with open_lock(tmp_path / "lock") as mine, open_lock(tmp_path / "lock") as theirs:
        assert acquire(theirs, time.monotonic())
        assert not acquire(mine, time.monotonic() + 0.1)
        theirs.close()
        assert acquire(mine, time.monotonic() + 5)


def test_a_lock_of_a_dead_process_is_free(tmp_path):
    child = os.fork()
    if child == 0:
        acquire(open_lock(tmp_path / "lock"), time.monotonic() + 5)
        os._exit(9)  # no clean-up, as when it is killed
    os.waitpid(child, 0)
    with open_lock(tmp_path / "lock") as mine:
        assert acquire(mine, time.monotonic())
