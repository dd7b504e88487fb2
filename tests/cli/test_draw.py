"""``zenc draw``: files and formats."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Zenc

Write = Callable[[str, str], str]


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


def test_what_cannot_be_drawn(zenc: Zenc, write: Write) -> None:
    assert "error[drawing-too-large]" in zenc("draw", "balanced", "--ranks", "257").stderr
    done = zenc("draw", "balanced", "--steps", "2")
    assert done.returncode == 1
    assert "error[no-such-step]: among 4 ranks the scheme has no such step\n  note: steps of" in done.stderr
    done = zenc("draw", "balanced", "-o", f"{write('a_file', '')}/out.svg")
    assert done.returncode == 1 and "error[unwritable-file]" in done.stderr
