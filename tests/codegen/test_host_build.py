"""Building kernels for the host: announced, timed, kept, and refused by name; entry points with types of C++."""

import ctypes
import errno
import logging
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zenc.api import compile
from zenc.codegen.build import cache, own_files, toolchain
from zenc.codegen.build import host as building
from zenc.codegen.build.host import build, cache_key
from zenc.codegen.build.toolchain import install_help
from zenc.errors import BuildError, CacheError
from zenc.runtime.cpu.bindings import entry_points
from zenc.runtime.cpu.library import load
from zenc.scheme.model import Contiguous

ANSWER = {"kernels.cpp": 'extern "C" int answer() { return 42; }\n'}


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ZENC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiler(tmp_path: Path, script: str) -> str:
    """Make a compiler that runs ``before`` and then calls g++ with the same arguments."""
    path = tmp_path / "compiler"
    path.write_text(f'#!/bin/sh\n{script}\nexec g++ "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_build_is_announced_timed_and_kept(caplog):
    with caplog.at_level(logging.INFO, "zenc"):
        path = build(ANSWER)
    assert ctypes.CDLL(str(path)).answer() == 42
    assert [record.message.split()[0] for record in caplog.records] == ["compiling", "compiled"]
    caplog.clear()
    assert build(ANSWER) == path
    assert not caplog.records


def test_a_notice_reaches_stderr_without_any_logging_set_up():
    log = "import logging; from zenc.common.log import notice; log = logging.getLogger('zenc')"
    code = f"{log}; notice('compiling'); log.info('of no use'); log.warning('zenc.attach: beware')"
    later = "logging.basicConfig(format='%(name)s|%(message)s'); log.warning('once')"
    done = subprocess.run([sys.executable, "-c", f"{code}; {later}"], capture_output=True, text=True, check=True)
    assert done.stderr == "zenc: compiling\nzenc.attach: beware\nzenc|once\n" and done.stdout == ""


@pytest.mark.parametrize("change", ["content", "link", "mode", "manifest"])
def test_a_library_that_is_not_as_it_was_compiled_is_not_loaded(change, tmp_path):
    path = build(ANSWER)
    if change == "content":
        path.write_bytes(path.read_bytes() + b" ")
    elif change == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif change == "mode":
        path.chmod(0o602)
    else:
        path.with_name(cache.MANIFEST).unlink()
    with pytest.raises(OSError):
        own_files.open_library(path)


def test_the_library_that_was_checked_is_the_one_that_is_loaded(monkeypatch):
    """A library that is replaced right after the check is not loaded, and descriptors keep apart."""
    path, other = build(ANSWER), build({"kernels.cpp": 'extern "C" int answer() { return 43; }\n'})
    check = own_files._ensure_as_noted

    def swapped(handle: int, folder: Path) -> None:
        check(handle, folder)
        os.replace(other, path)

    monkeypatch.setattr(own_files, "_ensure_as_noted", swapped)
    assert own_files.open_library(path).answer() == 42
    monkeypatch.undo()
    monkeypatch.setenv("ZENC_CACHE_DIR", str(path.parents[1]))
    assert own_files.open_library(build(ANSWER)).answer() == 42
    assert own_files.open_library(build({"kernels.cpp": 'extern "C" int answer() { return 44; }\n'})).answer() == 44


def test_kernels_that_are_there_need_no_compiler(monkeypatch):
    path = build(ANSWER)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build(ANSWER) == path
    monkeypatch.setattr(building, "_processor", lambda: ["another one"])
    with pytest.raises(BuildError, match="compiler-missing"):
        build(ANSWER)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM])
@pytest.mark.parametrize("when", ["run", "Popen"])
def test_a_compiler_that_lacks_files_or_memory_is_not_a_missing_one(monkeypatch, code, when):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    toolchain._probe.cache_clear()
    if when == "Popen":
        toolchain.toolchain()
    monkeypatch.setattr(subprocess, when, refuse)
    with pytest.raises(BuildError, match=r"(?s)error\[too-few-files\].*ulimit -n"):
        build(ANSWER)


@pytest.mark.parametrize("damage", [b"", b"not a library"])
def test_a_damaged_library_is_built_again(damage):
    path = build(ANSWER)
    path.write_bytes(damage)
    assert ctypes.CDLL(str(build(ANSWER))).answer() == 42


def test_a_missing_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match=r"(?s)error\[compiler-missing\].*" + re.escape(install_help())):
        build(ANSWER)


def test_a_compiler_that_writes_nothing_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "true")
    with pytest.raises(BuildError, match=r"(?s)error\[compile-failed\].*wrote no kernels.so"):
        build(ANSWER)


def test_each_platform_hears_of_its_own_compiler():
    helps = {platform: install_help(platform) for platform in ("linux", "darwin", "freebsd14")}
    assert [platform for platform, help in helps.items() if "apt install" in help] == ["linux"]
    assert [platform for platform, help in helps.items() if "xcode-select --install" in help] == ["darwin"]
    assert all("CXX" in help and "C++17 compiler" in help for help in helps.values())


def test_the_cache_says_what_it_was_compiled_for_and_which_schemes_use_it():
    build(ANSWER, scheme="balanced")
    build(ANSWER, scheme="agsparse")
    build(ANSWER, scheme="../mine")
    (entry,) = cache.entries()
    assert (entry.target, entry.schemes) == ("cpu", ("agsparse", "balanced"))


@pytest.mark.parametrize("command", ["'unclosed", "false"])
def test_a_command_that_is_no_compiler_is_refused(monkeypatch, command):
    monkeypatch.setenv("CXX", command)
    with pytest.raises(BuildError, match=r"error\[compiler-missing\]"):
        build(ANSWER)


def test_a_failing_compile_shows_its_first_lines_and_keeps_the_sources():
    with pytest.raises(BuildError, match="nonsense") as raised:
        build({"kernels.cpp": "nonsense\n"})
    (found,) = raised.value.diagnostics
    assert found.id == "compile-failed"
    kept = Path(found.notes[-1].rpartition(" ")[2])
    assert (kept / "kernels.cpp").read_text() == "nonsense\n"
    assert "nonsense" in (kept / "compiler-output.txt").read_text()


def test_a_full_disk_seen_by_the_compiler_is_an_error_of_the_cache(monkeypatch, tmp_path):
    script = 'case "$*" in *kernels.so*) echo "No space left on device" >&2; exit 1;; esac'
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    with pytest.raises(CacheError, match=r"error\[cache-not-writable\]"):
        build(ANSWER)


def test_a_compiler_without_native_builds_without_it(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("CXX", compiler(tmp_path, 'case "$*" in *march=native*) exit 1;; esac'))
    with caplog.at_level(logging.INFO, "zenc"):
        assert ctypes.CDLL(str(build(ANSWER))).answer() == 42
    assert "does not know -march=native" in caplog.text


def test_a_compiler_that_hangs_is_stopped_with_all_that_it_has_started(monkeypatch, tmp_path):
    started = tmp_path / "started"
    script = f'case "$*" in *kernels.so*) sleep 60 & echo $! > {started}; wait;; esac'
    monkeypatch.setenv("CXX", compiler(tmp_path, script))
    start = time.monotonic()
    with pytest.raises(BuildError, match=r"error\[build-timeout\]"):
        build(ANSWER, deadline_s=2)
    assert time.monotonic() - start < 30
    assert ended(int(started.read_text()))


def ended(process: int) -> bool:
    """Return whether ``process`` ends within seconds, perhaps as a zombie."""
    for _ in range(100):
        status = Path(f"/proc/{process}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_two_processes_at_once_compile_once(monkeypatch, tmp_path):
    log = tmp_path / "log"
    script = f'case "$*" in *kernels.so*) echo compile >> {log}; sleep 1;; esac'
    code = f"from zenc.codegen.build.host import build; print(build({ANSWER!r}))"
    environment = {**os.environ, "CXX": compiler(tmp_path, script)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    first, second = (process.communicate(timeout=120)[0] for process in both)
    assert first == second != ""
    assert log.read_text() == "compile\n"


def test_a_builder_that_dies_does_not_block_the_next(tmp_path):
    started = tmp_path / "started"
    script = f'case "$*" in *kernels.so*) [ -e {started} ] || {{ touch {started}; exec sleep 60; }};; esac'
    code = f"from zenc.codegen.build.host import build; build({ANSWER!r})"
    environment = {**os.environ, "CXX": compiler(tmp_path, script)}
    first = subprocess.Popen([sys.executable, "-c", code], env=environment)
    while not started.exists():
        time.sleep(0.02)
    first.kill()
    first.wait()
    second = subprocess.run([sys.executable, "-c", code], env=environment, timeout=60)
    assert second.returncode == 0


@pytest.mark.parametrize("change", ["sources", "headers", "flags", "version", "macros", "zenc", "abi"])
def test_everything_that_is_compiled_is_in_the_key(monkeypatch, change):
    tools = toolchain.toolchain()
    before = cache_key(ANSWER, tools, "cpu")
    sources, changed = dict(ANSWER), {"flags": tools.flags, "version": tools.version, "macros": tools.macros}
    if change == "sources":
        sources["kernels.cpp"] += " "
    elif change == "headers":
        monkeypatch.setattr(building, "headers", lambda _target: {})
    elif change == "zenc":
        monkeypatch.setattr(building, "__version__", "other")
    elif change == "abi":
        monkeypatch.setattr(building, "ABI_VERSION", -1)
    else:
        changed[change] = ("-O0",) if change == "flags" else "other"
    assert cache_key(sources, toolchain.Toolchain(tools.command, **changed), "cpu") != before


def test_a_library_of_another_version_is_refused():
    text = 'extern "C" long long zenc_abi_version() { return 999; }'
    with pytest.raises(BuildError, match=r"error\[wrong-abi\].*version 999"):
        load({"kernels.cpp": text}, Contiguous())


def test_a_library_without_kernels_is_refused():
    with pytest.raises(BuildError, match=r"error\[library-broken\]"):
        load(ANSWER, Contiguous())


def test_schemes_with_one_mapping_share_an_entry_and_a_process_opens_it_once():
    schemes = [compile("agsparse"), compile("dense_ring"), compile("dense_ring", ranks=4)]
    assert len({load(scheme.sources, scheme.plan.mapping) for scheme in schemes}) == 1
    assert len(cache.entries()) == 1


SOURCE = """
#include "zenc/entry_points.h"
using namespace zenc;
struct Pair {
    i64 first, second;
    i64 sum(float more) { return first + second + i64(more); }
};
i64 half(i64 number, const i64& other) { return (number + other) / 2; }
u64 all(bool given) { return given ? ~0ULL : 0; }
double mean(u32 a, int b, double c) { return (a + b + c) / 3; }
const void* same(const void* address) { return address; }
void add(i64* to) { ++*to; }
const EntryPoint zenc_entry_points[] = {
    entry("half", half), entry("all", all), entry("mean", mean), entry("same", same), entry("add", add),
    entry("sum", Method<&Pair::sum>::call), {},
};
"""


@pytest.fixture(scope="module")
def path() -> Path:
    return build({"half.cpp": SOURCE})


def test_functions_take_and_return_what_they_do_in_cpp(path):
    of, other = entry_points(path), (ctypes.c_int64 * 2)(-(1 << 40), 5)
    at = ctypes.addressof(other)
    assert of["half"](1 << 61, at) == (1 << 60) - (1 << 39)
    assert of["half"](-(1 << 61), at) == -(1 << 60) - (1 << 39)
    assert (of["all"](True), of["all"](0)) == ((1 << 64) - 1, 0)
    assert of["mean"]((1 << 32) - 1, -(1 << 31), 2.5) == ((1 << 31) - 1 + 2.5) / 3
    assert (of["same"](at), of["same"](None)) == (at, None)
    assert of["add"](at) is None and other[0] == 1 - (1 << 40)
    assert of["sum"](at, 2.75) == other[0] + 5 + 2
    with pytest.raises((ctypes.ArgumentError, TypeError)):
        of["half"](at)
    with pytest.raises(ctypes.ArgumentError):
        of["half"](0.5, at)


def test_a_type_without_a_letter_does_not_compile():
    text = SOURCE.replace("u64 all(bool given)", "short all(bool given)")
    with pytest.raises(Exception, match="compile-failed"):
        build({"half.cpp": text})
