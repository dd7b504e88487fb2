"""Errors and their words: several diagnostics, numbers that agree with nouns, and settings that mean nothing."""

import ast
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Zenc, zenc
from tests.support.refusals import refusals
from tests.support.sources import nodes_of
from zenc.common.environment import SETTINGS, ensure_sound, is_on, setting
from zenc.common.wording import aligned, count
from zenc.errors import MOST_RAISED, Diagnostic, SchemeError, Source, Span, ZencError, first_line, raise_if_any
from zenc.verify.provenance import MOST_NAMED, named


def found(severity: str, count: int) -> list[Diagnostic]:
    return [Diagnostic("wrong-value", f"{severity} {n}", severity=severity) for n in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("warnings", [0, 1, 2 * MOST_RAISED])
def test_warnings_alone_pass(warnings: int) -> None:
    passed = found("warning", warnings)
    raise_if_any(SchemeError, passed)
    assert passed == found("warning", warnings), "nothing is raised, and nothing is taken away"


@pytest.mark.parametrize("warnings", [0, MOST_RAISED - 1, 2 * MOST_RAISED])
def test_an_error_after_any_number_of_warnings_is_raised(warnings: int) -> None:
    with pytest.raises(SchemeError) as raised:
        raise_if_any(SchemeError, [*found("warning", warnings), *found("error", 1)])
    assert raised.value.diagnostics[-1].message == "error 0"
    assert len(raised.value.diagnostics) == (warnings + 1 if warnings < MOST_RAISED else 1)


def test_of_many_errors_the_first_are_raised() -> None:
    refused = refusals(SchemeError, raise_if_any, SchemeError, found("error", 10_000))
    assert refused == tuple(found("error", MOST_RAISED))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_line_of_a_place(ending: str) -> None:
    source = Source("mine.zen", ending.join(["one", "two", "", "four"]))
    place = source.text.index
    assert [source.line_at(at) for at in (0, place("ne"), place("two"), place("o", 5))] == ["one", "one", "two", "two"]
    assert source.line_at(place("four") - 1) == ""
    assert source.line_at(len(source.text)) == "four"
    shown = Diagnostic("syntax", "wrong", Span(source, place("wo"), place("wo") + 2)).render().split("\n")
    assert shown[:2] == ["mine.zen:2:2: error[syntax]: wrong", "    2 | two"]


def test_the_first_line_of_what_an_error_says() -> None:
    assert first_line(RuntimeError("lost\nat gloo/pair.cc:1")) == "lost"
    assert first_line(RuntimeError("x" * 300)) == "x" * 200
    assert first_line(RuntimeError()) == first_line(RuntimeError("\n")) == "RuntimeError"


PACKAGE = Path(__file__).resolve().parents[1] / "zenc"
OTHERS = re.compile(r" (?:(?:other|more) [a-z]+s|others|[a-z]+s more(?! than))\b")
"""Words that follow a number, where one alone would be wrong."""


def test_one_and_many() -> None:
    assert (count(1, "step"), count(0, "step"), count(1200, "step")) == ("1 step", "0 steps", "1,200 steps")
    assert (count(1, "entry", "entries"), count(2, "entry", "entries")) == ("1 entry", "2 entries")


def test_cells_of_a_column_begin_or_end_below_each_other() -> None:
    rows = [("name", "bytes", ""), ("a", "12", "none"), ("longest", "3", "")]
    assert aligned(rows, [1]) == ["name     bytes", "a           12  none", "longest      3"]
    assert aligned(rows, gap=" ") == ["name    bytes", "a       12    none", "longest 3"]
    assert aligned([]) == []


def test_one_rank_more_than_are_named() -> None:
    assert named(list(range(MOST_NAMED + 1))).endswith(" and 1 other")


def test_how_many_others_there_are_is_counted() -> None:
    """``{n} more steps`` would say ``1 more steps``: such words come from ``count``."""
    wrong = [
        f"{path}: {after.value}"
        for path in PACKAGE.rglob("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.JoinedStr)
        for before, after in zip(node.values, node.values[1:], strict=False)
        if isinstance(before, ast.FormattedValue) and isinstance(after, ast.Constant) and OTHERS.match(str(after.value))
    ]
    assert wrong == []


__all__ = ["zenc"]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_has_one_of_its_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in SETTINGS[name]:
        monkeypatch.setenv(name, value)
        assert setting(name) == value and is_on(name) == (value == "1")
    for unset in ("", None):
        monkeypatch.setenv(name, "") if unset == "" else monkeypatch.delenv(name)
        assert setting(name) == SETTINGS[name][0]
    ensure_sound()
    for value in ("maybe", "true", "2", " 0"):
        monkeypatch.setenv(name, value)
        with pytest.raises(ZencError, match=f"{name} is {' or '.join(SETTINGS[name])}, not '{value}'"):
            ensure_sound()


def test_no_setting_is_read_elsewhere() -> None:
    """Only variables that a rank tells of itself are read elsewhere."""
    for path in PACKAGE.rglob("*.py"):
        for node in nodes_of(path) if "os.environ" in path.read_text(encoding="utf-8") else ():
            if isinstance(node, ast.Call | ast.Subscript) and "os.environ" in ast.unparse(node):
                assert path.name == "environment.py" or not any(name in ast.unparse(node) for name in SETTINGS), path


def test_the_program_refuses_one_that_means_nothing(zenc: Zenc) -> None:
    done = zenc("list", ZENC_SHARED_MEMORY="maybe")
    assert done.returncode == 1 and "error[bad-environment]: ZENC_SHARED_MEMORY is 1 or 0, not 'maybe'" in done.stderr
