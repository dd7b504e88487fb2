"""Pages of the reference that are held to the code: the command line, environment variables, Python."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from runpy import run_path
from types import SimpleNamespace
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

import zenc
from tests.docs.pages import MADE, ROOT, text_of
from tests.docs.results_page import with_results
from zenc.cli import app
from zenc.common.diagnostics import DIAGNOSTICS

REFERENCE = ROOT / "docs" / "reference"
VARIABLE = re.compile(r"[A-Z][A-Z0-9]+(_[A-Z0-9]+)*")
PLACEHOLDERS = {"FILE", "NAME", "SCHEME", "TOPOLOGY", "TYPE", "DIR"}
"""Argument names in the program's help that look like variables."""


def verbs(command: Any, name: str) -> Iterator[str]:
    yield name
    for verb, child in getattr(command, "commands", {}).items():
        yield from verbs(child, f"{name} {verb}")


def test_the_page_of_the_command_line_is_its_help() -> None:
    found = re.findall(r"^## `([^`]*)`\n\n```text\n(.*?)^```$", text_of(REFERENCE / "cli.md"), re.MULTILINE | re.DOTALL)
    assert [title for title, _ in found] == list(verbs(get_command(app), "zenc"))
    for title, text in found:
        shown = CliRunner().invoke(app, [*title.split()[1:], "--help"], prog_name="zenc", terminal_width=110)
        assert [line.rstrip(" \b") for line in shown.stdout.splitlines()] == text.splitlines()


def test_pages_that_are_made_tell_readers_of_the_repository_where_they_are() -> None:
    assert {page.name for page in MADE} == {"cli.md", "diagnostics.md"}
    for page in MADE:
        text = page.read_text(encoding="utf-8")
        assert "`make docs`" in text and "<!-- made -->" not in text_of(page) and len(text) < 2000


def test_the_page_of_results_is_made_of_the_files(assert_golden: Callable[[str, str], None]) -> None:
    assert_golden("../../benchmarks/reports/results.md", with_results())


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^### (.*)$", (ROOT / "docs/start/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert words == sorted(words, key=str.lower)


def test_questions_name_diagnostics_that_there_are() -> None:
    text = (ROOT / "docs/start/faq.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE)
    assert len(rows) > 8 and set(rows) <= set(DIAGNOSTICS)


def test_every_page_is_in_the_navigation() -> None:
    """``mkdocs build --strict`` demands it too; docs/hooks.py adds decisions."""
    listed = re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    pages |= {f"research/{path.name}" for path in (ROOT / "benchmarks" / "reports").glob("*.md")}
    assert sorted(listed) == sorted(page for page in pages if not page.startswith("adr/"))


def test_links_lead_somewhere_in_the_repository_and_on_the_site() -> None:
    """``mkdocs build --strict`` follows anchors, too; paths of reports are those of the site."""
    on_site = run_path(str(ROOT / "docs" / "hooks.py"))["on_page_markdown"]
    reports = ROOT / "benchmarks" / "reports"
    for path in (*(ROOT / "docs").rglob("*.md"), *reports.glob("*.md")):
        uri = f"research/{path.name}" if path.parent == reports else path.relative_to(ROOT / "docs").as_posix()
        text = text_of(path)
        given = on_site(text, SimpleNamespace(file=SimpleNamespace(src_uri=uri)), None, None)
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", text):
            assert (path.parent / link).exists(), (uri, link)
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", given):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(uri), link))
            home = reports / target[9:] if target.startswith("research/") else ROOT / "docs" / target
            assert home.exists() and not target.startswith(".."), (uri, link)


def variables_read() -> set[str]:
    """Return the names of variables in files that touch os.environ."""
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
    """The base class and the page of diagnostics stand for errors."""
    text = (REFERENCE / "python.md").read_text(encoding="utf-8")
    shown = {path.rpartition(".")[2]: path for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    errors = {name for name in zenc.__all__ if name.endswith("Error")} - {"ZencError"}
    assert set(zenc.__all__) - errors - {"__version__"} <= set(shown)
    for name, path in shown.items():
        assert getattr(import_module(path.rpartition(".")[0]), name).__doc__, path


def test_the_page_of_installing_counts_the_schemes() -> None:
    text = (ROOT / "docs/start/install.md").read_text(encoding="utf-8")
    assert re.findall(r"with (\d+) schemes", text) == [str(len(zenc.schemes()))]
