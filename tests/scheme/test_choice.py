"""Schemes that choose among others: their meaning, and errors in them; the list of shipped schemes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.refusals import refusals
from zenc.api import check
from zenc.errors import SchemeError, SchemeSyntaxError, Source, VerificationError
from zenc.language.files import load_file, load_text, locate, shipped_names
from zenc.language.parse import parse
from zenc.scheme.library import shipped
from zenc.scheme.model import Choice, Settings
from zenc.scheme.resolve import resolve, resolve_any
from zenc.strategy.library import shipped_strategy_entries
from zenc.strategy.resolve import resolve_strategy


def choice_of(text: str, name: str | None = None, **given: int | float) -> Choice:
    found, _ = resolve_any(load_text(text, "t.zen"), name, given)
    assert isinstance(found, Choice)
    return found


def ids_of(text: str, name: str | None = None) -> list[str]:
    refused = refusals((SchemeError, SchemeSyntaxError), lambda: resolve_any(load_text(text, "t.zen"), name))
    return [diagnostic.id for diagnostic in refused]


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
    messages = [diagnostic.message for diagnostic in refusals(SchemeError, resolve_any, load_text(text, "t.zen"))]
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
    refused = refusals(SchemeSyntaxError, load_text, f"scheme mine {{ {text} }}")
    assert refused[0].help == "write 'choose from [balanced, dense_ring]'"


def test_one_scheme_is_needed() -> None:
    (diagnostic,) = refusals(SchemeError, resolve, load_file(locate("auto")))
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
    (diagnostic,) = refusals(VerificationError, check, path, ranks=6)
    assert diagnostic.id == "no-candidate"
    assert len(diagnostic.notes) == 2


def test_shipped() -> None:
    entries = {entry["name"]: entry for entry in shipped()}
    assert {"agsparse", "balanced", "dense_ring", "hierarchical_centralization"} <= set(entries)
    assert entries["balanced"]["balance"] == "balanced by permutation"
    assert entries["agsparse"]["balance"] is None
    assert json.loads(json.dumps(shipped())) == shipped()
    for name, entry in entries.items():
        assert Path(entry["path"]).stem == name
        assert entry["summary"]
        assert "# Source: " in Path(entry["path"]).read_text(encoding="utf-8")
        parse(Source(name, Path(entry["path"]).read_text(encoding="utf-8")))


def test_locate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locate("balanced").name == "balanced.zen"
    assert locate("no_such_scheme") == Path("no_such_scheme")
    assert locate("patterns").is_file()
    assert locate("elsewhere/balanced.zen") == Path("elsewhere/balanced.zen")
    assert locate("balanced.zen") == Path("balanced.zen"), "what looks like a file is one, or is missing"
    (tmp_path / "balanced").write_text("")
    monkeypatch.chdir(tmp_path)
    assert locate("balanced") == Path("balanced"), "a file of one's own comes first"
    assert locate("schemes/balanced.zen").is_file()
    (tmp_path / "x.zen").write_text("")
    assert locate(str(tmp_path / "x.zen")) == tmp_path / "x.zen"


def test_names() -> None:
    assert shipped_names() == [entry["name"] for entry in shipped()]
    assert {entry["name"]: entry["groups"] for entry in shipped_strategy_entries()} == {
        "automatic": "fused",
        "merged": "search(2)",
    }
    assert locate("merged").samefile(locate("schemes/strategies/merged.zen"))


def test_the_front_end_is_light() -> None:
    code = "import sys, zenc.scheme.library; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    root = Path(__file__).parents[2]
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert shown.stdout.strip() == "[]"


def test_the_schemes_of_the_manual_mean_something() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    texts = re.findall(r"```zen\n((?:scheme|compress) .*?)```", page, re.DOTALL)
    assert len(texts) == 5
    for text in texts:
        assert resolve_any(load_text(text))[1] == ()
    (strategy,) = re.findall(r"```zen\n(strategy .*?)```", page, re.DOTALL)
    found, warnings = resolve_strategy(load_text(strategy))
    assert {warning.id for warning in warnings} == {"differing-candidates"} and len(found.rules) == 3
