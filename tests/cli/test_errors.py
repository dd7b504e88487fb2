"""Exit statuses and streams of failing commands."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import PROGRAM, Write, Zenc
from tests.support.forked import ROOT
from zenc.cli import app
from zenc.gradients.profile_generators import uniform
from zenc.gradients.profile_io import dump_profiles
from zenc.simulator.calibration import DEFAULTS

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
    unset = zenc(verb, "mine.zen", "--json", ZENC_ATTACH="2")
    assert json.loads(unset.stdout)["diagnostics"][0]["id"] == "bad-environment"


FILES = {
    "a_file": "",
    "bad.json": '{"zenc_profiles": 7}',
    "cut.json": '{"zenc_profiles": 1, "profiles": [',
    "cut_model.json": '{"zenc_profiles": 1, "model": {}, "profiles": [',
    "falls.json": json.dumps(
        {**DEFAULTS.to_json(), "merge": {"curve": [[0, 1e-9], [0.1, 5e-9], [0.2, 1e-9]], "speed": 1e9}}
    ),
    "halves.zen": "strategy halves { others: dense_ring }",
    "model.json": dump_profiles([uniform(0.01, 1000, name="words")]),
    "negative.json": '{"zenc_profiles": 1, "profiles": [{"name": "a", "density": -1}]}',
    "tiers.zen": "scheme tiers { tier node(8): dense_ring tier cluster: balanced }",
    "train.py": "",
}
LONG = "a" * 300
"""A name that no file can have."""
REFUSED = [
    ("", 2, "Usage: zenc", ["check", "cache shrink", "verify balanced", "--no-such-option", "topo show", "topo draw",
        "topo convert ring(3)", "profile tell", "profile draw", "profile draw --contiguous -o x.json",
        "profile draw --zipf 1 --core 0.5 -o x.json", "profile draw --density nan -o x.json",
        "profile draw --density -0.1 -o x.json", "profile show any.json --ranks 0", "explain balanced --density 2",
        "explain balanced --ranks 4 --rank 4", "compile balanced --target fpga"]),
    ("check", 2, "Usage: zenc", ["no_such_file.zen", "balanced --ranks 0", "balanced --ranks many",
        "balanced --set seed"]),
    ("check", 2, "did you mean 'balanced'?", ["balancd"]),
    ("check balanced --set", 1, "error[", ["seed=x", "sed=3"]),
    ("new", 2, "a scheme can't be called '", ["''", "/", "all", "send.zen"]),
    ("check balanced --topology", 1, "error[unknown-topology]", ["nowhere.zen"]),
    ("", 2, "is neither a file nor a scheme that comes with zenc",
        [f"{verb} {LONG}" for verb in ("check", "compile", "draw", "explain")]),
    ("", 1, "error[wrong-topology-size]: ring(5) has 5 ranks",
        [f"{verb} dense_ring --topology ring(5) --ranks 4" for verb in ("check", "compile", "draw", "explain")]),
    ("", 1, "error[tiers-do-not-divide]: 10 ranks are not whole groups of 8",
        [f"{verb} tiers.zen --ranks 10" for verb in VERBS]),
    ("", 1, "help: use 8 ranks, or other sizes of the tiers", [f"{verb} tiers.zen --ranks 4" for verb in VERBS]),
    ("explain balanced", 1, "error[bad-load]", ["--dtype i8"]),
    ("compile", 1, "error[artifact-not-written]", ["balanced -o a_file/out", "balanced -o ''", "merged -o ''"]),
    ("compile", 1, "it has averagings: ds_sync", ["ds_sync"]),
    ("compile", 1, "error[no-scheme]", ["ds_sync"]),
    ("draw balanced", 2, "Usage: zenc", ["--steps one", "--steps 3..1", "--steps 0", "--steps ..", "--phase shove"]),
    ("draw balanced", 1, "error[drawing-too-large]", ["--ranks 257"]),
    ("draw balanced", 1, "error[no-such-step]: among 4 ranks the scheme has no such step note: steps of",
        ["--steps 2"]),
    ("", 2, "is a folder", ["draw balanced -o .", "report balanced -o ''", "topo convert ring(3) -o ''",
        "calibrate -o ''", "simulate balanced --trace ''"]),
    ("", 2, "folder '", ["draw balanced -o a_file/out.svg", "topo show ring(3) -o no/out.svg", "profile draw -o no/a",
        "tune --density 0.1 -o no/such/best.zen", "simulate balanced --trace no/trace.json"]),
    ("", 2, "would be text/x-zen by its name, and this writes", [f"{verb} -o halves.zen" for verb in
        ("draw halves.zen", "report balanced", "topo show ring(3)", "topo convert ring(3)", "profile draw")]),
    ("topo show", 1, "error[drawing-too-large]", ["'nodes(40, gpus = 8)' -o large.svg"]),
    ("tune", 2, "say what gradients are like", ["--ranks 2"]),
    ("tune", 2, "--density", ["--density 2"]),
    ("tune --density 0.1", 2, "--bandwidth", ["--bandwidth '1 parsec'"]),
    ("tune --density 0.1 --topology 'nodes(2, gpus = 2)'", 2, "links of a --topology", ["--bandwidth '1 Gbit/s'"]),
    ("tune --density 0.1", 2, "file of --profile", ["--parameter a"]),
    ("tune --density 0.1", 1, "error[unknown-topology]", ["--topology no_such"]),
    ("tune --density 0.1 --topology 'nodes(2, gpus = 2)'", 1, "error[wrong-topology-size]", ["--ranks 3"]),
    ("tune", 1, "error[bad-profile]", ["--profile negative.json --ranks 2", "--density 0.1 --dtype f99"]),
    ("tune", 2, "missing.json", ["--profile missing.json"]),
    ("advise", 2, "say what the model is like", [""]),
    ("advise --density 0.1", 2, "--rest: a memory is a number and a unit", ["--rest many"]),
    ("advise --density 0.1", 2, "--computing: ", ["--computing '1 GB'"]),
    ("advise --density 0.1", 2, "advice is for one bandwidth", ["--bandwidth '1 GB/s,2 GB/s'"]),
    ("advise --density 0.1", 2, "links of a --topology", ["--bandwidth '1 GB/s' --topology dgx(1)"]),
    ("advise --density 0.1", 2, "this is 0 to 1e+06 s, not -1", ["--computing -1s"]),
    ("advise", 1, "error[bad-profile]", ["--profile cut_model.json"]),
    ("advise", 2, "give either", ["--profile cut_model.json --density 0.1"]),
    ("lab", 2, "Missing argument 'SCRIPT'", [""]),
    ("lab", 2, "'no_such.py' is no file; it takes a .py file, or -m and a module", ["no_such.py"]),
    ("lab", 2, "'-m' is no file", ["-- -m"]),
    ("lab", 2, "it takes at most 250", ["--hosts 251 train.py"]),
    ("lab", 2, "it takes at least 1", ["--ranks-per-host 0 train.py"]),
    ("lab", 1, "is no rate help: write one as tc", [f"--rate {rate} train.py" for rate in ("fast", "0mbit", "@mbit")]),
    ("calibrate", 2, "start it by torchrun", [""]),
    ("calibrate", 2, "it takes at least 2", ["--nproc 1"]),
    ("calibrate --nproc 2", 2, "--bandwidth: '0 Gbit/s'", ["--bandwidth '0 Gbit/s'"]),
    ("calibrate --nproc 2", 2, "a bandwidth is a number and a unit", ["--bandwidth fast"]),
    ("calibrate --nproc 2", 2, "gloo or nccl", ["--backend mpi"]),
    ("calibrate --nproc 2", 2, "there is no folder", ["-o no/such/folder.json"]),
    ("calibrate", 2, "does not exist", ["--read no_such.json"]),
    ("profile", 1, "error[other-version]", ["show bad.json"]),
    ("profile", 1, "error[bad-profile]", ["show missing.json", "draw --units 0 -o x.json",
        "draw --overlap 0.001 -o x.json"]),
    ("profile", 1, "error[bad-load]", ["record bad.json -o x.json"]),
    ("simulate balanced", 2, "--bandwidth: '0 Gbit/s'", ["--bandwidth '0 Gbit/s'"]),
    ("simulate balanced", 2, "a bandwidth is a number and a unit", ["--bandwidth fast", "--bandwidth nan"]),
    ("simulate balanced", 1, "bad-profile", ["--density nan", "--density -0.1", "--zipf nan", "--profile cut.json"]),
    ("simulate balanced", 2, "numbers with commas", ["--density x"]),
    ("simulate balanced --ranks", 2, "whole numbers from 1", ["0", "5000", "8..2", "2..5000", "2..@", "2..4..8"]),
    ("simulate balanced --ranks", 1, "wrong-topology-size", ["4 --topology 'nodes(1, gpus = 8)'"]),
    ("simulate balanced", 1, "no-route", ["--topology ring(8)"]),
    ("simulate balanced", 2, "links of a --topology have their own", ["--topology nodes(1) --bandwidth '1 GB/s'"]),
    ("simulate balanced", 2, "several values", ["--plot a.svg"]),
    ("simulate balanced", 2, "one run", ["--ranks 2,4 --trace a.json"]),
    ("simulate balanced --profile model.json", 2, "give either", ["--density 0.1"]),
    ("simulate balanced --profile model.json", 1, "did you mean 'words'?", ["--parameter word"]),
    ("simulate balanced", 2, "the file of --profile", ["--parameter words"]),
    ("simulate balanced --calibration", 1, "bad-calibration", ["model.json"]),
    ("simulate balanced --calibration", 1, "its curve falls", ["falls.json"]),
    ("simulate balanced --calibration", 2, "give either", ["falls.json --device gpu"]),
    ("simulate balanced", 2, "--ready names 'words'", ["--ready words=1s"]),
    ("simulate balanced", 2, "--ready uniform", ["--ready 'uniform=1 GB'"]),
    ("simulate", 1, "error[nothing-to-simulate]", ["kylix --ranks 7"]),
    ("simulate", 1, "the degrees of a butterfly", ["kylix --ranks 7"]),
    ("simulate", 1, "it has strategies: halves", ["halves.zen --ranks 4 --density 0.1"]),
]  # fmt: skip
"""Beginning of the command, its status, a part of what it says, and several ends, with a long number for ``@``."""


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [(f"{verb} {end}", status, said) for verb, status, said, ends in REFUSED for end in ends],
)
def test_what_is_wrong_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write: Write, command: str, status: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        write(name, text)
    done = CliRunner().invoke(app, shlex.split(command.replace("@", "9" * 5000)), prog_name="zenc")
    assert (done.exit_code, done.stdout) == (status, "") and "a bug in zenc" not in done.stderr, done.stderr
    assert said in " ".join(done.stderr.replace("│", " ").split()), done.stderr


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


def test_what_takes_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zenc.cli.common.SECONDS_OF_SILENCE", 0.0)
    for verb in ("check", "explain", "simulate"):
        assert f"zenc {verb}: still working ..." in CliRunner().invoke(app, [verb, "dense_ring"]).stderr


def test_a_bug_of_ours_shows_its_trace_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from zenc.cli.common import reporting

    monkeypatch.setenv("ZENC_DEBUG", "1")
    with pytest.raises(SystemExit), reporting(json=False):
        raise KeyError("surprise")
    assert "Traceback" in capsys.readouterr().err


def test_what_the_terminal_has_no_character_for(new_zenc: Zenc) -> None:
    done = new_zenc("topo", "show", 'topology t { "\udcff é" like ring(2) }', PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[1] == r"? \xe9"


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("--version >/dev/full", 1, "error[unwritable-file]: can't write"),
        ("draw dense_ring --ranks 9 >/dev/full", 1, "error[unwritable-file]: can't write"),
        ("--version >&- <&-", 0, ""),
        ("--version >&- 2>&-", 0, ""),
    ],
)
def test_streams_that_are_full_or_closed(command: str, status: int, said: str) -> None:
    program = shlex.join([sys.executable, "-c", PROGRAM])
    done = subprocess.run(f"{program} {command}", shell=True, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr[: len(said) or None]) == (status, "", said)
