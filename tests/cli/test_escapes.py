"""Terminal escapes in users' texts: neither the program nor the library prints one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import zenc as library
from tests.cli.conftest import Zenc
from zenc.cli.common import as_terminal_text
from zenc.errors import Diagnostic, Source, Span, ZencError, printable

ESCAPES = "\x1b]0;PWNED\x07\x1b[2J\x9b31m\u202e\u2066\x7f\r"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
KEYS = "communication: ring aggregation: incremental partition: parallelism balance: imbalanced push: dense pull: dense"
FILES = {
    "scheme.zen": f'scheme s {{ "a {ESCAPES} doc" {KEYS} }}',
    "strategy.zen": f'strategy t {{ "a {ESCAPES} doc" tensors "{ESCAPES}*": dense_ring others: dense_ring }}',
    "averaging.zen": f'averaging a {{ "a {ESCAPES} doc" alternate: all sums: dense_ring }}',
    "topology.zen": f'topology t {{ "a {ESCAPES} doc" levels: gpu(2) link gpu(0) - gpu(1): 1 GB/s }}',
    "like.zen": f'topology t {{ like "{ESCAPES}" }}',
    "wrong.zen": f"scheme s {{ {ESCAPES} }}",
    "unmet.zen": 'schedule u { require n < 1 "' + ESCAPES + '" push { step { send all to 0 } } pull { step { } } }',
    f"name{ESCAPES[1:6]}\x1b[2J.zen": f"scheme s {{ {KEYS} }}",
    "calibration.json": json.dumps({"zenc_calibration": 1, ESCAPES: 1}),
    "profiles.json": json.dumps(
        {
            "zenc_profiles": 1,
            "profiles": [
                {"name": ESCAPES, "units": 9, "width": 1, "dtype": "f32", "ranks": None, "ranges": [[[0.5, 1.0]]]}
            ],
        }
    ),
}
SHOWN = {
    "check": ".zen",
    "explain": ".zen",
    "draw": ".zen",
    "topo show": "topology.zen",
    "profile show": "profiles.json",
    "simulate dense_ring --calibration": "calibration.json",
    "report -o r.html": "scheme.zen",
    "help": "wrong.zen",
}
"""Verb -> endings of the file names that it is tried on."""


@pytest.mark.parametrize("verb", SHOWN)
def test_no_verb_prints_them(zenc: Zenc, tmp_path: Path, verb: str) -> None:
    tried = [
        name for name in FILES if name.endswith(SHOWN[verb]) or (verb == "topo show" and "topo" in FILES[name][:4])
    ]
    for name in tried:
        (tmp_path / name).write_text(FILES[name], "utf-8", newline="")
        done = zenc(*verb.split(), name)
        assert RAW.findall(done.stdout + done.stderr) == [], name
    assert tried
    done = zenc(*verb.split(), ESCAPES)
    assert done.returncode and RAW.findall(done.stdout + done.stderr) == []


def test_what_the_library_gives_out_is_clean(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8", newline="")
    assert "doc" in library.explain(tmp_path / "scheme.zen", ranks=2).text()
    for show in (
        lambda: library.explain(tmp_path / "scheme.zen", ranks=2).text(),
        lambda: library.compile(tmp_path / "wrong.zen"),
        lambda: library.compile_text(f"scheme {ESCAPES}"),
    ):
        try:
            shown = show()
        except ZencError as error:
            shown = f"{error} {error.diagnostics[0].headline()}"
        assert RAW.findall(str(shown)) == []


def test_a_diagnostic_is_clean_and_keeps_its_lines() -> None:
    source = Source(f"{ESCAPES}.zen", f"a\t{ESCAPES} b")
    found = Diagnostic("syntax", f"m {ESCAPES}", Span(source, 2, 3), (f"n {ESCAPES}",), f"h {ESCAPES}")
    assert RAW.findall(found.render()) == [] and len(found.render().splitlines()) == 5


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_keeps_colours_and_links_and_nothing_else(is_terminal: bool) -> None:
    written: list[str] = []

    class Stream:
        write = staticmethod(written.append)
        isatty = staticmethod(lambda: is_terminal)

    link = "\x1b]8;id=1;https://x.org\x1b\\"
    as_terminal_text(Stream()).write(f"\x1b[1mbold\x1b[0m {link}here \x1b[2J\x1b]0;t\x07 Zoë 漢字\n")  # type: ignore[arg-type]
    kept = f"\x1b[1mbold\x1b[0m {link}here ?[2J?]0;t? Zoë 漢字\n"
    assert "".join(written) == (kept if is_terminal else printable(kept, lines=True))
