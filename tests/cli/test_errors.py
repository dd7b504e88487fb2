"""Exit statuses and streams of failing commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Zenc

Write = Callable[[str, str], str]
GOOD = """scheme mine {
    communication: ring
    aggregation: incremental
    partition: parallelism
    balance: imbalanced
    push: coo
    pull: coo
}
"""
TYPO = GOOD.replace(": ring", ": rong")
NOT_THE_LANGUAGE = GOOD.replace("}", "")
UNPROVABLE = GOOD.replace("ring", "schedule { push { step { send part 0 to 0 where rank == 1 } } pull { } }")
VERBS = ("check", "compile", "draw", "explain")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("text", [TYPO, NOT_THE_LANGUAGE, UNPROVABLE])
def test_diagnostics_go_to_standard_error(zenc: Zenc, write: Write, verb: str, text: str) -> None:
    done = zenc(verb, write("mine.zen", text))
    assert done.returncode == 1
    assert re.match(r"mine\.zen:\d+:\d+: error\[[a-z-]+\]: \S", done.stderr), done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_diagnostics_as_json(zenc: Zenc, write: Write, verb: str) -> None:
    done = zenc(verb, write("mine.zen", TYPO), "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["ok"] is False
    (diagnostic,) = report["diagnostics"]
    assert diagnostic["place"] == {"file": "mine.zen", "line": 2, "column": 20}
    assert diagnostic["severity"] == "error"
    assert "rong" in diagnostic["message"]
    assert done.stderr.startswith("mine.zen:2:20: error[")


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "no_such_file.zen"],
        ["check", "balanced", "--ranks", "0"],
        ["check", "balanced", "--ranks", "many"],
        ["check", "balanced", "--set", "seed"],
        ["compile", "balanced", "--target", "fpga"],
        ["explain", "balanced", "--ranks", "4", "--rank", "4"],
        ["explain", "balanced", "--density", "2"],
        ["draw", "balanced", "--steps", "one"],
        ["draw", "balanced", "--steps", "3..1"],
        ["draw", "balanced", "--steps", "0"],
        ["draw", "balanced", "--steps", ".."],
        ["draw", "balanced", "--phase", "shove"],
        ["cache", "shrink"],
        ["verify", "balanced"],
        ["--no-such-option"],
    ],
)
def test_a_wrong_command_line_is_2(zenc: Zenc, arguments: list[str]) -> None:
    done = zenc(*arguments)
    assert done.returncode == 2
    assert "Usage: zenc" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_nearly_right_is_suggested(zenc: Zenc) -> None:
    assert "did you mean 'balanced'?" in zenc("check", "balancd").stderr


@pytest.mark.parametrize("assignment", ["seed=x", "sed=3"])
def test_a_wrong_parameter_is_a_diagnostic(zenc: Zenc, assignment: str) -> None:
    done = zenc("check", "balanced", "--set", assignment)
    assert done.returncode == 1
    assert "error[" in done.stderr


def test_an_unknown_dtype_is_a_diagnostic(zenc: Zenc) -> None:
    done = zenc("explain", "balanced", "--dtype", "i8")
    assert done.returncode == 1
    assert "error[bad-load]" in done.stderr


def test_a_place_that_cannot_be_written(zenc: Zenc, write: Write) -> None:
    done = zenc("compile", "balanced", "-o", f"{write('a_file', '')}/out")
    assert done.returncode == 1
    assert "error[artifact-not-written]" in done.stderr


def test_bytes_that_are_no_text(zenc: Zenc, tmp_path: Path) -> None:
    (tmp_path / "noise.zen").write_bytes(b"\xff\xfe\x00scheme")
    done = zenc("check", "noise.zen")
    assert done.returncode == 1
    assert "error[not-text]" in done.stderr


def test_a_bug_of_ours_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from zenc.cli.common import reporting

    monkeypatch.delenv("ZENC_DEBUG", raising=False)
    with pytest.raises(SystemExit) as ended, reporting(json=True):
        raise KeyError("surprise")
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert "a bug in zenc: KeyError: 'surprise'" in shown.err
    assert "Traceback" not in shown.err
    assert json.loads(shown.out)["diagnostics"][0]["id"] == "internal"


def test_a_bug_of_ours_shows_its_trace_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from zenc.cli.common import reporting

    monkeypatch.setenv("ZENC_DEBUG", "1")
    with pytest.raises(SystemExit), reporting(json=False):
        raise KeyError("surprise")
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_a_name_that_no_file_can_have(zenc: Zenc, verb: str) -> None:
    done = zenc(verb, "a" * 300)
    assert done.returncode == 2
    assert "is neither a file nor a scheme that comes with zenc" in " ".join(done.stderr.split())


def test_what_the_terminal_has_no_character_for(new_zenc: Zenc) -> None:
    done = new_zenc("topo", "show", 'topology t { "\udcff é" like ring(2) }', PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[1] == r"? \xe9"


def test_ranks_that_are_no_whole_groups_of_the_tiers(zenc: Zenc) -> None:
    done = zenc("check", "zen_cluster", "--ranks", "10")
    assert done.returncode == 1 and done.stdout == ""
    assert "error[tiers-do-not-divide]: 10 ranks are not whole groups of 8" in done.stderr
    assert "help: use 8 or 16 ranks, or other sizes of the tiers" in done.stderr
    assert zenc("check", "zen_cluster", "--ranks", "10", "--set", "gpus=5").returncode == 0
