"""``zenc new`` and ``zenc help``, and rules that all verbs follow."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from tests.support.shipped import ALL
from zenc.assist.manual import diagnostic, pages
from zenc.cli import app
from zenc.common.diagnostics import DIAGNOSTICS
from zenc.language.files import locate


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def zenc(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the commands that do something, by the words that call them."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, child in inner.items():
        yield from verbs(child, (*path, name))


VERBS = dict(verbs(get_command(app)))


def proved(*arguments: str) -> tuple[str, list[int]]:
    """Return the scheme and the numbers of ranks that ``zenc check`` proves, without a warning."""
    done = zenc("check", *arguments, "--json")
    shown = json.loads(done.stdout)
    assert done.exit_code == 0 and "warning[" not in done.stderr, done.output
    return shown["scheme"], shown["sizes"]


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_verb_says_what_it_does(path: tuple[str, ...]) -> None:
    shown = zenc(*path, "--help").stdout
    assert len(VERBS[path].help) > 40 and "Usage: " in shown
    assert path[0] == "cache" or f"  zenc {' '.join(path)}" in shown.partition("Examples:")[2]
    assert all(getattr(parameter, "help", None) for parameter in VERBS[path].params)


def test_new_writes_a_scheme_that_is_right() -> None:
    done = zenc("new", "own.zen")
    assert done.exit_code == 0 and "zenc check own.zen" in done.stdout
    assert proved("own.zen") == ("own", list(range(1, 17)))
    text = Path("own.zen").read_text()
    assert zenc("fmt", "--check", "own.zen").exit_code == 0
    assert "zenc explain own.zen" in text and "mine" not in text


def test_the_schedule_in_its_comments_is_right() -> None:
    zenc("new", "own")
    text = Path("own.zen").read_text()
    begin = text.index("# schedule own_alone")
    alive = text[:begin] + "\n".join(line.removeprefix("# ") for line in text[begin:].splitlines() if line != "#")
    Path("own.zen").write_text(alive.replace("communication: point_to_point", "communication: own_alone"))
    assert proved("own.zen")[0] == "own"


@pytest.mark.parametrize("name", ALL)
def test_new_begins_with_any_shipped_scheme(name: str) -> None:
    assert zenc("new", "own.zen", "--from", name).exit_code == 0
    gaining = ("--set", "density=0.1") if name == "topk_a2a" else ()
    assert proved("own.zen", "--ranks", "8", *gaining) == ("own", [8])


def test_new_overwrites_nothing() -> None:
    Path("own.zen").write_text("precious")
    done = zenc("new", "own.zen", "--json")
    assert done.exit_code == 1 and Path("own.zen").read_text() == "precious"
    assert json.loads(done.stdout)["diagnostics"][0]["id"] == "unwritable-file"


@pytest.mark.parametrize("words", ["my-scheme.zen", "7.zen", "own.zen --from balnced", "balanced.zen --from auto"])
def test_new_says_what_is_wrong_with_names(words: str) -> None:
    done = zenc("new", *words.split())
    assert done.exit_code == 2 and not list(Path().iterdir())
    assert "can't be called" in done.stderr or "did you mean 'balanced'" in done.stderr


@pytest.mark.parametrize("id", DIAGNOSTICS)
def test_help_knows_every_diagnostic(id: str) -> None:
    text = diagnostic(id).text
    assert len(text) > 20 and "\n### " not in text and "<!--" not in text


def test_help_shows_a_diagnostic_and_no_other() -> None:
    shown = zenc("help", "unknown-key").stdout
    assert shown.startswith("# unknown-key: a key is none of those") and "# bad: unknown key 'puhs'" in shown
    assert "duplicate-key" not in shown
    assert json.loads(zenc("help", "unknown-key", "--json").stdout)["name"] == "unknown-key"


def test_help_lists_pages_diagnostics_and_knows_verbs() -> None:
    listed = zenc("help").stdout
    assert all(f"  {name} " in listed for name in [*DIAGNOSTICS, *pages()])
    assert zenc("help", "language").stdout.startswith("# ")
    assert "Usage: " in zenc("help", "tune").stdout and "--density" in zenc("help", "tune").stdout


@pytest.mark.parametrize("name", ["balanced", "merged", "ds_sync"])
def test_help_shows_what_is_shipped(name: str) -> None:
    shown = zenc("help", name).stdout
    assert locate(name).read_text("utf-8").strip() in shown and f"zenc explain {name}" in shown


def test_help_says_what_was_meant() -> None:
    done = zenc("help", "unknown-kye")
    assert done.exit_code == 2 and "did you mean 'unknown-key'" in done.stderr


@pytest.mark.parametrize("output", ["made.json", "-"])
@pytest.mark.parametrize("verb", ["topo convert ring(4)", "profile draw --units 100", "profile record held.json"])
def test_what_is_written_is_told_as_json(verb: str, output: str) -> None:
    Path("held.json").write_text('{"units": 9, "width": 1, "dtype": "f32", "ranks": [[3], [4]]}')
    *words, last = verb.split()
    shown = json.loads(zenc(*words, last, "-o", output, "--json").stdout)
    text = shown["text"] if output == "-" else Path(output).read_text()
    assert shown["ok"] and shown["file"] == output and isinstance(json.loads(text), dict)


def test_python_has_what_the_verbs_have() -> None:
    import zenc as package

    listed = json.loads(zenc("list", "--json").stdout)
    assert json.loads(json.dumps({"ok": True, "schemes": package.schemes()})) == listed
    shown = json.loads(zenc("explain", "balanced", "--ranks", "4", "--units", "1000", "--json").stdout)
    explained = package.explain("balanced", ranks=4, units=1000)
    assert {"ok": True, **json.loads(json.dumps(explained.to_json()))} == shown
