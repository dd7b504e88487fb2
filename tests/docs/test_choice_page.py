"""The plot of the page about choice is the one that its command draws."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.pages import ROOT, blocks_of
from zenc.cli import app

(COMMAND,) = (
    shlex.split(line)
    for block in blocks_of(ROOT / "docs" / "guides" / "choice.md")
    for line in block.text.splitlines()
    if line.startswith("zenc tune") and "--plot " in line
)


def test_the_plot_is_up_to_date(
    assert_plot: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, COMMAND[1:])
    assert done.exit_code == 0, done.output
    assert_plot("images/tune-best.svg", (tmp_path / "best.svg").read_text(encoding="utf-8"))
