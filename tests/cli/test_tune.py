"""``zenc tune`` and ``zenc advise``, as a user runs them."""

import json
from pathlib import Path

from tests.cli.conftest import Write, Zenc
from zenc.gradients.profile_generators import zipf
from zenc.gradients.profile_io import dump_profiles

DRAWN = ["--density", "0.1"]


def test_it_writes_a_file_that_is_right(zenc: Zenc, tmp_path: Path) -> None:
    best = tmp_path / "b\udcffst.zen"  # a name that is no text is named in the text
    given = ("--ranks", "2", "--bandwidth", "1 Gbit/s", "--density", "0.01", "--units", "5000", "--width", "8")
    done = zenc("tune", *given, "-o", str(best))
    assert done.returncode == 0, done.stderr
    assert "busiest rank" in done.stdout and "st.zen has the first of them" in done.stdout
    assert best.read_text().startswith("# Found by zenc tune --ranks 2 --bandwidth '1 Gbit/s' --density 0.01")
    assert zenc("check", str(best), "--ranks", "2").returncode == 0
    assert zenc("fmt", "--check", str(best)).returncode == 0
    assert "not calibrated: 20 us a step, TCP that loses 5 kB" in done.stdout
    assert "# Not calibrated: 20 us a step, TCP that loses 5 kB" in best.read_text()
    report = json.loads(zenc("tune", *given, "--json", "-o", "/dev/full").stdout)  # so what was found is shown
    assert report["notes"][0].startswith("not calibrated: ") and report["file"] is None
    assert report["ok"] is False and report["diagnostics"][0]["id"] == "unwritable-file"
    assert report["best"][0]["text"] in report["text"].replace(report["text"].partition("scheme")[0], "")


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
