"""The plots of the page about the simulator are those that its commands draw."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.pages import ROOT, blocks_of
from zenc.cli import app

PAGE = ROOT / "docs" / "reference" / "cost.md"
COMMANDS = {
    words[words.index("--plot") + 1]: words[1:]
    for block in blocks_of(PAGE)
    for words in (shlex.split(line) for line in block.text.splitlines() if "--plot " in line)
}


def test_there_are_four() -> None:
    assert list(COMMANDS) == ["ranks.svg", "density.svg", "bandwidth.svg", "calibration.svg"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_plot_is_up_to_date(
    name: str, assert_plot: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [str(ROOT / word) if (ROOT / word).is_file() else word for word in COMMANDS[name]]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert_plot(f"images/simulate-{name}", (tmp_path / name).read_text(encoding="utf-8"))
