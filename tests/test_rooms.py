"""Folders and names of the package: rooms of a size that can be looked over, and no class name twice."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.support.sources import nodes_of
from tests.test_layers import MODULES, PACKAGE

MOST_MODULES = 18

PUBLIC = {
    "advise",
    "check",
    "compile",
    "compile_text",
    "explain",
    "load",
    "open",
    "schemes",
    "simulate",
    "tune",
    "attach",
}
"""Functions of ``zenc``: a module of the same name directly below it would take their place when it is imported."""


def test_no_folder_has_more_modules_than_can_be_looked_over() -> None:
    found: dict[Path, int] = defaultdict(int)
    for path in MODULES.values():
        found[path.parent] += 1
    assert {str(folder): n for folder, n in found.items() if n > MOST_MODULES} == {}


def test_no_class_name_stands_twice() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, path in MODULES.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_no_module_hides_a_public_function() -> None:
    assert PUBLIC.isdisjoint(path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES.values())


ROW = re.compile(r"^\| (`[^|]+) \| .* \| ([\d,]+) \|$", re.MULTILINE)
ROOT = PACKAGE.parent


def lines(path: Path) -> int:
    """Return the lines of a module, of all modules below a folder, or of all files below a folder of templates."""
    suffix = "*" if path.is_relative_to(ROOT / "templates") else "*.py"
    files = [path] if path.is_file() else [file for file in path.rglob(suffix) if file.is_file()]
    return sum(file.read_text(encoding="utf-8").count("\n") for file in files)


def test_rooms_keep_to_the_budgets_of_the_page() -> None:
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    budgets = {names: int(most.replace(",", "")) for names, most in ROW.findall(page)}
    taken, seen = {}, set[Path]()
    for names in budgets:
        words = [word.rstrip("/") for word in re.findall(r"`([\w/]+)`", names)]
        places = [ROOT / word if word.startswith("templates/") else PACKAGE / word for word in words]
        rooms = [place if place.is_dir() else place.with_suffix(".py") for place in places]
        seen |= set(rooms)
        taken[names] = sum(map(lines, rooms))
    assert {names: (taken[names], most) for names, most in budgets.items() if taken[names] > most} == {}
    tops = {path.parent if path.parent != PACKAGE else path for path in PACKAGE.glob("*/*.py")} | set(
        PACKAGE.glob("*.py")
    )
    assert tops - seen == {PACKAGE / "__init__.py"}
