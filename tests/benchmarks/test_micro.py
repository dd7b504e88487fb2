"""``benchmarks/micro.py``: that it runs, and what it says. Its times are not for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "micro.py"


def run(*arguments: str) -> str:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run([sys.executable, SCRIPT, *arguments], env=alone, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_help_says_how_to_read_the_table():
    text = run("--help")
    assert "/ memcpy" in text and "torch /" in text and "--json" in text


def test_small_tensors_take_every_way(tmp_path):
    """Kernels on one core and on two, under hashing, and a call: a line each, and the same in JSON."""
    report = tmp_path / "micro.json"
    table = run("--scale", "1000", "--rounds", "1", "--json", str(report), "-k", "(merge or call) and not nothing")
    found = [each["extra_info"] for each in json.loads(report.read_text())["benchmarks"]]
    lines = [line for line in table.splitlines() if line.startswith(("merge of 8", "pack, merge", "whole call"))]
    assert len(lines) == len(found) == 3 * 2 * 2 + 3
    assert {each["cores"] for each in found} == {1, 2}
    assert all(each["memcpy"]["min"] > 0 for each in found if each["kernel"] != "whole call")
    assert all(each["own"]["min"] > 0 for each in found if each["kernel"] == "whole call")
