"""``zenc fmt``: which files change, and how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import CHECKOUT, PROGRAM, Write, Zenc

LOOSE = "scheme a{communication:ring}  # why\n"
NEAT = "scheme a {\n    communication: ring\n}  # why\n"
BROKEN = "scheme a { communication ring }\n"


def test_files_are_laid_out(zenc: Zenc, write: Write, tmp_path: Path) -> None:
    loose, neat = write("loose.zen", LOOSE), write("neat.zen", NEAT)
    os.chmod(tmp_path / loose, 0o640)
    before = (tmp_path / neat).stat()
    done = zenc("fmt", loose, neat)
    assert (done.returncode, done.stdout, done.stderr) == (0, "changed loose.zen\n", "")
    assert (tmp_path / loose).read_text() == NEAT
    assert (tmp_path / loose).stat().st_mode & 0o777 == 0o640
    after = (tmp_path / neat).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loose.zen", "neat.zen"]


def test_a_link_stays_a_link(zenc: Zenc, write: Write, tmp_path: Path) -> None:
    (tmp_path / "link.zen").symlink_to(write("loose.zen", LOOSE))
    assert zenc("fmt", "link.zen").returncode == 0
    assert (tmp_path / "link.zen").is_symlink()
    assert (tmp_path / "loose.zen").read_text() == NEAT


def test_check_writes_nothing(zenc: Zenc, write: Write, tmp_path: Path) -> None:
    loose, neat = write("loose.zen", LOOSE), write("neat.zen", NEAT)
    done = zenc("fmt", "--check", loose, neat)
    assert (done.returncode, done.stdout) == (1, "would change loose.zen\n")
    assert (tmp_path / loose).read_text() == LOOSE
    assert zenc("fmt", "--check", neat).returncode == 0


def test_line_ends_of_other_systems_change(zenc: Zenc, tmp_path: Path) -> None:
    (tmp_path / "dos.zen").write_bytes(NEAT.replace("\n", "\r\n").encode())
    assert zenc("fmt", "dos.zen").returncode == 0
    assert (tmp_path / "dos.zen").read_bytes() == NEAT.encode()


def test_what_does_not_parse_is_left(zenc: Zenc, write: Write, tmp_path: Path) -> None:
    done = zenc("fmt", write("broken.zen", BROKEN), write("loose.zen", LOOSE), "none.zen")
    assert (done.returncode, done.stdout) == (1, "changed loose.zen\n")
    assert "broken.zen:1:26: error[syntax]" in done.stderr
    assert "error[unreadable-file]" in done.stderr
    assert (tmp_path / "broken.zen").read_text() == BROKEN


def test_json(zenc: Zenc, write: Write) -> None:
    report = json.loads(zenc("fmt", "--check", "--json", write("loose.zen", LOOSE), write("broken.zen", BROKEN)).stdout)
    assert report["ok"] is False
    assert report["files"] == [{"file": "loose.zen", "changed": True}]
    assert [diagnostic["id"] for diagnostic in report["diagnostics"]] == ["syntax"]
    done = zenc("fmt", "--json", "loose.zen")
    assert done.returncode == 0
    assert json.loads(done.stdout)["ok"] is True


def test_standard_input(tmp_path: Path) -> None:
    def run(text: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-c", PROGRAM, "fmt", "-", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONIOENCODING": "ascii"}
        return subprocess.run(command, input=text, capture_output=True, cwd=tmp_path, env=environment, timeout=120)

    loose, neat = LOOSE.replace("why", "größer").encode(), NEAT.replace("why", "größer").encode()
    assert (run(loose).returncode, run(loose).stdout) == (0, neat)
    assert run(neat).stdout == neat
    assert (run(loose, "--check").returncode, run(loose, "--check").stdout) == (1, b"would change -\n")
    assert json.loads(run(loose, "--json").stdout)["files"] == [{"file": "-", "changed": True, "text": neat.decode()}]
    refused = run(BROKEN.encode())
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert refused.stderr.startswith(b"<stdin>:1:26: error[syntax]")


def test_a_place_that_cannot_be_written(zenc: Zenc) -> None:
    if os.path.exists("/proc/self/comm"):
        done = zenc("fmt", "/proc/self/comm")
        assert done.returncode == 1
        assert "error[" in done.stderr
