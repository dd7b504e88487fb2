"""Pages of the reference that are held to the code: the command line, environment variables, Python."""

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
from benchmarks.lab import choice
from benchmarks.lab.suite.__main__ import FOLDER
from benchmarks.lab.suite.points import POINTS, Point
from benchmarks.lab.suite.results import Result, load
from benchmarks.pages import LEFT, RIGHT, between, table
from benchmarks.slow_links import page as slow_links
from tests.docs.pages import MADE, ROOT, text_of
from tests.test_layers import LAYERS, PACKAGE
from zenc.cli import app
from zenc.common.diagnostics import DIAGNOSTICS

PAGE = ROOT / "benchmarks" / "reports" / "results.md"
REPRODUCTION = ROOT / "benchmarks" / "reports" / "reproduction.md"
PEERS = {"PyTorch, sparse": ("torch-coo", "ddp-sparse"), "`sparcml`": ("sparcml",), "`zen`": ("zen",)}
"""Heading -> the baseline under it, of single calls or of training."""
OTHERS = {"torch-dense": "PyTorch, dense", "ddp-dense": "PyTorch, dense", "horovod-coo": "Horovod"}
HEADS = ("point", "best scheme", *PEERS, "others")


def with_results() -> str:
    return between(PAGE.read_text(encoding="utf-8"), "\n\n".join((measured(), chosen(), slow(), reproduced())))


def measured() -> str:
    """Return the table of times of others over that of the best scheme, at every measured point."""
    results = load(FOLDER, POINTS)
    rows = [row_of(point, results[point.name]) for point in POINTS if point.name in results]
    ways = (LEFT, LEFT, *[RIGHT] * len(PEERS), LEFT)
    return "## All-reduces and training on a slow network\n\n" + table(HEADS, ways, rows)


def row_of(point: Point, result: Result) -> tuple[str, ...]:
    best = result.best()
    over = {peer: f"{result.over(peer, best).median:.2f}" for peer in result.rows if peer != best}
    compared = ("".join(over.get(peer, "") for peer in names) for names in PEERS.values())
    others = ", ".join(f"{name}: {over[peer]}" for peer, name in OTHERS.items() if peer in over)
    return f"{point.shows} (`{point.name}`)", f"`{best}`", *compared, others


def chosen() -> str:
    """Return the part about how near `auto` is to the best of its candidates."""
    results = load(choice.FOLDER, choice.POINTS)
    near = sum(choice.within(result) for result in results.values())
    return (
        "## The automatic choice\n\n"
        f"At {near} of {len(results)} points `auto` is within 5 % of the best of its candidates: "
        "[the table](../../docs/guides/choice.md#in-the-lab), made by `make bench-choice`."
    )


def slow() -> str:
    """Return the part about the way that takes least on slow links."""
    told = slow_links.verdicts(slow_links.PART.kept())
    made = "[the races](slow_links.md) of a small model, made by `python -m benchmarks.slow_links`"
    return f"## Slow links\n\nTo an equal loss on 4 hosts, in dilated time: {made}:\n\n{told}"


def reproduced() -> str:
    """Return the part with a sentence of the page about Zen's evaluation."""
    text = REPRODUCTION.read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^(Of \d+ ratios that nothing was fitted to, .*?)\. In the column", text, re.MULTILINE)
    return (
        "## Zen's evaluation, computed again\n\n"
        f"{sentence}: [the tables](reproduction.md), made by `make reproduce`. Nothing of it is measured."
    )


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


ARCHITECTURE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return ARCHITECTURE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return lines[2:]


def test_folders_are_the_layers_in_their_order() -> None:
    shown = [{f"zenc.{name.strip('`/ ')}" for name in cells[0].split(",")} for cells in rows(section("Folders"))]
    assert shown == [set(layer) for layer in LAYERS]


def test_the_picture_shows_folders_that_are_there() -> None:
    shown = set(re.findall(r"(\w+)/", section("The pipeline").split("```")[1]))
    assert len(shown) > 12
    homes = (PACKAGE, PACKAGE / "codegen", PACKAGE / "runtime")
    assert {name for name in shown if not any((home / name / "__init__.py").exists() for home in homes)} == set()


def test_what_is_asked_for_is_where_the_page_says() -> None:
    paths = re.findall(r"`([\w/.]+\.(?:py|h)|templates/[\w/]+/)`", section("Where is ..."))
    assert len(paths) > 15
    lacking = []
    for path in paths:
        homes = (PACKAGE / path, ROOT / path, ROOT / "templates" / "cuda" / path, PACKAGE / "simulator" / path)
        lacking += [path] if not any(home.exists() for home in homes) else []
    assert lacking == []


def test_paths_that_pages_name_are_there() -> None:
    """Whole paths exist; ``NAME`` stands for any name, and ``zenc/share`` is made by a wheel."""
    pages = [*(ROOT / "docs" / "internals").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*pages, ROOT / "CONTRIBUTING.md"])
    paths = set(re.findall(r"`((?:zenc|templates|tests|benchmarks|schemes|grammar|docs)/[\w/.]+)`", text))
    assert len(paths) > 60
    paths -= {path for path in paths if "NAME" in path or path.startswith("zenc/share")}
    homes = (ROOT, ROOT / "templates" / "shared")
    assert [path for path in sorted(paths) if not any((home / path).exists() for home in homes)] == []


def test_names_in_recipes_are_in_files_of_the_recipe() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## Recipes\n")[1].split("\n## ")[0]
    recipes = page.split("\n### ")[1:]
    assert len(recipes) == 7
    for recipe in recipes:
        files = [ROOT / path for path in re.findall(r"`(\w+/[\w/.]+)`", recipe)]
        text = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
        names = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"(?m)^(?:\d\.|   ).*", recipe))))
        assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set(), recipe.splitlines()[0]
