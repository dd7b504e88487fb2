"""``zenc synthesize`` on the command line: a table, a file that is proved, JSON, and errors by name."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from zenc.cli import app


def test_the_file_is_a_scheme_and_the_table_names_the_cut(tmp_path: Path) -> None:
    file = str(tmp_path / "ring.zen")
    run = CliRunner().invoke(app, ["synthesize", "ring(4)", "--chunks", "2", "-o", file])
    assert run.exit_code == 0 and "to gpu(0), for what belongs to 3 ranks" in run.output
    checked = CliRunner().invoke(app, ["check", file, "--json"])
    assert checked.exit_code == 0 and json.loads(checked.stdout)["ok"]


def test_json_has_the_bound_and_the_text() -> None:
    found = json.loads(CliRunner().invoke(app, ["synthesize", "ring(4)", "--json"]).stdout)
    assert found["ok"] and found["text"].count("tree parts") == found["trees"]
    assert 0.95 < found["share"] <= 1 and found["seconds"] * found["bound"] >= found["bytes"]


def test_too_many_ranks_are_an_error_with_its_id() -> None:
    run = CliRunner().invoke(app, ["synthesize", "ring(4096)", "--json"])
    assert run.exit_code == 1 and json.loads(run.stdout)["diagnostics"][0]["id"] == "topology-too-large"
