"""``zenc draw``, and ``--plot`` of other verbs: files and formats, also where matplotlib is missing."""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import Zenc
from zenc.cli import app
from zenc.errors import Diagnostic, ZencError
from zenc.gradients.profile_generators import uniform
from zenc.gradients.profile_io import dump_profiles
from zenc.select import search
from zenc.simulator.calibration import DEFAULTS


def test_a_file(zenc: Zenc, tmp_path: Path) -> None:
    done = zenc("draw", "balanced", "--ranks", "4", "-o", "out.svg")
    assert (done.returncode, done.stderr) == (0, "")
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
