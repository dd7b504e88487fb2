"""Pages of the reference that are held to the code: the command line, environment variables, Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from importlib import import_module

import zenc
from tests.docs.cli_page import page
from tests.docs.pages import ROOT
from tests.docs.results_page import with_results
from zenc.diagnostics import DIAGNOSTICS

REFERENCE = ROOT / "docs" / "reference"
VARIABLE = re.compile(r"[A-Z][A-Z0-9]+(_[A-Z0-9]+)*")
PLACEHOLDERS = {"FILE", "NAME", "SCHEME", "TOPOLOGY", "TYPE", "DIR"}
"""Names of arguments in the help of the program, in files that read variables too."""


def test_the_page_of_the_command_line_is_its_help(assert_golden: Callable[[str, str], None]) -> None:
    """``python -m pytest --update-golden tests/docs/test_reference.py`` writes it anew."""
    assert_golden("../../docs/reference/cli.md", page())


def test_the_page_of_results_is_made_of_the_files(assert_golden: Callable[[str, str], None]) -> None:
    assert_golden("../../docs/research/results.md", with_results())


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^### (.*)$", (ROOT / "docs/start/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert words == sorted(words, key=str.lower)


def test_questions_name_diagnostics_that_there_are() -> None:
    text = (ROOT / "docs/start/faq.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)
    assert len(rows) > 8 and set(rows) <= set(DIAGNOSTICS)


def test_every_page_is_in_the_navigation() -> None:
    """``mkdocs build --strict`` demands it too; decisions are added by docs/hooks.py."""
    listed = re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(page for page in pages if not page.startswith("adr/"))


def variables_read() -> set[str]:
    """What the files that touch os.environ have as names of variables."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "zenc").rglob("*.py")]
    nodes = [node for text in texts if "os.environ" in text for node in ast.walk(ast.parse(text))]
    values = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    native = [path.read_text(encoding="utf-8") for path in (ROOT / "templates").rglob("*.h")]
    values += [name for text in native for name in re.findall(r'getenv\("(\w+)"\)', text)]
    return {value for value in values if VARIABLE.fullmatch(value)} - PLACEHOLDERS


def test_every_variable_that_is_read_is_on_the_page() -> None:
    text = (REFERENCE / "environment.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[A-Z].*?) \|", text.partition("## Of torch")[0], re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(variables_read())


def test_every_public_name_is_on_the_page_about_python() -> None:
    """Errors are shown by their base, and by the page of diagnostics."""
    text = (REFERENCE / "python.md").read_text(encoding="utf-8")
    shown = {path.rpartition(".")[2]: path for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    errors = {name for name in zenc.__all__ if name.endswith("Error")} - {"ZencError"}
    assert set(zenc.__all__) - errors - {"__version__"} <= set(shown)
    for name, path in shown.items():
        assert getattr(import_module(path.rpartition(".")[0]), name).__doc__, path


def test_the_page_of_installing_counts_the_schemes() -> None:
    text = (ROOT / "docs/start/install.md").read_text(encoding="utf-8")
    assert re.findall(r"with (\d+) schemes", text) == [str(len(zenc.schemes()))]
