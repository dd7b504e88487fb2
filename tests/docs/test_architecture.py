"""The page about the architecture: its table of folders is the order of imports, and the files it names exist."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT
from tests.test_layers import LAYERS, PACKAGE

PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


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
