"""The list of shipped schemes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zenc.errors import Source
from zenc.language.files import load_text, locate, shipped_names
from zenc.language.parse import parse
from zenc.scheme.library import shipped
from zenc.scheme.resolve import resolve_any
from zenc.strategy.library import shipped_strategy_entries
from zenc.strategy.resolve import resolve_strategy


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
