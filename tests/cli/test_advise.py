"""``zenc advise``, as a user runs it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Zenc
from zenc.gradients.profile_generators import zipf
from zenc.gradients.profile_io import dump_profiles

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
def test_what_is_wrong_is_told(zenc: Zenc, write: Write, arguments: tuple[str, ...], status: int, said: str) -> None:
    write("cut.json", '{"zenc_profiles": 1, "model": {}, "profiles": [')
    done = zenc("advise", *arguments)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    assert said in " ".join(done.stderr.replace("│", " ").split()), done.stderr
