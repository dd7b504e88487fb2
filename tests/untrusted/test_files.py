"""Paths of devices, pipes and the like, read from and written to."""

import ast
import os
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forked import run_zenc
from tests.support.refusals import refusals
from tests.support.sources import dotted, tree_of
from tests.test_layers import MODULES
from zenc.common.resources import write_text
from zenc.common.untrusted import open_file, read_bytes
from zenc.errors import ZencError
from zenc.report.measured import read_measured
from zenc.simulator.calibration import read_calibration
from zenc.topology.load import load_topology

READING = re.compile(
    r"(open|os\.open|os\.fdopen|io\.open|.*\.(read|write)_(text|bytes)|os\.(replace|rename)|tempfile\..*)"
)
PLACES = {
    "zenc.common.untrusted": "the function that reads",
    "zenc.common.resources": "the function that writes",
    "zenc.codegen.build.cache": "the cache, with checks of its own",
    "zenc.codegen.build.own_files": "the checks of the cache",
    "zenc.codegen.build.build_once": "the cache",
    "zenc.codegen.build.host": "the cache",
    "zenc.codegen.build.gpu_kernels": "the cache",
    "zenc.codegen.build.shipped": "kernels that zenc has come with",
    "zenc.codegen.render": "own templates, and the cache",
    "zenc.assist.checks": "the cache, and /sys",
    "zenc.runtime.transports.shared_memory": "memory of peers, own templates",
    "zenc.editor.tokens": "own grammar, of developers",
    "zenc.language.generate_tables": "own grammar, of developers",
    "zenc.language.lexer": "own grammar",
    "zenc.assist.manual": "own manual",
    "zenc.draw.scene": "own templates",
    "zenc.runtime.group.versions": "own modules",
    "zenc.lab.cluster": "/proc, of counters",
    "zenc.lab.namespaces": "/proc/sys",
    "zenc.cli.common": "/dev/null",
    "zenc.cli.assist.new": "a new file, and never one that is there",
}
"""Modules that open files themselves, with the functions; all others read and write by two functions."""


def opened(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            of_mode = name.endswith(".open") and isinstance(getattr((node.args or [None])[0], "value", None), str)
            if READING.fullmatch(name) or of_mode:
                yield name


def test_paths_are_read_and_written_in_one_place() -> None:
    found = {name for name, path in MODULES.items() if list(opened(tree_of(path)))}
    assert found == set(PLACES)


def node(folder: Path, kind: str) -> Path:
    """Make a ``kind`` of irregular file, and return its path."""
    path = folder / "node"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        import socket

        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "link":
        os.mkfifo(folder / "pipe")
        path.symlink_to(folder / "pipe")
    else:
        path = Path(kind)
    return path


KINDS = ("pipe", "directory", "socket", "link", "/dev/zero", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ['topology t { like "PATH" }', 'import "PATH"\ntopology t { like ring(2) }'])
def test_a_path_in_a_text_is_a_regular_file(tmp_path: Path, kind: str, text: str) -> None:
    (found,) = refusals(ZencError, load_topology, text.replace("PATH", str(node(tmp_path, kind))))
    assert found.id in ("unreadable-file", "missing-import") and found.span is not None


READERS = ["check", "explain", "draw", "topo show", "compile", "fmt", "new x --from", "report -o r.html", "simulate"]


@pytest.mark.parametrize(
    ("words", "kind"),
    [*((words, "pipe") for words in READERS), *(("check", k) for k in ("socket", "/dev/zero", "/dev/tty"))],
)
def test_a_text_that_a_user_names_is_a_regular_file(tmp_path: Path, words: str, kind: str) -> None:
    done = run_zenc([*words.split(), str(node(tmp_path, kind))], tmp_path, dict(os.environ))
    assert done.returncode in (1, 2) and ("unreadable-file" in done.stderr or "no regular file" in done.stderr)


@pytest.mark.parametrize("read", [read_calibration, read_measured])
def test_data_that_a_user_names_may_come_from_a_pipe_and_is_not_waited_for_long(tmp_path: Path, read) -> None:
    with pytest.raises(ZencError, match="nobody writes to"):
        read(node(tmp_path, "pipe"))


def test_a_pipe_is_read_to_its_end_or_for_so_long(tmp_path: Path, monkeypatch) -> None:
    path = node(tmp_path, "pipe")
    writer = threading.Thread(target=path.write_bytes, args=(b"x" * 200_000,))
    writer.start()
    assert read_bytes(path, 1 << 20, pipes=True) == b"x" * 200_000
    writer.join()
    monkeypatch.setattr("zenc.common.untrusted.PATIENCE_SECONDS", 0.2)
    silent = os.open(path, os.O_RDWR)
    with pytest.raises(ValueError, match="did not end"):
        read_bytes(path, 1 << 20, pipes=True)
    os.close(silent)
    with pytest.raises(ValueError, match="it is a pipe, and no regular file"):
        open_file(path)


WRITERS = (
    "draw dense_ring -o",
    "report dense_ring --ranks 2 -o",
    "topo show ring(2) -o",
    "topo convert ring(2) -o",
    "profile draw --units 10 --density 0.1 -o",
    "simulate dense_ring --ranks 2 --trace",
    "simulate dense_ring --ranks 2,4 --plot",
    "tune --ranks 2 --density 0.1 --units 100 --width 4 -o",
)
"""Verbs that write a file of a given path."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize("words", WRITERS)
def test_no_device_or_pipe_is_replaced(tmp_path: Path, words: str) -> None:
    """A pipe takes the text, a full device is an error, and both stay what they are."""
    pipe = node(tmp_path, "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    held = os.open(pipe, os.O_RDWR)
    taken: list[bytes] = []
    os.set_blocking(reader, True)
    thread = threading.Thread(target=lambda: [taken.append(b) for b in iter(lambda: os.read(reader, 1 << 16), b"")])
    thread.start()
    done = run_zenc([*words.split(), str(pipe)], tmp_path, dict(os.environ))
    os.close(held)
    thread.join()
    os.close(reader)
    assert done.returncode == 0, done.stderr
    assert b"".join(taken) and stat.S_ISFIFO(pipe.stat().st_mode)
    full = tmp_path / "full"
    try:
        os.mknod(full, stat.S_IFCHR | 0o600, os.makedev(1, 7))  # /dev/full, which root could replace
    except PermissionError:
        full.symlink_to("/dev/full")
    done = run_zenc([*words.split(), str(full)], tmp_path, dict(os.environ))
    assert done.returncode == 1 and "unwritable-file" in done.stderr
    assert stat.S_ISCHR(full.stat().st_mode)
    assert {each.name for each in tmp_path.iterdir()} == {"node", "full"}


def test_a_link_that_leads_to_itself_stays(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ZencError, match="unwritable-file"):
        write_text(loop, "text")
    assert loop.is_symlink()


DRAWERS = [words for words in WRITERS if re.search("draw d|report|show|plot", words)]
ENDINGS = ["png", "BMP", "pdf", "svg.gz"]


@pytest.mark.parametrize(
    ("words", "ending"), [(words, ENDINGS[number % len(ENDINGS)]) for number, words in enumerate(DRAWERS)]
)
def test_a_drawing_has_no_name_of_another_kind(tmp_path: Path, words: str, ending: str) -> None:
    done = run_zenc([*words.split(), f"x.{ending}"], tmp_path, dict(os.environ))
    assert done.returncode == 2 and "by its name" in done.stderr.replace("\n", " ") and not list(tmp_path.iterdir())


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    path = node(tmp_path, "pipe")
    with pytest.raises(ZencError, match="unwritable-file"):
        write_text(path, "x")
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_own_streams_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Standard output may be a regular file, where later output follows."""
    done = run_zenc(["draw", "dense_ring", "-o", "/dev/stdout"], tmp_path, dict(os.environ))
    assert done.stdout.startswith("<svg") and done.stdout.rstrip().splitlines()[-1].startswith("/dev/stdout: ")
