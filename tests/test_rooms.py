"""Folders and names of the package: rooms of a size that can be looked over, and no class name twice."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.house import lines, rooms
from tests.support.sources import nodes_of
from tests.test_layers import MODULES, PACKAGE

MOST_MODULES = 18
MOST_LOOSE = 8

PUBLIC = {
    "advise", "check", "compile", "compile_text", "explain", "load", "open", "schemes", "simulate", "tune", "attach",
}  # fmt: skip
"""Functions of ``zenc``: a module of the same name directly below it would take their place when it is imported."""


def test_no_folder_has_more_modules_than_can_be_looked_over() -> None:
    found: dict[Path, int] = defaultdict(int)
    for path in MODULES.values():
        found[path.parent] += 1
    assert {str(folder): n for folder, n in found.items() if n > MOST_MODULES} == {}


@pytest.mark.parametrize("folder", [PACKAGE, PACKAGE / "runtime"], ids=["zenc", "runtime"])
def test_few_modules_are_loose(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= MOST_LOOSE


def test_no_class_name_stands_twice() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, path in MODULES.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_no_module_hides_a_public_function() -> None:
    assert PUBLIC.isdisjoint(path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES.values())


def test_rooms_keep_to_the_budgets_of_the_page() -> None:
    taken = {names: (sum(map(lines, places)), most) for names, (places, most) in rooms().items()}
    assert {names: counted for names, counted in taken.items() if counted[0] > counted[1]} == {}
    seen = {place for places, _ in rooms().values() for place in places}
    tops = {path.parent if path.parent != PACKAGE else path for path in PACKAGE.glob("*/*.py")} | set(
        PACKAGE.glob("*.py")
    )
    assert tops - seen == {PACKAGE / "__init__.py"}
