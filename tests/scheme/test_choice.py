"""Schemes that choose among others: their meaning, and errors in them."""

from __future__ import annotations

import pytest

from zenc.api import check
from zenc.errors import SchemeError, SchemeSyntaxError, VerificationError
from zenc.language.files import load_file, load_text, locate
from zenc.scheme.model import Choice, Settings
from zenc.scheme.resolve import resolve, resolve_any


def choice_of(text: str, name: str | None = None, **given: int | float) -> Choice:
    found, _ = resolve_any(load_text(text, "t.zen"), name, given)
    assert isinstance(found, Choice)
    return found


def ids_of(text: str, name: str | None = None) -> list[str]:
    with pytest.raises((SchemeError, SchemeSyntaxError)) as caught:
        resolve_any(load_text(text, "t.zen"), name)
    return [diagnostic.id for diagnostic in caught.value.diagnostics]


def test_the_shipped_one() -> None:
    found, warnings = resolve_any(load_file(locate("auto")), parameters={"every": 10, "margin": 0.2})
    assert isinstance(found, Choice)
    assert warnings == ()
    assert [candidate.name for candidate in found.candidates] == [
        "balanced",
        "holders",
        "hierarchical_centralization",
        "dense_ring",
    ]
    assert found.settings == Settings(every=10, margin=0.2, patience=2, trials=3)


def test_arguments_are_those_of_the_choice() -> None:
    """A parameter is passed on to a candidate, and two sets of arguments make two candidates."""
    text = "scheme mine(k, often = 5) { choose(every = often) from [zen(k), zen(k = k + 1, r1 = 2.5), balanced] }"
    found = choice_of(text, k=2)
    assert [candidate.name for candidate in found.candidates] == ["zen(k = 2)", "zen(k = 3, r1 = 2.5)", "balanced"]
    assert dict(found.candidates[1].scheme.parameters)["k"] == 3
    assert found.settings == Settings(every=5)
    assert found.parameters == (("k", 2), ("often", 5))


def test_schemes_of_the_file_come_first() -> None:
    text = """
    scheme balanced { communication: ring aggregation: one_shot partition: centralization }
    scheme mine { choose from [balanced, dense_ring] }
    """
    found = choice_of(text, "mine")
    assert [candidate.scheme.tiers[-1].aggregation.value for candidate in found.candidates] == [
        "one_shot",
        "incremental",
    ]


def test_unknown_names_are_told_with_the_nearest() -> None:
    text = "scheme mine { choose(evry = 3) from [balancd, dense_ring] }"
    with pytest.raises(SchemeError) as caught:
        resolve_any(load_text(text, "t.zen"))
    messages = [diagnostic.message for diagnostic in caught.value.diagnostics]
    assert "did you mean 'every'?" in messages[0]
    assert "did you mean 'balanced'?" in messages[1]


@pytest.mark.parametrize(
    ("inside", "ids"),
    [
        ("choose from [mine]", ["nested-choice"]),
        ("choose from [auto, balanced]", ["nested-choice"]),
        ("tier a(2): dense_ring tier b: auto", ["nested-choice"]),
        ("choose from [balanced, balanced]", ["duplicate-name"]),
        ("choose from [balanced] choose from [dense_ring]", ["choice-and-dimensions"]),
        ("choose from [balanced] tier a: dense_ring", ["choice-and-dimensions"]),
        ("choose from [balanced] unit: row push: coo", ["choice-and-dimensions"] * 2),
        ("choose(every = 0) from [balanced]", ["wrong-range"]),
        ("choose(1.5) from [balanced]", ["wrong-type"]),
        ("choose(margin = 2) from [balanced]", ["wrong-range"]),
        ("choose(margin = x) from [balanced]", ["unknown-name"]),
        ("choose(1, 0.1, 2, 3, 4) from [balanced]", ["wrong-arguments"]),
        ("choose from [zen(k = 99)]", ["wrong-range"]),
        ("choose from [balanced, zen(eed = 3)]", ["wrong-arguments"]),
        ("choose from [zen(k = 2, k = 3)]", ["wrong-arguments"]),
        ("choose from [" + ", ".join(f"balanced({i})" for i in range(65)) + "]", ["wrong-range"]),
        ("choose from []", ["syntax"]),
        ("choose [balanced]", ["syntax"]),
    ],
)
def test_what_is_wrong(inside: str, ids: list[str]) -> None:
    assert ids_of(f"scheme mine {{ {inside} }}") == ids


@pytest.mark.parametrize("text", ["chose from [a]", "choose [a]"])
def test_syntax_errors_say_how_to_write_it(text: str) -> None:
    with pytest.raises(SchemeSyntaxError) as caught:
        load_text(f"scheme mine {{ {text} }}")
    assert caught.value.diagnostics[0].help == "write 'choose from [balanced, dense_ring]'"


def test_one_scheme_is_needed() -> None:
    with pytest.raises(SchemeError) as caught:
        resolve(load_file(locate("auto")))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.id == "choice-of-schemes"
    assert diagnostic.help == "name one of them: balanced, holders, hierarchical_centralization, dense_ring"


def test_a_candidate_that_does_not_fit_is_left_out(tmp_path) -> None:
    path = tmp_path / "mine.zen"
    path.write_text("scheme mine { choose from [torus2d(columns = 4), balanced, zen_cluster] }")
    report = check(path, ranks=6)
    assert list(report.candidates) == ["balanced"]
    assert report.scheme.name == "balanced"
    assert [warning.id for warning in report.warnings] == ["candidate-left-out"] * 2
    assert "the ranks of a torus fill its rows" in report.warnings[0].notes[0]
    assert list(check(path, ranks=8).candidates) == ["torus2d(columns = 4)", "balanced", "zen_cluster"]
    assert check(path).warnings == ()
    path.write_text("scheme mine { choose from [torus2d(columns = 4), zen_cluster] }")
    with pytest.raises(VerificationError) as caught:
        check(path, ranks=6)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.id == "no-candidate"
    assert len(diagnostic.notes) == 2
