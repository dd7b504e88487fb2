"""Terminal escapes in texts of users are never printed; any file ends the program with 0 or 1 and a reason."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import given
from typer.main import get_command
from typer.testing import CliRunner

import zenc as library
from tests.cli.conftest import Zenc
from tests.support.damage import FOREIGN, WORDS, damaged_bytes
from tests.support.fuzz import fuzzed
from zenc.cli import app
from zenc.cli.common import as_terminal_text
from zenc.common.resources import directory
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
    "check": ".zen", "explain": ".zen", "draw": ".zen", "topo show": "topology.zen", "profile show": "profiles.json",
    "simulate dense_ring --calibration": "calibration.json", "report -o r.html": "scheme.zen", "help": "wrong.zen",
}  # fmt: skip
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
