"""Syntax trees of Python files, parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, as ``ast.walk`` finds them."""
    return tuple(ast.walk(tree_of(path)))
