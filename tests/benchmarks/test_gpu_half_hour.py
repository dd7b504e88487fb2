"""The half hour on a GPU: what it runs is there, and a step that fails or hangs costs the others nothing."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import gpu_half_hour
from benchmarks.gpu_half_hour import Step, ran, steps, text, write

ROOT = Path(__file__).resolve().parents[2]


def test_every_step_runs_what_there_is_and_ends_within_a_call():
    found = steps(sys.executable, None)
    assert len({step.name for step in found}) == len(found) and all(0 < step.limit <= 600 for step in found)
    for step in found:
        files = [word for word in step.command if word.startswith("tests/")]
        modules = [step.command[at + 1] for at, word in enumerate(step.command) if word == "-m"]
        assert all((ROOT / file).exists() for file in files), step
        assert all(find_spec(module) for module in modules if "." in module), step


@pytest.mark.parametrize(
    ("command", "status", "shown", "data"),
    [
        ((sys.executable, "-c", "import json; print(json.dumps({'ms': 3}))"), 0, "ms", {"ms": 3}),
        ((sys.executable, "-c", "import sys; sys.exit('broken')"), 1, "broken", None),
        ((sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"), None, "begun", None),
        (("no-such-program",), 127, "No such file", None),
    ],
)
def test_a_step_ends_and_tells_how(command, status, shown, data):
    found = ran(Step("one", command, 2, "how it ends"))
    assert (found.status, found.data) == (status, data) and shown in found.output and found.seconds < 20


def test_the_report_has_every_step(tmp_path):
    programs = {"good": "", "bad": "1/0"}
    found = [ran(Step(name, (sys.executable, "-c", code), 20, "it")) for name, code in programs.items()]
    write(found, tmp_path)
    data = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [(each["name"], each["status"]) for each in data] == [("good", 0), ("bad", 1)]
    printed = (tmp_path / "report.md").read_text("utf-8")
    assert printed == text(found) and "| bad | it | failed (1) |" in printed and "ZeroDivisionError" in printed


def test_unknown_steps_are_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_half_hour", "--only", "facts", "moon"])
    with pytest.raises(SystemExit) as ended:
        gpu_half_hour.main()
    assert ended.value.code == 2 and "no step moon" in capsys.readouterr().err


def test_the_steps_are_listed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu_half_hour", "--list"])
    assert gpu_half_hour.main() == 0
    assert len(capsys.readouterr().out.splitlines()) == len(steps(sys.executable, None))
