"""Diagnostics in one error, and the lines that they show."""

from __future__ import annotations

import pytest

from zenc.errors import MOST_RAISED, Diagnostic, SchemeError, Source, Span, first_line, raise_if_any


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
    with pytest.raises(SchemeError) as raised:
        raise_if_any(SchemeError, found("error", 10_000))
    assert raised.value.diagnostics == tuple(found("error", MOST_RAISED))


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
