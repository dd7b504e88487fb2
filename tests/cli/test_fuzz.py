"""The program on arbitrary files: it ends with 0 or 1, says why, and never reports a bug of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import given
from typer.main import get_command
from typer.testing import CliRunner

from tests.support.damage import damaged_bytes
from tests.support.fuzz import fuzzed
from tests.support.words import FOREIGN, WORDS
from zenc.cli import app
from zenc.common.resources import directory

TEXTS = [path.read_bytes() for path in sorted(directory("schemes").rglob("*.zen"))]
_CLUSTERS = [Path(__file__).parents[1] / "topology" / "samples", directory("schemes") / "topologies"]
CLUSTERS = [path.read_bytes() for folder in _CLUSTERS for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module", autouse=True)
def built_once() -> Iterator[None]:
    """Typer's program, built once, since building it costs more than most inputs do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer.testing, "_get_command", cache(get_command))
        yield


def done(*arguments: str | Path) -> tuple[int, str]:
    """Return the exit status and the output, which has errors if the status is 1."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code in (0, 1), result.stderr
    assert (result.exit_code == 1) == ("error[" in result.stderr), result.stderr
    assert "error[internal]" not in result.stderr
    return result.exit_code, result.stdout or result.stderr


@fuzzed(30)
@given(damaged_bytes(CLUSTERS, [*WORDS, *FOREIGN]))
def test_topo(tmp_path: Path, data: bytes) -> None:
    given, picture, again = (tmp_path / name for name in ("given", "given.svg", "again.json"))
    given.write_bytes(data)
    status, printed = done("topo", "show", given, "--json")
    assert json.loads(printed)["ok"] == (status == 0)
    drawn, told = done("topo", "show", given, "-o", picture)
    assert drawn == status or "error[drawing-too-large]" in told
    assert done("topo", "convert", given, "-o", again)[0] == status
    if status == 0:
        assert json.loads(done("topo", "show", again, "--json")[1])["links"] == json.loads(printed)["links"]


@fuzzed(30)
@given(damaged_bytes(TEXTS, WORDS))
def test_fmt(tmp_path: Path, data: bytes) -> None:
    given = tmp_path / "given.zen"
    given.write_bytes(data)
    status, _ = done("fmt", given)
    if status == 0:
        assert done("fmt", "--check", given) == (0, "")
    else:
        assert given.read_bytes() == data
