"""``zenc draw``, ``--plot`` and ``zenc fmt``: files and formats, which change, and where matplotlib is missing."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import CHECKOUT, PROGRAM, Write, Zenc
from zenc.cli import app
from zenc.errors import Diagnostic, ZencError
from zenc.gradients.profile_generators import uniform
from zenc.gradients.profile_io import dump_profiles
from zenc.select import search
from zenc.simulator.calibration import DEFAULTS


def test_a_file(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("draw", "balanced", "--ranks", "4", "-o", "out.svg")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out.svg: balanced among 4 ranks, 24 moves in 2 steps\n"
    assert ElementTree.parse(tmp_path / "out.svg").getroot().tag.endswith("svg")
    assert os.listdir(tmp_path) == ["out.svg"]


def test_standard_output_is_the_file(zenc: Zenc, new_zenc: Zenc, tmp_path: Path) -> None:
    zenc("draw", "dense_ring", "--phase", "push", "--steps", "..2", "-o", "out.svg")
    done = new_zenc("draw", "dense_ring", "--phase", "push", "--steps", "..2", PYTHONIOENCODING="ascii")
    assert done.stdout == (tmp_path / "out.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("steps", "numbers"), [("2..3", [2, 3]), ("3..", [3]), ("2", [2]), ("..1", [1]), ("1..9", [1, 2, 3])]
)
def test_steps(zenc: Zenc, steps: str, numbers: list[int]) -> None:
    report = json.loads(zenc("draw", "dense_ring", "--phase", "pull", "--steps", steps, "--json").stdout)
    assert [step["number"] for step in report["steps"]] == numbers
    assert report["ok"] and report["file"] is None and report["svg"].startswith("<svg ")


VERBS = {
    "simulate": (["simulate", "balanced", "--ranks", "2,4", "--units", "1000"], "2 ranks, density 0.01"),
    "tune": (["tune", "--ranks", "2", "--units", "1000", "--density", "0.1"], "schemes predicted for 2 ranks"),
    "profile": (["profile", "show", "profile.json"], "densification"),
    "calibrate": (["calibrate", "--read", "calibration.json"], "fan-in"),
}


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    (tmp_path / "profile.json").write_text(dump_profiles([uniform(0.1, 100)]))
    (tmp_path / "calibration.json").write_text(json.dumps(DEFAULTS.to_json()))


@pytest.mark.usefixtures("without_matplotlib")
@pytest.mark.parametrize("verb", VERBS)
def test_the_table_is_printed_all_the_same(verb: str, tmp_path: Path) -> None:
    command, table = VERBS[verb]
    done = CliRunner().invoke(app, [*command, "--plot", "out.svg"])
    assert done.exit_code == 1 and table in done.stdout
    assert "error[plots-missing]" in done.stderr and "pip install zenc[plots]" in done.stderr
    assert not (tmp_path / "out.svg").exists()


@pytest.mark.usefixtures("without_matplotlib")
def test_it_is_said_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    def searched(*_: object) -> search.TunedScheme:
        said.append(capsys.readouterr().err)
        raise ZencError(Diagnostic("no-scheme-found", "far enough"))

    monkeypatch.setattr(search, "tune", searched)
    with pytest.raises(SystemExit):
        app([*VERBS["tune"][0], "--plot", "out.svg"], standalone_mode=False)
    assert said and "error[plots-missing]" in said[0]


@pytest.mark.usefixtures("without_matplotlib")
def test_json_says_so_too() -> None:
    done = CliRunner().invoke(app, ["profile", "show", "profile.json", "--json", "--plot", "out.svg"])
    found = json.loads(done.stdout)
    assert (found["ok"], found["file"], found["diagnostics"][0]["id"]) == (False, None, "plots-missing")
    assert found["profiles"], "the numbers are there"


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
    assert b"standard input is longer than 400 kB" in run(b"#" * 400_001).stderr


def test_a_place_that_cannot_be_written(zenc: Zenc) -> None:
    if os.path.exists("/proc/self/comm"):
        done = zenc("fmt", "/proc/self/comm")
        assert done.returncode == 1
        assert "error[" in done.stderr
