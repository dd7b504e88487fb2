"""Syntax trees of Python files, parsed once in a process."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def dotted(node: ast.expr) -> str:
    """Return the name ``a.b.c`` of an expression, from the first dot where it is another one's attribute."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, as ``ast.walk`` finds them."""
    return tuple(ast.walk(tree_of(path)))
