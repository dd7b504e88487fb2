"""Folders and names of the package: rooms of a size that can be looked over, and no class name twice."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.test_layers import MODULES, PACKAGE

MOST_MODULES = 18

PUBLIC = {"advise", "check", "compile", "compile_text", "explain", "load", "schemes", "simulate", "tune", "attach"}
"""Functions of ``zenc``: a module of the same name directly below it would take their place when it is imported."""


def test_no_folder_has_more_modules_than_can_be_looked_over() -> None:
    found: dict[Path, int] = defaultdict(int)
    for path in MODULES.values():
        found[path.parent] += 1
    assert {str(folder): n for folder, n in found.items() if n > MOST_MODULES} == {}


def test_no_class_name_stands_twice() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_no_module_hides_a_public_function() -> None:
    assert PUBLIC.isdisjoint(path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES.values())
