"""``zenc tune`` and ``zenc advise``, as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Zenc
from zenc.gradients.profile_generators import zipf
from zenc.gradients.profile_io import dump_profiles

DRAWN = ["--density", "0.1"]


def test_it_writes_a_file_that_is_right(zenc: Zenc, tmp_path: Path) -> None:
    best = tmp_path / "best.zen"
    given = ("--ranks", "2", "--bandwidth", "1 Gbit/s", "--density", "0.01", "--units", "5000", "--width", "8")
    done = zenc("tune", *given, "-o", str(best))
    assert done.returncode == 0, done.stderr
    assert "busiest rank" in done.stdout and f"{best} has the first of them" in done.stdout
    assert best.read_text().startswith("# Found by zenc tune --ranks 2 --bandwidth '1 Gbit/s' --density 0.01")
    assert zenc("check", str(best), "--ranks", "2").returncode == 0
    assert zenc("fmt", "--check", str(best)).returncode == 0
    assert "not calibrated: 20 us a step, TCP that loses 5 kB" in done.stdout
    assert "# Not calibrated: 20 us a step, TCP that loses 5 kB" in best.read_text()
    report = json.loads(zenc("tune", *given, "--json").stdout)
    assert report["notes"][0].startswith("not calibrated: ")
    assert report["ok"] is True and report["best"][0]["text"] in report["text"].replace(
        report["text"].partition("scheme")[0], ""
    )


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--ranks", "2"], 2, "say what gradients are like"),
        (["--density", "2"], 2, "--density"),
        ([*DRAWN, "--bandwidth", "1 parsec"], 2, "--bandwidth"),
        (
            [*DRAWN, "--topology", "nodes(2, gpus = 2)", "--bandwidth", "1 Gbit/s"],
            2,
            "links of a --topology",
        ),
        ([*DRAWN, "--parameter", "a"], 2, "file of --profile"),
        ([*DRAWN, "--topology", "no_such"], 1, "error[unknown-topology]"),
        ([*DRAWN, "--topology", "nodes(2, gpus = 2)", "--ranks", "3"], 1, "error[wrong-topology-size]"),
        (["--profile", "bad.json", "--ranks", "2"], 1, "error[bad-profile]"),
        (["--profile", "missing.json"], 2, "missing.json"),
        ([*DRAWN, "--dtype", "f99"], 1, "error[bad-profile]"),
    ],
)
def test_what_is_wrong_is_told(zenc: Zenc, tmp_path: Path, arguments: list[str], status: int, said: str) -> None:
    (tmp_path / "bad.json").write_text('{"zenc_profiles": 1, "profiles": [{"name": "a", "density": -1}]}')
    given = [str(tmp_path / each) if each.endswith(".json") else each for each in arguments]
    done = zenc("tune", *given)
    assert done.returncode == status, done.stderr
    assert said in " ".join(done.stderr.split())


Write = Callable[[str, str], str]
LINKS = ("--ranks", "8", "--bandwidth", "1 Gbit/s")


def test_a_recorded_profile_is_enough(zenc: Zenc, write: Write) -> None:
    file = write("model.json", dump_profiles([zipf(0.02, 1.05, 20_000, 64, name="words")]))
    done = zenc("advise", "--profile", file, *LINKS, "--rest", "1MB", "--computing", "5ms")
    assert done.returncode == 0, done.stderr
    first, _, where, *table = done.stdout.splitlines()
    assert first.startswith("yes: ") and "times fewer seconds of synchronisation than DDP, sparse; steps" in first
    assert where == "8 ranks on one switch, 125 MB/s each way; 1 table of 5.12 MB, and 1 MB of other gradients"
    assert [line.split("  ")[0] for line in table[1:5]] == [
        "no communication",
        "zenc, auto",
        "DDP, sparse",
        "DDP, dense",
    ]
    assert "not calibrated: " in done.stdout
    report = json.loads(zenc("advise", "--profile", file, *LINKS, "--json").stdout)
    assert report["ok"] is True and report["answer"] == "yes" and report["computing"] is None


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "say what the model is like"),
        (("--density", "0.1", "--rest", "many"), 2, "--rest: a memory is a number and a unit"),
        (("--density", "0.1", "--computing", "1 GB"), 2, "--computing: "),
        (("--density", "0.1", "--bandwidth", "1 GB/s,2 GB/s"), 2, "advice is for one bandwidth"),
        (("--density", "0.1", "--bandwidth", "1 GB/s", "--topology", "dgx(1)"), 2, "links of a --topology"),
        (("--density", "0.1", "--computing", "-1s"), 2, "this is 0 to 1e+06 s, not -1"),
        (("--profile", "cut.json"), 1, "error[bad-profile]"),
        (("--profile", "cut.json", "--density", "0.1"), 2, "give either"),
    ],
)
def test_what_advice_lacks_is_told(
    zenc: Zenc, write: Write, arguments: tuple[str, ...], status: int, said: str
) -> None:
    write("cut.json", '{"zenc_profiles": 1, "model": {}, "profiles": [')
    done = zenc("advise", *arguments)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    assert said in " ".join(done.stderr.replace("│", " ").split()), done.stderr
